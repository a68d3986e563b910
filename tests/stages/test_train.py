from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Rationale,
    Route,
    RoutingCase,
    Split,
    Step,
    Trace,
)
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.recipe.train import WatchSection, WeightsSection
from prerouter.runs.stage import Stage, execute
from prerouter.stages import route, train
from prerouter.stages.pipeline import stages_of

from ..e2e.runner import make_recipe
from ..tiny_model import make_tiny_model

CASE = RoutingCase(
    case_id="case",
    question_id="question",
    group_id="group",
    question="Who?",
    document=DocumentProfile(document_id="d"),
    answer_model=AnswerModel(name="reader"),
)


def recipe(model: str, routers: list[str], **sections: Any) -> Recipe:
    data: dict[str, Any] = {
        "name": "run",
        "cases": {"source": "table", "path": "mine.csv"},
        "teach": {"teacher": "guideline"},
        "filter": {},
        "train": {"model": model},
        "route": {"routers": routers},
        **sections,
    }
    return Recipe.model_validate(data)


@pytest.mark.parametrize(
    ("stage", "routers", "reads"),
    [
        (train.STAGE, ["student"], True),
        (route.STAGE, ["student_before", "student"], True),
        # What was trained stands in the run: the model before it is not looked at.
        (route.STAGE, ["student"], False),
    ],
)
def test_a_model_folder_whose_weights_change_is_another_input(
    tmp_path: Path, stage: Stage, routers: list[str], reads: bool
) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(100))
    before = stage.inputs(recipe(str(tmp_path), routers))
    weights.write_bytes(bytes(99) + b"1")
    os.utime(weights, ns=(1, 1))
    assert (stage.inputs(recipe(str(tmp_path), routers)) != before) is reads


def test_a_trace_of_another_form_is_one_line_that_says_what_to_do() -> None:
    found = recipe("tiny", ["student"])
    assert found.train is not None
    half = Trace(
        case_id="case",
        teacher="people",
        rationale=Rationale(steps={Step.EFFICIENCY: "RAG is cheap."}),
        decision=Route.RAG,
        prompt_hash="none",
    )
    with pytest.raises(StageError) as refused:
        train.make_examples(
            [half], {"case": CASE}, {"question": Split.TRAIN}, found.train, without=()
        )
    assert refused.value.line.startswith("train, trace case|people|0: has another form")
    assert "run `prerouter filter` again" in refused.value.line


def test_labels_are_read_where_training_looks_beyond_the_kept_traces() -> None:
    plain = recipe("tiny", ["student"])
    assert "label/rows.jsonl" not in train.STAGE.parents(plain)
    assert plain.train is not None
    for changes in ({"watch": WatchSection()}, {"weights": WeightsSection(by="margin")}):
        section = plain.train.model_copy(update=changes)
        asked = plain.model_copy(update={"train": section})
        assert "label/rows.jsonl" in train.STAGE.parents(asked)


@pytest.mark.parametrize(
    ("watch", "calibrated", "looked_at"),
    [
        # The mix's first by itself: a student from before the mode was asked for stands.
        ({}, None, None),
        ({}, ["decision_tree"], None),
        ({}, ["decision_tree", "student_decide"], "decide"),
        ({"mode": "explain"}, ["student_decide"], "explain"),
    ],
)
def test_the_mode_that_is_published_is_looked_at_unless_told(
    watch: dict[str, Any], calibrated: list[str] | None, looked_at: str | None
) -> None:
    found = recipe(
        "tiny",
        ["decision_tree", "student", "student_decide"],
        train={"model": "tiny", "watch": watch, "mix": {"explain": 1, "decide": 1}},
        calibrate=calibrated and {"routers": calibrated},
    )
    section = train.trained_as(found)
    assert section is not None
    assert section.watch is not None
    assert section.watch.mode == looked_at
    # Another mode is another student: what stands of it is trained anew.
    assert train.STAGE.sections(found)["train"] == section


@pytest.mark.parametrize("weights", [{}, {"lora": {"r": 4}}])
def test_a_look_really_generates_and_tells_what_it_found(
    weights: dict[str, Any], tmp_path: Path
) -> None:
    """A student of random weights writes no trace in four tokens: every look says so."""
    path = make_recipe(tmp_path, make_tiny_model(tmp_path / "tiny"))
    data = yaml.safe_load(path.read_text())
    for name in ("calibrate", "evaluate", "publish"):
        del data[name]
    data["train"] |= {
        "watch": {"cases": 3, "every": 1, "mode": "explain"},
        "validation_examples": 2,
        **weights,
    }
    del data["train"]["mix"]
    path.write_text(yaml.safe_dump({**data, "route": {"routers": ["student"], "max_tokens": 4}}))
    run = load_recipe(path)
    for stage in stages_of(run)[:-1]:
        outcome = execute(stage, run, SilentProgress())
    report = outcome.manifest.report
    assert report["validation_examples"] == 2
    assert [(look["step"], look["parse_rate"]) for look in report["watched"]] == [(1, 0), (2, 0)]
    # Nothing parsed at either look: of equals, the likelier.
    assert report["exported_step"] == 2
