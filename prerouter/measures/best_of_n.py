"""Best-of-N from n >= N samples a case, without bias: every choice of N of the n counts alike.

Pre-Route, section 1 (Chen et al., 2026, arXiv 2605.10235) has N = 1, 2, 4 and 8. The estimator of
the oracle is pass@k's (Chen et al., 2021, arXiv 2107.03374); that of the vote is its counterpart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import comb

import numpy as np

from prerouter.core.errors import StageError
from prerouter.core.records import Label, Record, Route, RoutingCase
from prerouter.measures.checks import MIN_CASES, caution
from prerouter.measures.statistics import (
    Floats,
    Measured,
    cluster_bootstrap,
    group_sums,
    with_interval,
)

PLACE = "best of N"


class BestOfN(Record):
    """Route accuracy with N samples a case, over the n labelled cases that have N or more.

    `oracle`: at least one of N is the ideal route. `majority`: the route with most votes is.
    `too_few_samples` labelled cases have fewer and `unlabelled` have no label: they are left out,
    so that the rows of different N may be over different cases.
    """

    samples: int
    n: int
    n_groups: int
    too_few_samples: int
    unlabelled: int
    oracle: Measured
    majority: Measured
    caution: str | None = None


@cache
def oracle_chance(n: int, right: int, draws: int) -> float:
    """Chance that `draws` of `n` samples, `right` of them right, hold a right one."""
    _check_draws(n, draws)
    return 1 - comb(n - right, draws) / comb(n, draws)


@cache
def majority_chance(n: int, rag: int, lc: int, draws: int, ideal: Route) -> float:
    """Chance that the vote of `draws` of `n` samples gives `ideal`.

    `rag` and `lc` samples chose a route, the rest none and don't vote. A tie goes to RAG, the cheap
    route; where no drawn sample chose, there is no decision, and it isn't right.
    """
    _check_draws(n, draws)
    ways = 0
    for votes_lc in range(min(lc, draws) + 1):
        for votes_rag in range(min(rag, draws - votes_lc) + 1):
            if not votes_lc + votes_rag:
                continue
            if (Route.LC if votes_lc > votes_rag else Route.RAG) is ideal:
                silent = comb(n - rag - lc, draws - votes_lc - votes_rag)
                ways += comb(lc, votes_lc) * comb(rag, votes_rag) * silent
    return ways / comb(n, draws)


def _check_draws(n: int, draws: int) -> None:
    if not 1 <= draws <= n:
        raise StageError(PLACE, f"{draws} of {n} samples", "N from 1 to the number of samples")


def best_of_n(
    samples: Mapping[str, Sequence[Route | None]],
    labels: Sequence[Label],
    cases: Sequence[RoutingCase],
    *,
    numbers: Sequence[int] = (1, 2, 4, 8),
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> list[BestOfN]:
    """One row for each N. `samples` holds, by case_id, the route of each sample.

    None is a sample that was written and decided nothing: wrong, and without a vote. A failed call
    is no sample and isn't in the list. Intervals resample documents. StageError for samples of
    cases that aren't given, and for an N below 1.
    """
    if min(numbers, default=1) < 1:
        raise StageError(PLACE, f"N = {min(numbers)}", "N from 1")
    unknown = sorted(samples.keys() - {case.case_id for case in cases})
    if unknown:
        raise StageError(
            PLACE, f"samples of {len(unknown)} cases that aren't given, {unknown[0]} among them"
        )
    ideal = {label.case_id: label.route for label in labels}
    labelled = [case for case in cases if case.case_id in ideal]
    rows = []
    for draws in numbers:
        used = [case for case in labelled if len(samples.get(case.case_id, ())) >= draws]
        chances = [_chances(samples[case.case_id], ideal[case.case_id], draws) for case in used]
        sums = group_sums(
            np.array([case.group_id for case in used]),
            np.array([(1, *chance) for chance in chances], dtype=np.float64).reshape(-1, 3),
        )
        rows.append(
            BestOfN(
                samples=draws,
                n=len(used),
                n_groups=len(sums),
                too_few_samples=len(labelled) - len(used),
                unlabelled=len(cases) - len(labelled),
                oracle=_mean(sums[:, :2], draws, resamples, confidence, seed),
                majority=_mean(sums[:, (0, 2)], draws, resamples, confidence, seed),
                caution=caution(len(used), min_cases),
            )
        )
    return rows


def _chances(routes: Sequence[Route | None], ideal: Route, draws: int) -> tuple[float, float]:
    n, rag, lc = len(routes), routes.count(Route.RAG), routes.count(Route.LC)
    right = routes.count(ideal)
    return oracle_chance(n, right, draws), majority_chance(n, rag, lc, draws, ideal)


def _mean(sums: Floats, draws: int, resamples: int, confidence: float, seed: int) -> Measured:
    if not len(sums):
        return Measured(note=f"no labelled case has {draws} samples or more")
    return with_interval(
        float(sums[:, 1].sum() / sums[:, 0].sum()),
        cluster_bootstrap(sums, lambda s: s[..., 1] / s[..., 0], resamples, confidence, seed),
    )
