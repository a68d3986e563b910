"""Bootstrap intervals that resample groups (documents), because questions about one document agree.

Every statistic here is a function of sums over groups, so that a resample of documents is a vector
of weights and all resamples are one matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
from pydantic import model_validator

from prerouter.core.records import Record

Floats = npt.NDArray[np.float64]

# Weights held at a time: 8 million doubles are 64 MB.
_CHUNK_CELLS = 8_000_000


class Interval(Record):
    """A percentile bootstrap interval. `left_out` resamples had no value of the statistic."""

    low: float
    high: float
    confidence: float
    n_groups: int
    resamples: int
    left_out: int = 0


@dataclass(frozen=True)
class NoInterval:
    """Why there is no interval, as a clause."""

    reason: str


class Measured(Record):
    """A value with its interval, or None with the reason in `note`; no zero ever stands in."""

    value: float | None = None
    interval: Interval | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _value_or_reason(self) -> Self:
        if self.value is None and not self.note:
            raise ValueError("a measure without a value says why in its note")
        return self


def group_sums(groups: npt.NDArray[np.generic], values: Floats) -> Floats:
    """What each group that occurs adds: `groups` (n,), `values` (n, k), returns (groups, k)."""
    names, member = np.unique(groups, return_inverse=True)
    sums = np.zeros((len(names), values.shape[1]))
    np.add.at(sums, member, values)
    return sums


def resampled_weights(groups: int, resamples: int, seed: int) -> Iterator[Floats]:
    """How often each group is drawn, in blocks of shape (rows, groups), `resamples` rows in all."""
    rng = np.random.default_rng(seed)
    step = max(1, _CHUNK_CELLS // max(groups, 1))
    for start in range(0, resamples, step):
        rows = min(step, resamples - start)
        drawn = rng.integers(0, groups, size=(rows, groups))
        drawn += np.arange(rows)[:, None] * groups
        counts = np.bincount(drawn.ravel(), minlength=rows * groups)
        yield counts.reshape(rows, groups).astype(np.float64)


def resampled_sums(sums: Floats, resamples: int, seed: int) -> Floats:
    """Sums over `resamples` draws of all groups with replacement.

    `sums` is (groups, ...): what each group adds. Returns (resamples, ...). All columns of one
    draw come from the same groups, so routers laid side by side are compared on the same cases.
    """
    flat = sums.reshape(sums.shape[0], -1)
    totals = np.empty((resamples, flat.shape[1]))
    start = 0
    for weights in resampled_weights(sums.shape[0], resamples, seed):
        totals[start : start + len(weights)] = weights @ flat
        start += len(weights)
    return totals.reshape(resamples, *sums.shape[1:])


def percentile_interval(values: Floats, confidence: float, n_groups: int) -> Interval | NoInterval:
    """The central `confidence` share of resampled `values`, shape (resamples,); NaN is left out.

    There is none with fewer than two groups, or where less than half of the resamples have a value.
    """
    if n_groups < 2:
        return NoInterval("no interval: fewer than two documents to resample")
    usable = values[np.isfinite(values)]
    left_out = values.size - usable.size
    if usable.size * 2 < values.size or not usable.size:
        return NoInterval(
            f"no interval: {left_out} of {values.size} resamples give no value of this measure"
        )
    tail = (1 - confidence) / 2
    low, high = np.quantile(usable, (tail, 1 - tail))
    return Interval(
        low=float(low),
        high=float(high),
        confidence=confidence,
        n_groups=n_groups,
        resamples=values.size,
        left_out=left_out,
    )


def cluster_bootstrap(
    sums: Floats,
    statistic: Callable[[Floats], Floats],
    resamples: int,
    confidence: float,
    seed: int,
) -> Interval | NoInterval:
    """Percentile bootstrap (Efron, 1979) of a statistic of group sums.

    `sums` is (groups, k); `statistic` maps sums (..., k) to values (...), NaN where it has none.
    """
    if sums.shape[0] < 2:
        return percentile_interval(np.empty(0), confidence, sums.shape[0])
    return percentile_interval(
        statistic(resampled_sums(sums, resamples, seed)), confidence, sums.shape[0]
    )


def with_interval(value: float, found: Interval | NoInterval) -> Measured:
    """A value with what was found around it; resamples that were left out are told in the note."""
    if isinstance(found, NoInterval):
        return Measured(value=value, note=found.reason)
    note = (
        f"the interval leaves out {found.left_out} of {found.resamples} resamples that give no "
        "value of this measure"
    )
    return Measured(value=value, interval=found, note=note if found.left_out else None)
