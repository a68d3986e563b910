"""What a table can't serve is told for every stage at once, before the first of them runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.records import Split, SplitAssignment
from prerouter.recipe.base import validate
from prerouter.recipe.cases import LaraSource
from prerouter.recipe.recipe import Recipe
from prerouter.sources.lara import load_lara
from prerouter.sources.served import unserved
from prerouter.sources.table import load_table

SPLITS = [
    SplitAssignment(question_id=split.value, group_id="d", split=split)
    for split in (Split.TRAIN, Split.TEST)
]
LEARNT: dict[str, Any] = {"teach": {"teacher": "guideline"}, "filter": {}, "train": {"model": "m"}}
EVALUATED: dict[str, Any] = {"route": {"routers": ["always_rag"]}, "evaluate": {}}
ANSWERS = {"rag_answer": "yes", "lc_answer": "no"}


def complaints(
    folder: Path,
    row: dict[str, Any],
    sections: dict[str, Any],
    splits: list[SplitAssignment] = SPLITS,
) -> list[str]:
    (folder / "a.txt").write_text("The harbour froze in March.")
    path = folder / "mine.jsonl"
    path.write_text(json.dumps({"question": "When?", "answer_model": "m"} | row))
    data = {"name": "mine", "cases": {"source": "table", "path": str(path)}, **sections}
    recipe = validate(Recipe, data, "r.yaml")
    assert recipe.cases.source == "table"
    loaded = load_table(recipe.cases, recipe.rag)
    return [error.line for error in unserved(recipe, loaded, splits)]


@pytest.mark.parametrize(
    ("row", "sections"),
    [
        ({}, {}),
        ({"rag_score": 0, "lc_score": 1}, LEARNT | EVALUATED),
        ({"answer": "March", **ANSWERS}, {"score": {}}),
        ({"answer": "B", **ANSWERS}, {"score": {"metric": "choice"}}),
        ({"answerable": False, **ANSWERS}, {"score": {"metric": "choice"}}),
        ({"evidence": "in March", **ANSWERS}, {"score": {"metric": "evidence_recall"}}),
        (
            {"document_path": "a.txt", "evidence": "in March"},
            {"answer": {}, "score": {"metric": "evidence_recall"}},
        ),
        ({"document_path": "a.txt", "answerable": False}, {"answer": {}}),
    ],
)
def test_what_a_table_serves_is_let_pass(
    tmp_path: Path, row: dict[str, Any], sections: dict[str, Any]
) -> None:
    assert complaints(tmp_path, row, sections) == []


@pytest.mark.parametrize(
    ("row", "sections", "places"),
    [
        ({"answer": "March"}, {"score": {}}, ["score: there are no RAG", "score: there are no LC"]),
        ({"answer": "March", "rag_answer": "?"}, {"score": {}}, ["score: there are no LC answers"]),
        (ANSWERS, {"score": {}}, ["score.metric: token_f1"]),
        (
            {"answer": "March", **ANSWERS},
            {"score": {"metric": "choice"}},
            ["score.metric: choice finds in no question"],
        ),
        (
            {"answer": "March", **ANSWERS},
            {"score": {"metric": "evidence_recall"}},
            ["score.metric: evidence_recall"],
        ),
        ({"evidence": "in March"}, {"answer": {}}, ["answer: the cases bring no document"]),
        ({"document_path": "a.txt"}, {"answer": {}}, ["answer.reader: the evidence reader"]),
        ({}, LEARNT, ["label: no case has scores of both routes"]),
        ({"rag_score": 1}, EVALUATED, ["label: no case has scores of both routes"]),
    ],
)
def test_what_a_table_can_not_serve_is_told(
    tmp_path: Path, row: dict[str, Any], sections: dict[str, Any], places: list[str]
) -> None:
    lines = complaints(tmp_path, row, sections)
    assert len(lines) == len(places)
    for line, place in zip(lines, places, strict=True):
        assert line.startswith(place)


def test_all_of_it_comes_at_once(tmp_path: Path) -> None:
    sections = LEARNT | EVALUATED | {"answer": {}, "score": {}}
    places = [line.split(":")[0] for line in complaints(tmp_path, {}, sections, splits=[])]
    assert places == ["answer", "answer.reader", "score.metric", "train", "evaluate.split"]


def test_routers_that_learn_need_a_train_split(tmp_path: Path) -> None:
    routers = ["always_rag", "task_majority", "decision_tree"]
    sections = {"route": {"routers": routers}, "evaluate": {}}
    scored = {"rag_score": 0, "lc_score": 1}
    [line] = complaints(tmp_path, scored, sections, splits=SPLITS[1:])
    assert line.startswith("route.routers task_majority, decision_tree: the train split holds no")
    assert complaints(tmp_path, scored, sections) == []


EDAR: dict[str, Any] = {
    "route": {"routers": ["always_rag", "edar"], "checks": {"tau": 1.2}},
    "answer": {"reader": "engine", "engine": {"kind": "transformers", "model": "m"},
               "entropy_tokens": 30},
    "retrieval": {},
}  # fmt: skip


def table_of(folder: Path, kinds: list[str | None]) -> tuple[dict[str, Any], list[SplitAssignment]]:
    """A table of questions with these task types, all on the training side, and its recipe."""
    (folder / "a.txt").write_text("The harbour froze in March.")
    rows = [
        {"question": f"{n}?", "question_id": f"q{n}", "document_path": "a.txt"}
        | ({"task_type": kind} if kind else {})
        for n, kind in enumerate(kinds)
    ]
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    models = [{"name": "m", "context_window": 4096}]
    cases = {"source": "table", "path": str(path), "answer_models": models}
    sides = [
        SplitAssignment(question_id=f"q{n}", group_id="d", split=Split.TRAIN)
        for n in range(len(kinds))
    ]
    return {"name": "mine", "cases": cases, **EDAR}, sides


@pytest.mark.parametrize(
    ("kinds", "synthesis", "complaint"),
    [
        (["location", "comparison"], ["comparison"], None),
        (["location", "summary"], ["comparison"], "names 'comparison', and no question is of such a"
         " type; some, not all, of location, summary"),
        (["location", "summary"], ["comparison", "summary"], None),
        (["location", "comparison"], ["comparison", "location"], "leaves one kind of query only"),
        ([None, None], ["comparison"], "no case has one; a source with task types"),
    ],
)  # fmt: skip
def test_edar_learns_from_task_types_that_there_are(
    tmp_path: Path, kinds: list[str | None], synthesis: list[str], complaint: str | None
) -> None:
    data, sides = table_of(tmp_path, kinds)
    data["route"]["checks"] = {"tau": 1.2, "query_types": {"synthesis": synthesis}}
    recipe = validate(Recipe, data, "r.yaml")
    assert recipe.cases.source == "table"
    lines = [e.line for e in unserved(recipe, load_table(recipe.cases, recipe.rag), sides)]
    assert len(lines) == (complaint is not None)
    assert all(str(complaint) in line for line in lines)


def test_a_threshold_is_chosen_on_a_split_that_has_questions(tmp_path: Path) -> None:
    data, sides = table_of(tmp_path, ["location", "comparison"])
    data["route"] = {"routers": ["edar", "edar_unclassified"]}
    recipe = validate(Recipe, data, "r.yaml")
    assert recipe.cases.source == "table"
    loaded = load_table(recipe.cases, recipe.rag)
    (error,) = unserved(recipe, loaded, sides)
    assert error.line.startswith("route.checks.split: the validation split holds no question")
    assert "route.checks.tau" in error.line
    places = [e.place for e in unserved(recipe, loaded, [])]
    assert "route.routers edar" in places


def test_lara_holds_neither_evidence_nor_choices(lara_dir: Path) -> None:
    cases = {"source": "lara", "path": str(lara_dir / "clone")}
    data = {"name": "mine", "cases": cases, "answer": {}, "score": {"metric": "choice"}}
    # Its hallucination questions could be answered and scored; that is no reason to go on.
    recipe = validate(Recipe, data, "r.yaml")
    assert isinstance(recipe.cases, LaraSource)
    errors = unserved(recipe, load_lara(recipe.cases, recipe.rag), SPLITS)
    assert [error.place for error in errors] == ["answer.reader", "score.metric"]
