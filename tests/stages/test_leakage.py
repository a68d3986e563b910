"""Nothing that is learnt after a case was made can reach a router."""

from __future__ import annotations

import json

import pytest
import yaml

from prerouter.core.protocols import SilentProgress
from prerouter.core.records import (
    Answer,
    Label,
    MetadataSetting,
    PairedScore,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.measures.features import case_features
from prerouter.prompts.render import render_student, render_teacher
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.recipe.teach import TeacherPrompt
from prerouter.routers.guideline import judge
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, label

SENTINEL = "zqxsentinel"
SCORE = 0.123456789


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, list[RoutingCase]]:
    """A run over a table that holds a sentinel in everything that is not metadata."""
    folder = tmp_path_factory.mktemp("planted")
    (folder / "body.txt").write_text(f"A head of forty characters for the case. {SENTINEL} body")
    row = {
        "question": "Who signed the register?",
        "question_id": "a",
        "document_id": "b",
        "document_type": "novel",
        "document_tokens": 900,
        "document_path": "body.txt",
        "answer": f"{SENTINEL} answer",
        "answerable": True,
        "level": f"{SENTINEL} level",
        "context_length": f"{SENTINEL} length",
        "rag_answer": f"{SENTINEL} rag",
        "lc_answer": f"{SENTINEL} lc",
        "rag_score": SCORE,
        "lc_score": SCORE * 2,
    }
    (folder / "rows.jsonl").write_text(json.dumps(row) + "\n")
    recipe = {
        "name": "planted",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "rows.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 4096}],
            "head_characters": 40,
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    loaded = load_recipe(path)
    execute(cases.STAGE, loaded, SilentProgress())
    execute(label.STAGE, loaded, SilentProgress())
    return loaded, list(read_rows(loaded.run_dir / "cases" / "rows.jsonl", RoutingCase))


def test_the_sentinels_were_planted(planted: tuple[Recipe, list[RoutingCase]]) -> None:
    recipe, _ = planted
    run = recipe.run_dir
    [reference] = read_rows(run / "cases" / "references.jsonl", Reference)
    assert SENTINEL in str(reference.answer)
    assert SENTINEL in str(reference.level)
    assert all(SENTINEL in str(a.text) for a in read_rows(run / "cases" / "answers.jsonl", Answer))
    [score] = read_rows(run / "cases" / "scores.jsonl", PairedScore)
    assert score.arms[Route.RAG].score == SCORE
    [found] = read_rows(run / "label" / "rows.jsonl", Label)
    assert found.route is Route.LC


def test_no_router_input_holds_a_sentinel(planted: tuple[Recipe, list[RoutingCase]]) -> None:
    [case] = planted[1]
    shown = [case.model_dump_json(), json.dumps(case_features(case)), str(judge(case))]
    for setting in MetadataSetting:
        for paradigm in ("guided", "direct", "unconstrained"):
            prompt = TeacherPrompt.model_validate({"paradigm": paradigm, "metadata": setting})
            shown.append(str(render_teacher(case, prompt)))
        shown.append(str(render_student(case, "guided", setting)))
        shown.append(str(render_student(case, "compact", setting)))
    for text in shown:
        assert SENTINEL not in text
        assert str(SCORE)[:6] not in text
        assert str(SCORE * 2)[:6] not in text


def test_makers_take_a_case_and_nothing_else(planted: tuple[Recipe, list[RoutingCase]]) -> None:
    recipe, _ = planted
    others = [
        *read_rows(recipe.run_dir / "cases" / "references.jsonl", Reference),
        *read_rows(recipe.run_dir / "cases" / "scores.jsonl", PairedScore),
        *read_rows(recipe.run_dir / "label" / "rows.jsonl", Label),
    ]
    for other in others:
        with pytest.raises(TypeError):
            case_features(other)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            render_student(other, "compact", MetadataSetting.FULL)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            render_teacher(other, TeacherPrompt())  # type: ignore[arg-type]


def test_identifiers_are_not_shown(planted: tuple[Recipe, list[RoutingCase]]) -> None:
    [case] = planted[1]
    marked = case.model_copy(
        update={"case_id": SENTINEL, "question_id": SENTINEL, "group_id": SENTINEL}
    )
    marked = marked.model_copy(
        update={"document": marked.document.model_copy(update={"document_id": SENTINEL})}
    )
    assert SENTINEL not in str(render_student(marked, "guided", MetadataSetting.FULL))
    assert SENTINEL not in str(render_student(marked, "compact", MetadataSetting.FULL))
    assert SENTINEL not in json.dumps(case_features(marked))


def test_type_names_stay_apart(planted: tuple[Recipe, list[RoutingCase]]) -> None:
    # A case has no field that a label, a score or a gold answer would fit into.
    fields = set(RoutingCase.model_fields)
    learnt = set(Reference.model_fields) | set(PairedScore.model_fields) | set(Label.model_fields)
    assert fields & learnt <= {"case_id", "question_id"}
