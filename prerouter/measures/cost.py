"""What tokens cost: in USD by a price table, in GPU-hours by a throughput. Pure functions.

A record that doesn't know its tokens has no cost; it never costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prerouter.core.records import Answer, Decision, Trace
from prerouter.measures.statistics import Measured, cluster_bootstrap, with_interval
from prerouter.recipe.prices import Price

MILLION = 1_000_000


@dataclass(frozen=True)
class Tokens:
    """Tokens of one call or of many. `cached_input` of the `input` tokens had been read before."""

    input: int
    output: int
    cached_input: int = 0


def used_tokens(record: Answer | Decision | Trace) -> Tokens | None:
    """What the call behind a record took; None where that isn't known."""
    if record.prompt_tokens is None or record.completion_tokens is None:
        return None
    return Tokens(record.prompt_tokens, record.completion_tokens)


def usd(tokens: Tokens, price: Price) -> float:
    """Cost in USD. Cached input costs as much as other input where the price has no figure."""
    cached = price.input if price.cached_input is None else price.cached_input
    read = (tokens.input - tokens.cached_input) * price.input + tokens.cached_input * cached
    return (read + tokens.output * price.output) / MILLION


def gpu_hours(output_tokens: float, tokens_per_second: float, gpus: int) -> float:
    """GPU-hours to generate `output_tokens` at a throughput of all `gpus` together. A throughput
    that was measured on the job holds the time that its prompts take."""
    return output_tokens / tokens_per_second / 3600 * gpus


def output_per_call(
    by_case: Mapping[str, Sequence[int]], confidence: float, resamples: int, seed: int
) -> Measured:
    """Mean output tokens of a call, with a bootstrap interval over cases.

    `by_case` maps a case id to the output tokens of each of its calls, one at least.
    """
    sums = np.array([[sum(calls), len(calls)] for calls in by_case.values()], dtype=float)
    if not len(sums):
        return Measured(note="no call whose output tokens are known")
    total, calls = sums.sum(axis=0)
    if len(sums) == 1:
        return Measured(value=total / calls, note="no interval: one case only")
    found = cluster_bootstrap(
        sums, lambda drawn: drawn[..., 0] / drawn[..., 1], resamples, confidence, seed
    )
    return with_interval(total / calls, found)
