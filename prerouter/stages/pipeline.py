"""The verbs in their order, and which of them a recipe asks for."""

from __future__ import annotations

from prerouter.recipe.recipe import Recipe
from prerouter.runs.stage import Stage
from prerouter.stages import (
    answer,
    calibrate,
    cases,
    classify,
    dataset,
    evaluate,
    faithfulness,
    filter,
    judge,
    label,
    profile,
    publish,
    route,
    score,
    teach,
    train,
)

VERBS: dict[str, Stage] = {
    stage.name: stage
    for stage in (
        cases.STAGE,
        profile.STAGE,
        answer.STAGE,
        judge.STAGE,
        score.STAGE,
        faithfulness.STAGE,
        label.STAGE,
        teach.STAGE,
        filter.STAGE,
        dataset.STAGE,
        train.STAGE,
        classify.STAGE,
        route.STAGE,
        calibrate.STAGE,
        evaluate.STAGE,
        publish.STAGE,
    )
}


def stages_of(recipe: Recipe) -> list[Stage]:
    """The stages that the recipe has sections for, in order. `cases` and `label` always run."""
    asked = {
        "cases": True,
        "label": True,
        "profile": recipe.profile,
        "answer": recipe.answer,
        "judge": recipe.score and recipe.score.judge,
        "score": recipe.score,
        "faithfulness": recipe.score and recipe.score.faithfulness,
        "teach": recipe.teach,
        "filter": recipe.filter,
        "dataset": recipe.dataset,
        "train": recipe.train,
        "classify": recipe.classify,
        "route": recipe.route,
        "calibrate": recipe.calibrate,
        "evaluate": recipe.evaluate,
        "publish": recipe.publish,
    }
    return [stage for name, stage in VERBS.items() if asked[name]]
