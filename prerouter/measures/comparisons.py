"""Is one router better than another on the same cases? Tests of paired differences.

Pre-Route, section 1 (Chen et al., 2026, arXiv 2605.10235) has the paired t-test and Cohen's d; the
exact McNemar test (1947), Holm's correction (1979) and the bootstrap over documents are ours. Only
the bootstrap knows that questions about one document agree: the t-test and McNemar's take every
case for itself, and are too sure of themselves where documents have many questions.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import combinations

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Record
from prerouter.measures.checks import MIN_CASES, caution, finite
from prerouter.measures.outcomes import Indices, Outcomes
from prerouter.measures.routing import ORACLE
from prerouter.measures.statistics import (
    Floats,
    Measured,
    group_sums,
    percentile_interval,
    resampled_sums,
    with_interval,
)

PLACE = "comparison"

RESAMPLES = 10_000
"""More than an interval needs: they bound the smallest p that the bootstrap can tell."""

_ROUNDING = 1e-12


class PairedTest(StrEnum):
    """The four tests, each of no difference against a difference either way."""

    QA_BOOTSTRAP = "qa_bootstrap"
    QA_PAIRED_T = "qa_paired_t"
    ACCURACY_BOOTSTRAP = "accuracy_bootstrap"
    ACCURACY_MCNEMAR = "accuracy_mcnemar"


class PairedTestResult(Record):
    """A two-sided p, as it is and by Holm over all comparisons made; or why there is none.

    `statistic` is t of the t-test; of McNemar's the number of cases that only the first gets right.
    """

    p: float | None = None
    p_holm: float | None = None
    statistic: float | None = None
    note: str | None = None


class Comparison(Record):
    """Differences are `one` minus `other`, over the same n cases.

    `cohens_dz` is the mean QA difference in standard deviations of the differences (d_z, the d of
    paired data), not of the scores. `caution` warns of few cases.
    """

    one: str
    other: str
    n: int
    n_groups: int
    qa: Measured
    accuracy: Measured
    cohens_dz: Measured
    tests: dict[PairedTest, PairedTestResult]
    caution: str | None = None


def mcnemar_exact(right_one: npt.ArrayLike, right_other: npt.ArrayLike) -> PairedTestResult:
    """Exact McNemar test of two routers' right (1) and wrong (0) choices, shape (n,) each.

    Of the cases that only one of both gets right, each belongs to either with probability 1/2.
    """
    from scipy.stats import binomtest

    one = finite(PLACE, "the first router", right_one)
    other = finite(PLACE, "the second router", right_other, one.size)
    only_one, only_other = int((one > other).sum()), int((other > one).sum())
    if not only_one + only_other:
        return PairedTestResult(note="n/a: both routers are right on the same cases")
    p = float(binomtest(only_one, only_one + only_other, 0.5).pvalue)
    return PairedTestResult(p=p, statistic=float(only_one))


def paired_t(differences: npt.ArrayLike) -> tuple[PairedTestResult, Measured]:
    """Paired t-test and Cohen's d_z of differences, shape (n,); n/a in words if all are equal."""
    from scipy.stats import ttest_1samp

    d = finite(PLACE, "the differences", differences)
    reason = None
    if d.size < 2:
        reason = "n/a: fewer than two cases"
    elif np.ptp(d) <= _ROUNDING * max(1.0, float(np.abs(d).max())):
        reason = "n/a: the difference is the same in every case"
    if reason:
        return PairedTestResult(note=reason), Measured(note=reason)
    found = ttest_1samp(d, 0.0)
    return (
        PairedTestResult(p=float(found.pvalue), statistic=float(found.statistic)),
        Measured(value=float(d.mean() / d.std(ddof=1))),
    )


def bootstrap_p(draws: Floats) -> float:
    """Two-sided p of no difference: the smallest tail whose percentile interval leaves out 0.

    `draws` are resampled mean differences, shape (resamples,). Never below 2 / (resamples + 1).
    """
    below, above = int((draws <= 0).sum()), int((draws >= 0).sum())
    return float(min(1.0, 2 * (1 + min(below, above)) / (draws.size + 1)))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down adjusted p of each of several comparisons, in their order."""
    p = finite(PLACE, "p", p_values)
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty(p.size)
    adjusted[order] = np.minimum(stepped, 1.0)
    return [float(value) for value in adjusted]


def compare_routers(
    outcomes: Outcomes,
    pairs: Sequence[tuple[str, str]] | None = None,
    *,
    resamples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> list[Comparison]:
    """Every test for each pair of routers (all pairs but the oracle's, unless told).

    An undecided case counts with its fallback route for QA and as wrong for accuracy. Holm's
    correction is over the pairs, test by test: no bootstrap p is below 2 * pairs / (resamples + 1)
    after it, so that many pairs need many resamples. StageError for a router that isn't among the
    outcomes or is compared with itself; routers over other cases never get into one `Outcomes`.
    """
    if pairs is None:
        pairs = list(combinations([name for name in outcomes.chosen if name != ORACLE], 2))
    for one, other in pairs:
        if one == other or {one, other} - outcomes.chosen.keys():
            raise StageError(
                PLACE, f"{one} against {other}", f"two of {', '.join(outcomes.chosen)}"
            )
    if not pairs:
        return []
    qa = np.column_stack([outcomes.qa_of(one) - outcomes.qa_of(other) for one, other in pairs])
    accuracy = np.column_stack(
        [outcomes.right(one).astype(np.float64) - outcomes.right(other) for one, other in pairs]
    )
    means = _resampled_means(outcomes.groups, np.hstack((qa, accuracy)), resamples, seed)
    n_groups = outcomes.n_groups
    made = []
    for i, (one, other) in enumerate(pairs):
        t, dz = paired_t(qa[:, i])
        qa_draws, accuracy_draws = means[:, i], means[:, len(pairs) + i]
        made.append(
            Comparison(
                one=one,
                other=other,
                n=outcomes.n,
                n_groups=n_groups,
                qa=_difference(qa[:, i], qa_draws, confidence, n_groups),
                accuracy=_difference(accuracy[:, i], accuracy_draws, confidence, n_groups),
                cohens_dz=dz,
                tests={
                    PairedTest.QA_BOOTSTRAP: _bootstrap(qa_draws),
                    PairedTest.QA_PAIRED_T: t,
                    PairedTest.ACCURACY_BOOTSTRAP: _bootstrap(accuracy_draws),
                    PairedTest.ACCURACY_MCNEMAR: mcnemar_exact(
                        outcomes.right(one), outcomes.right(other)
                    ),
                },
                caution=caution(outcomes.n, min_cases),
            )
        )
    return _corrected(made)


def _resampled_means(groups: Indices, values: Floats, resamples: int, seed: int) -> Floats:
    """Means of each column over each resample of the groups; no row with fewer than two groups."""
    sums = group_sums(groups, np.column_stack((np.ones(len(values)), values)))
    if len(sums) < 2:
        return np.empty((0, values.shape[1]))
    draws = resampled_sums(sums, resamples, seed)
    means = draws[:, 1:] / draws[:, :1]
    # Sums in another order differ by rounding: that is no difference.
    means[np.abs(means) <= _ROUNDING] = 0.0
    return means


def _difference(values: Floats, draws: Floats, confidence: float, n_groups: int) -> Measured:
    return with_interval(float(values.mean()), percentile_interval(draws, confidence, n_groups))


def _bootstrap(draws: Floats) -> PairedTestResult:
    if not draws.size:
        return PairedTestResult(note="n/a: fewer than two documents to resample")
    if np.ptp(draws) <= _ROUNDING:
        return PairedTestResult(note="n/a: the difference is the same in every resample")
    p = bootstrap_p(draws)
    at_floor = p <= 2 / (draws.size + 1)
    note = f"or less: {draws.size} resamples can show no smaller p" if at_floor else None
    return PairedTestResult(p=p, note=note)


def _corrected(comparisons: list[Comparison]) -> list[Comparison]:
    tests = [dict(comparison.tests) for comparison in comparisons]
    for test in PairedTest:
        results = [row[test] for row in tests]
        # A comparison without a p was made all the same: it counts as one that shows nothing.
        adjusted = holm([1.0 if result.p is None else result.p for result in results])
        for row, result, p_holm in zip(tests, results, adjusted, strict=True):
            if result.p is not None:
                row[test] = result.model_copy(update={"p_holm": p_holm})
    return [
        comparison.model_copy(update={"tests": row})
        for comparison, row in zip(comparisons, tests, strict=True)
    ]
