"""How well routers decide: Pre-Route, section 1: Measures (Chen et al., 2026, arXiv 2605.10235).

Every measure is a function of sums over documents, so that the intervals of all routers come from
one matrix product. Balanced accuracy, LC recall and the gap recovered are not the paper's: they
show what accuracy hides where most labels are RAG.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

import numpy as np

from prerouter.core.errors import CombinedError, PrerouterError, StageError
from prerouter.core.records import (
    ROUTES,
    Decision,
    Label,
    MissingReason,
    PairedScore,
    Record,
    Route,
    RoutingCase,
    by_cost,
)
from prerouter.measures.missing import MissingArms
from prerouter.measures.statistics import (
    Floats,
    Interval,
    Measured,
    NoInterval,
    percentile_interval,
    resampled_sums,
)

ORACLE = "oracle"
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
    router is meant to be fixed or not. `scale` is that of QA.
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


@dataclass(frozen=True)
class _Arrays:
    """The labelled cases as arrays of length n. Routes are indices into `routes`: ROUTES first,
    then what else was answered."""

    routes: tuple[Route, ...]
    groups: np.ndarray
    models: np.ndarray
    qa: Floats
    labels: np.ndarray
    chosen: dict[str, np.ndarray]
    decided: dict[str, np.ndarray]


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
                )
            )
    return rows


def check_decisions(
    decisions_by_router: Mapping[str, Sequence[Decision]], cases: Sequence[RoutingCase]
) -> None:
    wanted = {case.case_id for case in cases}
    errors: list[PrerouterError] = []
    if len(wanted) != len(cases):
        errors.append(StageError("evaluate", "a case stands twice", "each case_id once"))
    for router, decisions in decisions_by_router.items():
        place = f"evaluate: router {router}"
        if router == ORACLE:
            errors.append(StageError(place, "is the name of the oracle's row", "another name"))
        counts = Counter(decision.case_id for decision in decisions)
        problems = (
            ("no decision for", sorted(wanted - counts.keys())),
            ("decisions for cases that are not asked for:", sorted(counts.keys() - wanted)),
            ("several decisions for", sorted(key for key, n in counts.items() if n > 1)),
        )
        for problem, ids in problems:
            if ids:
                errors.append(
                    StageError(
                        place,
                        f"has {problem} {len(ids)} (of {len(cases)} asked), {ids[0]} among them",
                        "one decision (a route or a failure) for each case",
                        "route these cases anew",
                    )
                )
    if errors:
        raise CombinedError(errors)


def to_arrays(
    decisions_by_router: Mapping[str, Sequence[Decision]],
    labels: Sequence[Label],
    scores: Sequence[PairedScore],
    cases: Sequence[RoutingCase],
    fallback: Route,
) -> _Arrays:
    label_of = {label.case_id: label for label in labels}
    score_of = {score.case_id: score for score in scores}
    labelled = [case for case in cases if case.case_id in label_of]
    answered = {arm for case in labelled if (s := score_of.get(case.case_id)) for arm in s.arms}
    routes = (*ROUTES, *by_cost(answered.difference(ROUTES)))
    qa = np.empty((len(labelled), len(routes)))
    unscored: list[str] = []
    for row, case in enumerate(labelled):
        score = score_of.get(case.case_id)
        arms = [score.arms.get(route) if score else None for route in routes]
        values = [arm.score if arm else None for arm in arms]
        if None in values:
            unscored.append(case.case_id)
        qa[row] = np.array(values, dtype=np.float64)
    if unscored:
        raise StageError(
            "evaluate",
            f"{len(unscored)} cases have a label but not a score of every route, "
            f"{unscored[0]} among them",
            "a label only where every route has a score",
            "label again from these scores",
        )
    index = {route: place for place, route in enumerate(routes)}
    ideal = np.array([index[label_of[case.case_id].route] for case in labelled], dtype=np.intp)
    chosen: dict[str, np.ndarray] = {}
    decided: dict[str, np.ndarray] = {}
    for router, decisions in decisions_by_router.items():
        route_of = {decision.case_id: decision.route for decision in decisions}
        taken = [route_of[case.case_id] for case in labelled]
        unknown = [route for route in taken if route is not None and route not in index]
        if unknown:
            raise StageError(
                f"evaluate: router {router}",
                f"sends {len(unknown)} cases to {unknown[0].value}, which has no score",
                ", ".join(route.value for route in routes),
                "name that route in answer.routes",
            )
        chosen[router] = np.array([index[route or fallback] for route in taken], dtype=np.intp)
        decided[router] = np.array([route is not None for route in taken], dtype=bool)
    chosen[ORACLE], decided[ORACLE] = ideal, np.ones(len(labelled), dtype=bool)
    names = list(dict.fromkeys(case.group_id for case in labelled))
    number = {name: place for place, name in enumerate(names)}
    return _Arrays(
        routes=routes,
        groups=np.array([number[case.group_id] for case in labelled], dtype=np.intp),
        models=np.array([case.answer_model.name for case in labelled], dtype=object),
        qa=qa,
        labels=ideal,
        chosen=chosen,
        decided=decided,
    )


def common_scale(
    scores: Sequence[PairedScore], cases: Sequence[RoutingCase]
) -> tuple[float, float]:
    wanted = {case.case_id for case in cases}
    scales = {(s.low, s.high, s.judge): None for s in scores if s.case_id in wanted}
    if len(scales) != 1:
        shown = ", ".join(f"{judge} {low:g} to {high:g}" for low, high, judge in scales)
        raise StageError(
            "evaluate",
            f"scores by several judges or scales: {shown}" if scales else "no score of these cases",
            "one judge and one scale in one table",
        )
    low, high, _ = next(iter(scales))
    # A resample may draw every case of the worst group as often as there are cases.
    if not np.isfinite(2.0 * len(cases) ** 2 * max(abs(low), abs(high))):
        raise StageError(
            "evaluate",
            f"scores on a scale of {low:g} to {high:g} add up to no number",
            next_step="give the scores on a narrower scale",
        )
    return low, high


def _group_sums(arrays: _Arrays, inside: np.ndarray) -> tuple[np.ndarray, Floats]:
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
