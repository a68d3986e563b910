"""One reply fails alike whichever router asked for it."""

from __future__ import annotations

import pytest

from prerouter.core.records import DecisionFailure, Reject
from prerouter.engines.transformers import PROMPT_TOO_LONG
from prerouter.prompts.trace import TraceReason
from prerouter.routers.failures import reply_failure
from prerouter.routers.prompted import as_decision


@pytest.mark.parametrize(
    ("reason", "detail", "failure"),
    [
        (TraceReason.CALL_FAILED, "no server", DecisionFailure.CALL_FAILED),
        (TraceReason.CALL_FAILED, f"{PROMPT_TOO_LONG}: 9000", DecisionFailure.TOO_LONG),
        (TraceReason.CUT_OFF, "", DecisionFailure.CUT_OFF),
        (TraceReason.ENDLESS_WHITE_SPACE, "", DecisionFailure.CUT_OFF),
        # It ended by itself, in the middle of its thinking.
        (TraceReason.UNCLOSED_THINKING, "", DecisionFailure.CUT_OFF),
        (TraceReason.NO_JSON, "", DecisionFailure.UNPARSABLE),
    ],
)
def test_a_refused_reply_is_the_same_failure_of_a_student_and_of_a_teacher(
    reason: TraceReason, detail: str, failure: DecisionFailure
) -> None:
    assert reply_failure(reason, detail) is failure
    reject = Reject(stage="teach", key="case|0", reason=reason.value, detail=detail)
    assert as_decision(reject, "teacher").failure is failure
