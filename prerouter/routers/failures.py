"""Why what a model gave is no decision."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prerouter.core.records import DecisionFailure
from prerouter.engines.transformers import PROMPT_TOO_LONG
from prerouter.prompts.trace import TraceReason

_CUT_OFF = (
    TraceReason.CUT_OFF,
    TraceReason.ENDLESS_WHITE_SPACE,
    TraceReason.UNCLOSED_THINKING,
)


def call_failure(error: str) -> DecisionFailure:
    """What a call that failed with `error` is as a decision."""
    too_long = error.startswith(PROMPT_TOO_LONG)
    return DecisionFailure.TOO_LONG if too_long else DecisionFailure.CALL_FAILED


def reply_failure(reason: TraceReason, error: str | None) -> DecisionFailure:
    """What a reply that was refused for `reason` is as a decision; `error` is its call's, if it
    failed."""
    if reason is TraceReason.CALL_FAILED:
        return call_failure(error or "")
    return DecisionFailure.CUT_OFF if reason in _CUT_OFF else DecisionFailure.UNPARSABLE


def second_odds(log_probabilities: Sequence[float]) -> float | None:
    """Log-odds of the second of two choices against the first; None where they are no number: both
    are impossible, or the model's own numbers are none."""
    first, second = log_probabilities
    odds = second - first
    return None if math.isnan(odds) else odds


def no_odds(log_probabilities: Sequence[float]) -> str:
    """What is told of choices without odds."""
    return "no odds between log-probabilities of {:g} and {:g}".format(*log_probabilities)
