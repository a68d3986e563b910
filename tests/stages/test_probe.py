"""A probe study from a run's files to its table, with a tiny model."""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prerouter.cli.main import main
from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.measures.probes import ProbeMeasure, ProbeResult
from prerouter.recipe.probe import ProbeStudy
from prerouter.reporting.sections.probes import read_probes
from prerouter.runs.stage import execute
from prerouter.stages import probe
from prerouter.stages.pipeline import stages_of
from prerouter.stages.probe import StudyOutcome, run_study

from ..tiny_model import make_tiny_model
from .tables import table_recipe, with_task_types


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    recipe = table_recipe(
        tmp_path_factory.mktemp("run"),
        60,
        split={"train": 0.6, "validation": 0.1, "test": 0.3},
        route={"routers": ["decision_tree"], "splits": ["train", "test"]},
    )
    recipe = with_task_types(recipe)
    for stage in stages_of(recipe):
        execute(stage, recipe, SilentProgress())
    return recipe.run_dir


@pytest.fixture(scope="module")
def study(finished_run: Path, tiny_model: Path) -> ProbeStudy:
    row = {"model": str(tiny_model)}
    return ProbeStudy.model_validate(
        {
            "name": "study",
            "seed": 3,
            "runs_dir": finished_run.parent,
            "run": finished_run,
            "rows": [
                row | {"name": "direct", "prompt": "direct"},
                row | {"name": "compact", "prompt": "compact", "own_route": "decision_tree"},
            ],
            "c": [1e-3, 1.0],
            "folds": 3,
            "resamples": 100,
            "min_cases": 20,
        }
    )


@pytest.fixture(scope="module")
def outcome(study: ProbeStudy) -> StudyOutcome:
    return run_study(study, SilentProgress())


def changed(study: ProbeStudy, **changes: Any) -> ProbeStudy:
    return ProbeStudy.model_validate(study.model_dump() | changes)


class NoModel:
    def __init__(self, *_: object, **__: object) -> None:
        raise AssertionError("a model was loaded")


def found(outcome: StudyOutcome, row: str, target: str) -> ProbeResult:
    (result,) = [r for r in outcome.results if (r.row, r.target) == (row, target)]
    return result


def test_each_row_is_probed_for_each_target(study: ProbeStudy, outcome: StudyOutcome) -> None:
    assert [(each.row, each.target) for each in outcome.results] == [
        (row.name, target) for row in study.rows for target in study.targets
    ]
    # Both rows' prompts differ, and no two cases' are alike.
    cases = Counter(each.train_cases + each.test_cases for each in outcome.results)
    assert outcome.computed == 2 * max(cases)
    assert {(each.layer, each.layers) for each in outcome.results} == {(1, 2)}


def test_missing_labels_are_counted_and_one_class_is_refused(outcome: StudyOutcome) -> None:
    label, kind = found(outcome, "direct", "ideal_label"), found(outcome, "direct", "document_type")
    assert kind.train_cases + kind.test_cases == (
        label.train_cases + label.test_cases + label.left_out.get("no_target", 0)
    )
    for measured in kind.measures.values():
        assert measured.value is None
        assert "one class only, report" in str(measured.note)


def test_the_task_type_that_a_prompt_shows_is_in_its_state(outcome: StudyOutcome) -> None:
    result = found(outcome, "compact", "ideal_label")
    accuracy, majority, selectivity = (
        result.measures[name].value
        for name in (ProbeMeasure.ACCURACY, ProbeMeasure.MAJORITY, ProbeMeasure.SELECTIVITY)
    )
    assert accuracy is not None
    assert majority is not None
    assert selectivity is not None
    assert result.c in (1e-3, 1.0)


def test_own_routes_are_a_routers_or_a_forced_choice(
    study: ProbeStudy, outcome: StudyOutcome
) -> None:
    decided = found(outcome, "compact", "own_route")
    assert set(decided.classes) <= {"RAG", "LC"}
    assert decided.left_out == {}
    forced = found(outcome, "direct", "own_route")
    assert forced.train_cases == found(outcome, "direct", "task_type").train_cases


def test_a_second_time_nothing_is_done(
    study: ProbeStudy, outcome: StudyOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TransformersModel", NoModel)
    again = run_study(study, SilentProgress())
    assert again.passed_over
    assert again.results == outcome.results


def test_another_measure_of_the_same_states_loads_no_model(
    study: ProbeStudy, outcome: StudyOutcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probe, "TransformersModel", NoModel)
    other = run_study(changed(study, resamples=120), SilentProgress())
    assert (other.passed_over, other.computed) == (False, 0)
    for mine, theirs in zip(outcome.results, other.results, strict=True):
        assert (mine.c, mine.memorised) == (theirs.c, theirs.memorised)
    # And back again, from the same states: the very same numbers.
    assert run_study(study, SilentProgress()).results == outcome.results


def test_a_study_from_nothing_repeats_exactly(study: ProbeStudy, outcome: StudyOutcome) -> None:
    assert run_study(changed(study, name="again"), SilentProgress()).results == outcome.results


def test_all_layers_make_a_curve(study: ProbeStudy, outcome: StudyOutcome) -> None:
    curve = changed(study, name="curve", layer="all", targets=["ideal_label"], max_questions=30)
    results = run_study(curve, SilentProgress()).results
    assert [each.layer for each in results] == [0, 1, 2] * 2
    with (curve.folder / "curve.csv").open() as lines:
        rows = list(csv.DictReader(lines))
    assert [int(row["layer"]) for row in rows] == [0, 1, 2] * 2
    assert {row["layers"] for row in rows} == {"2"}
    # All prompts end alike, so the embedding of their last token tells nothing.
    assert {row["selectivity"] for row in rows if row["layer"] == "0"} != {""}
    assert {row["auc"] for row in rows if row["layer"] == "0"} == {"0.5"}


def test_one_layer_leaves_a_curve_that_the_report_reads(
    study: ProbeStudy, outcome: StudyOutcome
) -> None:
    points = read_probes(study.folder / "curve.csv")
    assert [(p.row, p.target, p.layer, p.accuracy, p.test_cases) for p in points] == [
        (r.row, r.target, r.layer, r.measures[ProbeMeasure.ACCURACY].value, r.test_cases)
        for r in outcome.results
    ]
    # A document type that all cases share is refused, in words.
    assert {bool(p.notes) for p in points if p.accuracy is None} == {True}


def test_documents_on_both_sides_are_told(outcome: StudyOutcome) -> None:
    result = found(outcome, "direct", "ideal_label")
    assert any("test documents also stand in training" in note for note in result.notes)


def test_max_questions_draws_questions_of_both_splits(study: ProbeStudy) -> None:
    few = changed(study, name="few", max_questions=8, targets=["ideal_label"], min_cases=10)
    results = run_study(few, SilentProgress()).results
    for each in results:
        assert each.train_cases + each.left_out.get("no_target", 0) <= 16 + 2
        assert each.test_cases <= 16
        assert any("only" in note for note in each.notes) == (each.test_cases < 10)


def test_a_run_that_is_not_finished_or_was_altered_is_told(
    study: ProbeStudy, tmp_path: Path
) -> None:
    with pytest.raises(StageError, match="needs cases, which is not finished"):
        run_study(changed(study, run=tmp_path, runs_dir=tmp_path / "runs"), SilentProgress())
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(study.run, copy)
    rows = copy / "label" / "rows.jsonl"
    rows.write_text(rows.read_text().replace('"LC"', '"RAG"'))
    with pytest.raises(StageError, match="was altered"):
        run_study(changed(study, run=copy, runs_dir=tmp_path / "runs"), SilentProgress())


def test_a_run_with_no_case_to_probe_is_told(study: ProbeStudy, tmp_path: Path) -> None:
    recipe = table_recipe(tmp_path, 12, split={"train": 0, "validation": 0.99, "test": 0.01})
    for stage in stages_of(recipe):
        execute(stage, recipe, SilentProgress())
    with pytest.raises(StageError, match="holds no case in its train and test splits"):
        run_study(
            changed(study, run=recipe.run_dir, name="none", targets=["ideal_label"]),
            SilentProgress(),
        )


def test_prompts_that_the_model_can_not_read_are_counted(study: ProbeStudy) -> None:
    row = study.rows[0].model_dump() | {"prompt": "guided"}
    long = changed(study, name="long", rows=[row], targets=["ideal_label"])
    (result,) = run_study(long, SilentProgress()).results
    # Its guidelines take more than the 2,048 tokens of a model with so small a vocabulary.
    assert result.left_out["no_state"] > 90
    assert result.measures[ProbeMeasure.ACCURACY].value is None
    assert "0 training cases" in str(result.measures[ProbeMeasure.ACCURACY].note)
    assert "cases left out: no state" in (long.folder / "table.md").read_text("utf-8")


def test_the_command_prints_the_table_and_where_it_lies(
    study: ProbeStudy,
    outcome: StudyOutcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "study.yaml"
    # JSON is YAML.
    path.write_text(study.model_dump_json())
    monkeypatch.setattr(sys, "argv", ["prerouter", "probe", str(path)])
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code
    text = capsys.readouterr().out
    assert "Probes for ideal label" in text
    assert "unchanged, passed over" in text
    assert str(study.folder / "table.md") in text
    stored = json.loads((study.folder / "table.json").read_text())
    assert [ProbeResult.model_validate(each) for each in stored] == list(outcome.results)
    monkeypatch.setattr(sys, "argv", ["prerouter", "probe", str(path), "--set", "rows.0.model=x"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 1
