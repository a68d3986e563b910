"""Decisions, labels and scores of the same cases, joined by key and as arrays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from prerouter.core.errors import CombinedError, PrerouterError, StageError
from prerouter.core.records import (
    ROUTES,
    Decision,
    Label,
    PairedScore,
    Route,
    RoutingCase,
    by_cost,
)
from prerouter.measures.statistics import Floats

ORACLE = "oracle"
"""The row of the table that follows the labels."""


@dataclass(frozen=True)
class Arrays:
    """The labelled cases as arrays of length n. Routes are indices into `routes`: ROUTES first,
    then what else was answered."""

    routes: tuple[Route, ...]
    groups: np.ndarray
    models: np.ndarray
    qa: Floats
    labels: np.ndarray
    chosen: dict[str, np.ndarray]
    decided: dict[str, np.ndarray]


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
) -> Arrays:
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
    return Arrays(
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
