"""Does a high entropy of an answer's first tokens go with a wrong answer?

EDAR (Olufadewa et al., 2026, arXiv 2609.35831) has Pearson's r of entropy with error and a
bootstrap interval. Here documents are resampled, because answers about one document agree.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from prerouter.core.records import Record
from prerouter.measures.checks import MIN_CASES, caution, finite
from prerouter.measures.statistics import (
    Floats,
    Measured,
    cluster_bootstrap,
    group_sums,
    with_interval,
)

PLACE = "entropy against error"


class EntropyBin(Record):
    """The n answers between two entropies in bits: their mean entropy and mean error (0..1)."""

    low: float
    high: float
    n: int
    mean_entropy: float
    mean_error: float


class EntropyError(Record):
    """Pearson's r over n answers, and bins that hold about equally many of them."""

    n: int
    n_groups: int
    pearson: Measured
    bins: tuple[EntropyBin, ...]
    caution: str | None = None


def entropy_against_error(
    entropy: npt.ArrayLike,
    error: npt.ArrayLike,
    groups: npt.NDArray[np.generic],
    *,
    bins: int = 8,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> EntropyError:
    """`entropy` in bits and `error` in 0 (right) to 1 of each answer, and their documents as
    `groups`: (n,) each. StageError for anything missing or not finite."""
    x = finite(PLACE, "the entropies", entropy)
    y = finite(PLACE, "the errors", error, x.size)
    # Centred, so that sums of squares of large and near values don't cancel.
    a, b = x - x.mean(), y - y.mean()
    sums = group_sums(groups, np.column_stack((np.ones(x.size), a, b, a * a, b * b, a * b)))
    value = float(_pearson(sums.sum(axis=0)))
    if x.size < 3:
        pearson = Measured(note="n/a: fewer than three answers, which always lie on a line")
    elif np.isnan(value):
        same = "entropy" if np.ptp(x) == 0 else "error"
        pearson = Measured(note=f"n/a: the {same} is the same in every case")
    else:
        found = cluster_bootstrap(sums, _pearson, resamples, confidence, seed)
        pearson = with_interval(value, found)
    return EntropyError(
        n=x.size,
        n_groups=len(sums),
        pearson=pearson,
        bins=_bins(x, y, bins),
        caution=caution(x.size, min_cases),
    )


def _pearson(sums: Floats) -> Floats:
    n, a, b, aa, bb, ab = np.moveaxis(sums, -1, 0)
    spread_a, spread_b = aa - a * a / n, bb - b * b / n
    r = np.full(np.shape(n), np.nan)
    # Sums in another order differ by rounding: that is no spread.
    real = (spread_a > 1e-12 * n) & (spread_b > 1e-12 * n)
    product = np.sqrt(np.where(real, spread_a * spread_b, 1.0))
    np.divide(ab - a * b / n, product, out=r, where=real)
    return r


def _bins(x: Floats, y: Floats, bins: int) -> tuple[EntropyBin, ...]:
    # Edges that are values of the data: one between them could part equal values.
    uppers = np.unique(np.quantile(x, np.arange(1, bins + 1) / bins, method="inverted_cdf"))
    place = np.searchsorted(uppers, x, side="left")
    return tuple(
        EntropyBin(
            low=float(x[place == number].min()),
            high=float(x[place == number].max()),
            n=int((place == number).sum()),
            mean_entropy=float(x[place == number].mean()),
            mean_error=float(y[place == number].mean()),
        )
        for number in np.unique(place)
    )
