"""Routers that `route` fits: their decisions, and what is kept beside them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Decision, Label, RoutingCase, Split, SplitAssignment
from prerouter.measures.importances import Importances
from prerouter.recipe.recipe import Recipe
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.probe import ProbeRouter
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import StageRun, execute
from prerouter.stages import cases, label
from prerouter.stages.pipeline import stages_of
from prerouter.stages.route import fit_classical

from ..tiny_model import make_tiny_model
from .tables import table_recipe, with_task_types

SPLIT = {"train": 0.5, "validation": 0.1, "test": 0.4}
CLASSICAL = ("decision_tree", "random_forest", "logistic_regression", "gradient_boosting")


def run(recipe: Recipe) -> None:
    for stage in stages_of(recipe):
        execute(stage, recipe, SilentProgress())


def decided(recipe: Recipe, router: str) -> list[Decision]:
    rows = read_rows(recipe.run_dir / "route/rows.jsonl", Decision)
    return [row.model_copy(update={"seconds": 0.0}) for row in rows if row.router == router]


def labelled(recipe: Recipe) -> list[tuple[RoutingCase, Label]]:
    labels = {each.case_id: each for each in read_rows(recipe.run_dir / "label/rows.jsonl", Label)}
    every = read_rows(recipe.run_dir / "cases/rows.jsonl", RoutingCase)
    return [(case, labels[case.case_id]) for case in every if case.case_id in labels]


def asked(recipe: Recipe) -> list[RoutingCase]:
    sides = {
        each.question_id: each.split
        for each in read_rows(recipe.run_dir / "cases/split.jsonl", SplitAssignment)
    }
    cases = read_rows(recipe.run_dir / "cases/rows.jsonl", RoutingCase)
    return [case for case in cases if sides[case.question_id] is Split.TEST]


@pytest.fixture(scope="module")
def classical(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    recipe = table_recipe(
        tmp_path_factory.mktemp("classical"),
        80,
        split=SPLIT,
        route={"routers": list(CLASSICAL)},
    )
    recipe = with_task_types(recipe)
    run(recipe)
    return recipe


@pytest.mark.parametrize("kind", CLASSICAL)
def test_a_kept_baseline_decides_as_it_did(classical: Recipe, kind: str) -> None:
    cases = asked(classical)
    loaded = ClassicalRouter.load(classical.run_dir / "route/routers" / kind)
    again = [each.model_copy(update={"seconds": 0.0}) for each in loaded.route(cases)]
    assert again == decided(classical, kind)
    assert len(again) == len(cases) > 30


def test_a_baseline_sees_what_the_student_sees(tmp_path: Path) -> None:
    recipe = table_recipe(
        tmp_path,
        80,
        split=SPLIT,
        filter={"traces": tmp_path / "none.jsonl"},
        train={"model": "embedded:SmolLM2-135M-Instruct", "metadata": "head_only"},
        route={"routers": ["decision_tree"]},
    )
    recipe = with_task_types(recipe)
    for stage in (cases, label):
        execute(stage.STAGE, recipe, SilentProgress())
    pairs = labelled(recipe)
    (tmp_path / "route").mkdir()
    run_of = StageRun(recipe, tmp_path / "route", SilentProgress())
    router = fit_classical(run_of, "decision_tree", pairs, pairs)
    # The task type alone tells the route, and the student's prompt hides it.
    assert len({decision.p_lc for decision in router.route([case for case, _ in pairs])}) < 20
    found = json.loads((tmp_path / "route/routers/decision_tree/importances.json").read_text())
    assert {each["feature"]: each["mean"] for each in found["features"]}["task_type"] == 0


@pytest.mark.parametrize("kind", CLASSICAL)
def test_what_it_rests_on_lies_beside_it(classical: Recipe, kind: str) -> None:
    path = classical.run_dir / "route/routers" / kind / "importances.json"
    found = Importances.model_validate(json.loads(path.read_text("utf-8")))
    # The last question has no label, wherever it stands.
    assert len(asked(classical)) - 2 <= found.cases <= len(asked(classical))
    # LC is ideal for the questions with an odd number, and their level tells it.
    assert found.features[0].feature == "task_type"
    assert found.auc == 1.0


def test_the_probe_router_of_a_model_by_name(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = make_tiny_model(tmp_path_factory.mktemp("tiny"))
    recipe = table_recipe(
        tmp_path,
        40,
        split=SPLIT,
        route={
            "routers": ["probe_router"],
            "dtype": "float32",
            "probe": {
                "model": str(model),
                "mode": "decide",
                "c": [0.01, 1.0],
                "folds": 2,
                "max_cases": 12,
            },
        },
    )
    run(recipe)
    manifest = read_manifest(recipe.run_dir / "route")
    assert manifest is not None
    assert manifest.report["probe_router_learnt_from"] == 12 < manifest.report["training_pairs"]
    cases = asked(recipe)
    decisions = decided(recipe, "probe_router")
    assert [each.case_id for each in decisions] == [case.case_id for case in cases]
    assert {(each.model, each.calls) for each in decisions} == {(str(model), 1)}
    assert all(each.p_lc is not None for each in decisions)
    loaded = ProbeRouter.load(recipe.run_dir / "route/routers/probe_router")
    again = [each.model_copy(update={"seconds": 0.0}) for each in loaded.route(cases)]
    assert [each.route for each in again] == [each.route for each in decisions]
    assert list((recipe.run_dir / "route/states").glob("*/*.safetensors"))
