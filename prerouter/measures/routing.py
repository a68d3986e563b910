"""How well routers decide: Pre-Route, section 1: Measures (Chen et al., 2026, arXiv 2605.10235).

Every measure is a function of sums over documents, so that the intervals of all routers come from
one matrix product. Balanced accuracy, LC recall and the gap recovered are not the paper's: they
show what accuracy hides where most labels are RAG.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import StrEnum
from typing import Final

import numpy as np

from prerouter.core.records import (
    ROUTES,
    Decision,
    Label,
    MissingReason,
    PairedScore,
    Record,
    Route,
    RoutingCase,
)
from prerouter.measures.join import ORACLE as ORACLE
from prerouter.measures.join import Arrays, check_decisions, common_scale, to_arrays
from prerouter.measures.missing import MissingArms
from prerouter.measures.statistics import (
    Floats,
    Interval,
    Measured,
    NoInterval,
    percentile_interval,
    resampled_sums,
)

POOLED: Final = None  # which no answer model can be named


class Measure(StrEnum):
    """In the order a table shows them. All but QA lie in 0..1; the gap may leave it."""

    QA = "qa"
    LC_RATE = "lc_rate"
    ACCURACY = "accuracy"
    BALANCED_ACCURACY = "balanced_accuracy"
    LC_RECALL = "lc_recall"
    GAP_RECOVERED = "gap_recovered"


class RoutingRow(Record):
    """One router on the cases of one answer model, or of all of them pooled (None).

    `n` cases have a label, and every measure is over these; `unlabelled` cases have none and are
    in no measure: `missing_arms` counts what they lack, by route and reason. `undecided` of the n
    got no route from the router: the fallback route stands for their QA and LC rate, and they
    count as wrong routes. `collapsed` is the one route that all decided cases got, whether the
    router is meant to be fixed or not. `scale` is that of QA. `unseen` tells of an answer model
    that no router learnt from.
    """

    router: str
    answer_model: str | None = POOLED
    n: int
    unlabelled: int
    missing_arms: dict[Route, dict[MissingReason, int]] = {}
    undecided: int
    n_groups: int
    scale: tuple[float, float]
    measures: dict[Measure, Measured]
    collapsed: Route | None = None
    few_cases: bool
    unseen: bool = False


_LC = ROUTES.index(Route.LC)
# The columns of a group's sums: cases, QA of the chosen, the cheapest and the ideal routes; then,
# for each route, cases sent there, cases that belong there, and cases of these that were right.
_N, _QA, _QA_CHEAPEST, _QA_IDEAL = range(4)
_CHOSEN, _IDEAL, _RIGHT = range(3)


def _by_route(sums: Floats, part: int) -> Floats:
    """One of the three parts that have a column for each route."""
    routes = (sums.shape[-1] - 4) // 3
    return sums[..., 4 + part * routes : 4 + (part + 1) * routes]


def _ratio(top: Floats, bottom: Floats) -> Floats:
    """NaN where the denominator isn't positive: there is no such share."""
    ratio = np.full(np.shape(top), np.nan)
    np.divide(top, bottom, out=ratio, where=bottom > 0)
    return ratio


def _recalls(sums: Floats) -> Floats:
    return _ratio(_by_route(sums, _RIGHT), _by_route(sums, _IDEAL))


def _balanced(sums: Floats) -> Floats:
    """The mean of the routes' recalls. A route beyond ROUTES counts where it is any case's ideal:
    labels needn't compare it."""
    counted = _by_route(sums, _IDEAL) > 0
    counted[..., : len(ROUTES)] = True
    recalls = np.where(counted, _recalls(sums), 0.0)
    return np.asarray(recalls.sum(axis=-1) / counted.sum(axis=-1))


def _gap_recovered(sums: Floats) -> Floats:
    gap = sums[..., _QA_IDEAL] - sums[..., _QA_CHEAPEST]
    # Sums of the same scores in another order differ by rounding: that is no gap.
    real = (gap > 1e-9 * sums[..., _N]).astype(np.float64)
    return _ratio(sums[..., _QA] - sums[..., _QA_CHEAPEST], gap * real)


_STATISTICS: dict[Measure, Callable[[Floats], Floats]] = {
    Measure.QA: lambda sums: _ratio(sums[..., _QA], sums[..., _N]),
    Measure.LC_RATE: lambda sums: _ratio(_by_route(sums, _CHOSEN)[..., _LC], sums[..., _N]),
    Measure.ACCURACY: lambda sums: _ratio(_by_route(sums, _RIGHT).sum(axis=-1), sums[..., _N]),
    Measure.BALANCED_ACCURACY: _balanced,
    Measure.LC_RECALL: lambda sums: _recalls(sums)[..., _LC],
    Measure.GAP_RECOVERED: _gap_recovered,
}


def routing_table(
    decisions_by_router: Mapping[str, Sequence[Decision]],
    labels: Sequence[Label],
    scores: Sequence[PairedScore],
    cases: Sequence[RoutingCase],
    *,
    fallback: Route = Route.RAG,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = 30,
    unseen_models: Collection[str] = (),
) -> list[RoutingRow]:
    """A row for each answer model and router, then the rows of all answer models pooled.

    Routers keep their order; the oracle, which follows the labels, comes last. Labels and scores
    of other cases are passed over. Raises a CombinedError where a router's decisions aren't exactly
    one for each case; a StageError where a labelled case lacks a score, where scales or judges
    differ, or where sums of scores on that scale pass what a float holds.
    """
    check_decisions(decisions_by_router, cases)
    arrays = to_arrays(decisions_by_router, labels, scores, cases, fallback)
    scale = common_scale(scores, cases)
    models = list(dict.fromkeys(case.answer_model.name for case in cases))
    pairs = {score.case_id: score for score in scores}
    labelled = {label.case_id for label in labels}
    rows: list[RoutingRow] = []
    for model in [*models, POOLED]:
        of_model = [case for case in cases if model in (POOLED, case.answer_model.name)]
        inside = np.arange(len(arrays.labels))
        if model is not POOLED:
            inside = np.flatnonzero(arrays.models == model)
        missing = MissingArms()
        for case in of_model:
            if case.case_id not in labelled:
                missing.add(pairs.get(case.case_id))
        groups, sums = _group_sums(arrays, inside)
        draws = resampled_sums(sums, resamples, seed) if len(groups) > 1 else np.empty((0,))
        for column, router in enumerate(arrays.chosen):
            decided = arrays.decided[router][inside]
            routes = np.unique(arrays.chosen[router][inside][decided])
            rows.append(
                RoutingRow(
                    router=router,
                    answer_model=model,
                    n=len(inside),
                    unlabelled=len(of_model) - len(inside),
                    missing_arms=missing.by_route(),
                    undecided=int((~decided).sum()),
                    n_groups=len(groups),
                    scale=scale,
                    measures=_measure(
                        sums[:, column].sum(axis=0),
                        draws[:, column] if draws.size else draws,
                        confidence,
                        len(groups),
                    ),
                    collapsed=arrays.routes[int(routes[0])] if len(routes) == 1 else None,
                    few_cases=len(inside) < min_cases,
                    unseen=model in unseen_models,
                )
            )
    return rows


def _group_sums(arrays: Arrays, inside: np.ndarray) -> tuple[np.ndarray, Floats]:
    """The groups that occur, and what they add: (groups, routers, columns)."""
    groups, member = np.unique(arrays.groups[inside], return_inverse=True)
    qa, ideal = arrays.qa[inside], arrays.labels[inside]
    rows = np.arange(len(inside))
    one_hot = np.eye(len(arrays.routes))
    sums = np.zeros((len(groups), len(arrays.chosen), 4 + 3 * len(arrays.routes)))
    for column, router in enumerate(arrays.chosen):
        chosen = arrays.chosen[router][inside]
        right = (chosen == ideal) & arrays.decided[router][inside]
        per_case = np.column_stack(
            (
                np.ones(len(inside)),
                qa[rows, chosen],
                qa[:, 0],
                qa[rows, ideal],
                one_hot[chosen],
                one_hot[ideal],
                one_hot[ideal] * right[:, None],
            )
        )
        np.add.at(sums[:, column], member, per_case)
    return groups, sums


def _measure(
    totals: Floats, draws: Floats, confidence: float, n_groups: int
) -> dict[Measure, Measured]:
    measured: dict[Measure, Measured] = {}
    for measure, statistic in _STATISTICS.items():
        value = float(statistic(totals))
        if not np.isfinite(value):
            measured[measure] = Measured(note=_why_none(measure, totals))
            continue
        found = percentile_interval(statistic(draws) if draws.size else draws, confidence, n_groups)
        if isinstance(found, NoInterval):
            measured[measure] = Measured(value=value, note=found.reason)
        else:
            measured[measure] = Measured(value=value, interval=found, note=_left_out(found))
    return measured


def _why_none(measure: Measure, totals: Floats) -> str:
    if totals[_N] == 0:
        return "no case has a label"
    if measure is Measure.GAP_RECOVERED:
        return f"the oracle is no better than always {ROUTES[0].value}"
    ideal = _by_route(totals, _IDEAL)
    absent = [route.value for route, n in zip(ROUTES, ideal, strict=False) if n == 0]
    return f"no case has {' or '.join(absent)} as its ideal route"


def _left_out(interval: Interval) -> str | None:
    if not interval.left_out:
        return None
    return (
        f"the interval leaves out {interval.left_out} of {interval.resamples} resamples that give "
        "no value of this measure"
    )
