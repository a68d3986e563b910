"""label: paired scores to the ideal route, the cheapest among those with the best score."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from typing import cast

from prerouter.core.errors import StageError
from prerouter.core.records import (
    ROUTES,
    Label,
    MissingReason,
    PairedScore,
    Reject,
    Route,
    RoutingCase,
)
from prerouter.measures.missing import MissingArms, by_model, missing_arms
from prerouter.measures.right import RightCounts, right_by_model
from prerouter.runs.stage import Stage, StageRun

# Two means of the same grades can differ in their last binary digits: that is a tie.
_ROUNDING = 1e-9


def label_scores(
    scores: Iterable[PairedScore], min_margin: float, routes: Sequence[Route] = ROUTES
) -> Iterator[Label | Reject]:
    """One Label for each complete pair; a Reject for a pair with a missing arm, compared or not.

    `routes` are those that are compared, from cheap to dear.

    Ideal is the cheapest of the routes with the best score (Chen et al., 2026, arXiv 2605.10235,
    Ideal label: ties go to the cheap route). With `min_margin` > 0, in units of the scale, a
    dearer route has to win by more than that over the cheaper one that it displaces.
    """
    for pair in scores:
        utilities = [pair.arms[route].score for route in routes if route in pair.arms]
        absent = [route.value for route in routes if route not in pair.arms]
        missing = list(missing_arms(pair))
        if missing or absent:
            yield Reject(
                stage="label",
                key=pair.case_id,
                reason="missing_arm",
                detail="; ".join(
                    [f"{route.value} {why.value}" for route, why in missing]
                    + [f"{route} {MissingReason.NOT_GIVEN.value}" for route in absent]
                ),
            )
        else:
            yield _label(pair.case_id, cast(list[float], utilities), min_margin, routes)


def _label(
    case_id: str, utilities: list[float], min_margin: float, routes: Sequence[Route]
) -> Label:
    """`utilities` in the order of `routes`, cheapest first."""
    margin = utilities[-1] - utilities[0]
    if not isfinite(margin):
        raise StageError(
            "label",
            f"{case_id}: the scores {utilities[0]:g} and {utilities[-1]:g} lie too far apart",
            "scores whose difference is a number",
            "give the scores on a narrower scale",
        )
    best = 0
    for dearer in range(1, len(utilities)):
        if utilities[dearer] - utilities[best] > min_margin + _ROUNDING:
            best = dearer
    return Label(case_id=case_id, route=routes[best], margin=margin)


def _run(run: StageRun) -> None:
    models = {
        case.case_id: case.answer_model.name for case in run.read("cases/rows.jsonl", RoutingCase)
    }
    section = run.recipe.label
    routes: Counter[str] = Counter()
    missing: dict[str, MissingArms] = defaultdict(MissingArms)
    right: dict[str, RightCounts] = defaultdict(RightCounts)

    def counted(pairs: Iterable[PairedScore]) -> Iterator[PairedScore]:
        for pair in pairs:
            model = models.get(pair.case_id, "?")
            missing[model].add(pair)
            right[model].add(pair)
            yield pair

    rejects = run.reject_log(flush_every=1000)
    with run.log(Label, lambda label: label.case_id, flush_every=1000) as log:
        run.progress.start("label", len(models))
        scores = counted(run.read(run.recipe.scores_file, PairedScore))
        for result in label_scores(scores, section.min_margin, section.routes):
            run.progress.advance()
            if isinstance(result, Label):
                log.append(result)
                routes[result.route] += 1
            else:
                rejects.append(result)
        unscored = [case for case in models if case not in log.done and case not in rejects.done]
        for case_id in unscored:
            missing[models[case_id]].add(None)
    run.report["labels"] = {route.value: routes[route] for route in section.routes}
    run.report["unlabelled"] = len(rejects.done) + len(unscored)
    run.report["cases_without_scores"] = len(unscored)
    run.report["right_by_model"] = right_by_model(right)
    run.report["missing_by_model_arm_reason"] = by_model(missing)


STAGE = Stage(
    name="label",
    sections=lambda recipe: {"label": recipe.label},
    parents=lambda recipe: ("cases/rows.jsonl", recipe.scores_file),
    run=_run,
)
