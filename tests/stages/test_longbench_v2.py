"""LongBench-v2 as the stages have it: its documents become files, its choices stay behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prerouter.core.protocols import Completion, GenerationRequest, SilentProgress
from prerouter.core.records import DocumentFile, MetadataSetting, RoutingCase, SplitAssignment
from prerouter.measures.features import case_features
from prerouter.prompts.render import render_student
from prerouter.recipe.recipe import Recipe
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.sources.text_files import body_of
from prerouter.stages import answer, cases, label, score
from tests.answering.scripted import ScriptedModel, block, question_of, window

LETTERS = "ABCD"


def recipe(folder: Path) -> Recipe:
    records = [
        {
            "_id": f"q{number}",
            "domain": "Multi-Document QA",
            "sub_domain": "Legal",
            "difficulty": "hard",
            "length": "medium",
            "question": f"What does part {number} rule?",
            **{f"choice_{letter}": f"zqxchoice {letter}" for letter in LETTERS},
            "answer": LETTERS[number % 4],
            "context": f"Part {number // 2}. " + "The court\r\nfinds for “nobody”. " * 50,
        }
        for number in range(8)
    ]
    path = folder / "data.json"
    path.write_text(json.dumps(records))
    source = {
        "source": "longbench_v2",
        "path": str(path),
        "answer_models": [{"name": "reader", "context_window": 4096}],
    }
    return Recipe.model_validate(
        {
            "name": "lb",
            "runs_dir": str(folder / "runs"),
            "cases": source,
            "split": {"train": 0, "validation": 0, "test": 1},
            "rag": {"chunk_tokens": 40, "overlap_tokens": 5, "top_k": 2},
            "retrieval": {"vector_ratio": 0},
            "answer": {
                "reader": "engine",
                "engine": {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"},
            },
            "score": {"metric": "choice"},
        }
    )


def made(asked: Recipe) -> str:
    return execute(cases.STAGE, asked, SilentProgress()).action


def test_bodies_become_files_that_the_answer_stage_reads(tmp_path: Path) -> None:
    asked = recipe(tmp_path)
    assert made(asked) == "done"
    files = list(read_rows(asked.run_dir / "cases" / "documents.jsonl", DocumentFile))
    assert len(files) == 4
    bodies = {body_of(asked.document_root, file) for file in files}
    records = json.loads((tmp_path / "data.json").read_text())
    assert bodies == {record["context"] for record in records}
    found = list(read_rows(asked.run_dir / "cases" / "split.jsonl", SplitAssignment))
    assert {assignment.split for assignment in found} == {"test"}
    assert made(asked) == "passed over"


@pytest.mark.parametrize("damage", ["gone", "changed"])
def test_a_body_that_was_lost_is_written_again(tmp_path: Path, damage: str) -> None:
    asked = recipe(tmp_path)
    made(asked)
    file = next(read_rows(asked.run_dir / "cases" / "documents.jsonl", DocumentFile))
    path = asked.document_root / file.path
    path.unlink() if damage == "gone" else path.write_text("other")
    assert made(asked) == "done"
    assert body_of(asked.document_root, file).startswith("Part")


def test_nothing_of_the_choices_is_shown_to_a_router(tmp_path: Path) -> None:
    asked = recipe(tmp_path)
    made(asked)
    for case in read_rows(asked.run_dir / "cases" / "rows.jsonl", RoutingCase):
        shown = str(render_student(case, "guided", MetadataSetting.FULL)) + str(case_features(case))
        assert "zqxchoice" not in shown
        assert case.question in shown


def test_choices_are_shown_to_the_answering_model_and_its_letters_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(request: GenerationRequest) -> Completion:
        # LC is right of all but the last two questions; RAG says A, and once nothing.
        number = int(question_of(request).split()[3])
        if "<document>" in request.messages[1].content:
            text = LETTERS[number % 4] if number < 6 else "B"
        else:
            text = "The document does not tell." if number == 3 else "The answer is A."
        return Completion(text, "stop", 50, 4)

    model = ScriptedModel(reply)
    monkeypatch.setattr("prerouter.stages.answer.start_engine", lambda section: model)
    monkeypatch.setattr("prerouter.stages.answer.load_tokens", lambda *given: window().tokens)
    asked = recipe(tmp_path)
    for stage in (cases.STAGE, answer.STAGE, score.STAGE, label.STAGE):
        report = execute(stage, asked, SilentProgress()).manifest.report
    assert len(model.requests) == 16
    for request in model.requests:
        assert block(request, "choices") == [f'{x}: "zqxchoice {x}"' for x in LETTERS]
    assert report["right_by_model"] == {
        "reader": {"cases": 8, "all": 2, "only RAG": 0, "only LC": 4, "none": 2}
    }
    assert report["labels"] == {"RAG": 4, "LC": 4}
