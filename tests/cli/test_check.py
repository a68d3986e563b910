"""`prerouter check`: what a run would stumble over is told before it begins."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.cli.check import _not_installed
from prerouter.recipe.recipe import load_recipe
from tests.e2e.runner import prerouter, rows

HARBOUR = "The harbour froze in March of the third year."
FILLER = " ".join(f"Nothing of note befell house number {number}." for number in range(60))


def own_documents(folder: Path, **sections: Any) -> Path:
    """Six documents of the user's own, two questions each, and a recipe over them."""
    questions = []
    (folder / "documents").mkdir()
    for number in range(6):
        mill = f"The mill of parish {number} burned in June."
        body = f"{HARBOUR}\n{FILLER}\n{mill}\n{FILLER}\n"
        (folder / "documents" / f"{number}.txt").write_text(body)
        asked = {"document_path": f"{number}.txt", "document_type": "chronicle"}
        questions += [
            asked | {"question": "When did the harbour freeze?", "evidence": HARBOUR},
            asked | {"question": "What burned, and what froze?", "evidence": [mill, HARBOUR]},
        ]
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(question) + "\n" for question in questions))
    recipe = {
        "name": "mine",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(path),
            "documents": str(folder / "documents"),
            "answer_models": [{"name": "reader", "context_window": 4096}],
        },
        "rag": {"chunk_tokens": 30, "overlap_tokens": 5, "top_k": 1},
        "answer": {"reserved_tokens": 0},
        "score": {"metric": "evidence_recall"},
        **sections,
    }
    written = folder / "mine.yaml"
    written.write_text(yaml.safe_dump(recipe))
    return written


def errors(*arguments: str) -> list[str]:
    done = prerouter(*arguments)
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()


def test_own_documents_with_evidence_are_answered_scored_and_labelled(tmp_path: Path) -> None:
    recipe = str(own_documents(tmp_path))
    checked = prerouter("check", recipe)
    assert checked.returncode == 0, checked.stderr
    assert "stages: cases, answer, score, label" in checked.stdout
    done = prerouter("run", recipe)
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "mine"
    answers = rows(run, "answer/rows.jsonl")
    assert {(answer["route"], bool(answer["text"])) for answer in answers} == {
        ("RAG", True),
        ("LC", True),
    }
    scores = [
        [pair["arms"][route]["score"] for route in ("RAG", "LC")]
        for pair in rows(run, "score/rows.jsonl")
    ]
    # One chunk holds the one passage and never both of two; the window holds the whole document.
    assert scores == [[1.0, 1.0], [0.5, 1.0]] * 6
    assert [label["route"] for label in rows(run, "label/rows.jsonl")] == ["RAG", "LC"] * 6


def test_what_is_seldom_meant_is_told(tmp_path: Path) -> None:
    meant = str(own_documents(tmp_path, split={"group_by": "document"}))
    assert "on two sides" not in prerouter("check", meant).stdout
    told = prerouter(
        "check",
        meant,
        "--set",
        "split.group_by=question",
        "--set",
        "split={train: 0.5, validation: 0.0, test: 0.5}",
    )
    assert told.returncode == 0, told.stderr
    assert "of 6 documents have questions on two sides; split.group_by: document" in told.stdout
    sample = prerouter("check", "recipes/quickstart.yaml", "--set", "score.metric=token_f1")
    assert "score.metric: evidence_recall measures them" in sample.stdout


def test_what_the_table_can_not_serve_is_told_at_once(tmp_path: Path) -> None:
    recipe = str(
        own_documents(
            tmp_path, score={"metric": "token_f1"}, evaluate={}, route={"routers": ["always_rag"]}
        )
    )
    table = tmp_path / "mine.jsonl"
    table.write_text(table.read_text().replace('"evidence"', '"proof"'))
    expected = ["error: answer.reader: ", "error: score.metric: token_f1 "]
    for verb in ("check", "run"):
        lines = errors(verb, recipe)
        told = [line for line in lines if line.startswith("error: ")]
        assert len(told) == len(expected)
        for line, start in zip(told, expected, strict=True):
            assert line.startswith(start)


@pytest.mark.parametrize("verb", ["check", "run"])
def test_a_folder_that_is_no_routers_is_told_before_anything_runs(
    tmp_path: Path, verb: str
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "thesis.tex").touch()
    recipe = own_documents(
        tmp_path,
        teach={"teacher": "guideline"},
        filter={},
        train={"model": "embedded:SmolLM2-135M-Instruct"},
        route={"routers": ["student"]},
        evaluate={},
        publish={"folder": str(taken)},
    )
    lines = errors(verb, str(recipe))
    assert lines == [
        f"error: {taken}: exists and is no router's folder; a new name, or an earlier router to "
        "replace; set publish.folder"
    ]
    assert not (tmp_path / "runs").exists()


def test_every_path_that_is_not_there_is_told(tmp_path: Path) -> None:
    recipe = own_documents(
        tmp_path,
        filter={"traces": str(tmp_path / "traces.jsonl")},
        train={"model": str(tmp_path / "student")},
    )
    overrides = ("--set", f"cases.documents={tmp_path}/books", "--set", f"cases.path={tmp_path}/no")
    places = [line.split(": ")[1] for line in errors("check", str(recipe), *overrides)]
    names = ("no", "books", "traces.jsonl", "student")
    assert places == [f"{tmp_path}/{name}" for name in names]


def test_skip_bad_counts_what_a_run_would_leave_out(tmp_path: Path) -> None:
    traces = tmp_path / "traces.jsonl"
    traces.write_text("no trace\n")
    recipe = str(own_documents(tmp_path, filter={"traces": str(traces)}))
    with (tmp_path / "mine.jsonl").open("a") as table:
        table.write('{"question": ""}\n')
        table.write('{"question": "Who?", "document_tokens": 1e30}\n')
    lines = errors("check", recipe)
    assert [line.split(": ")[1] for line in lines] == [
        f"{tmp_path}/mine.jsonl:13, column question",
        f"{tmp_path}/mine.jsonl:14, column document_tokens",
        f"{traces}:1",
    ]
    done = prerouter("check", recipe, "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert "cases: 12 over 12 questions" in done.stdout
    assert "cases: 2 refused (bad_count 1, empty_question 1)\n" in done.stdout
    assert "filter.traces: 1 refused (unreadable_line 1)\n" in done.stdout


def scored(folder: Path, rows: list[dict[str, Any]], **sections: Any) -> str:
    """A recipe over a table of scores that calibrates logistic regression."""
    path = folder / "mine.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "name": "mine",
        "runs_dir": str(folder / "runs"),
        "cases": {"source": "table", "path": str(path), "answer_models": [{"name": "reader"}]},
        "split": {"train": 0.3, "validation": 0.5, "test": 0.2},
        "route": {"routers": ["logistic_regression"]},
        "calibrate": {"routers": ["logistic_regression"]},
        **sections,
    }
    written = folder / "mine.yaml"
    written.write_text(yaml.safe_dump(recipe))
    return str(written)


def told(*arguments: str) -> str:
    done = prerouter("check", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_too_few_labels_to_calibrate_on_are_told_before_the_training(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"question": f"Who was number {n}?", "rag_score": 0, "lc_score": 1} for n in range(80)
    ]
    recipe = scored(tmp_path, rows)
    assert "calibrate: will refuse" not in told(recipe)
    asked = told(recipe, "--set", "calibrate.min_cases=41")
    assert "calibrate: will refuse: at most 40 of the cases in validation get a label" in asked
    assert "it takes 41;" in asked
    for row in rows[:60]:
        row["answer_model"] = "stranger"
    unseen = told(scored(tmp_path, rows), "--set", "split.unseen_models=[stranger]")
    found = re.search(r"will refuse: at most (\d+) of", unseen)
    assert found is not None
    assert int(found[1]) <= 20
    assert "will refuse" not in told(
        recipe, "--set", "calibrate.min_cases=41", "--set", "calibrate=null"
    )


def test_a_case_without_both_scores_is_none_to_calibrate_on(tmp_path: Path) -> None:
    rows = [{"question": f"Who was number {n}?", "rag_score": 0, "lc_score": 1} for n in range(80)]
    for row in rows[:60]:
        row["lc_score"] = None
    found = re.search(r"will refuse: at most (\d+) of", told(scored(tmp_path, rows)))
    assert found is not None
    assert int(found[1]) <= 20


@pytest.mark.parametrize("grouped", ["document", "component"])
def test_a_split_by_document_that_keeps_nothing_apart_is_told(tmp_path: Path, grouped: str) -> None:
    rows = [{"question": f"Who was number {n}?", "title": f"Volume {n}"} for n in range(40)]
    recipe = scored(tmp_path, rows, split={"group_by": grouped})
    expected = f"split.group_by: {grouped} keeps nothing apart: each of the 40 questions has"
    assert expected in told(recipe)
    assert expected not in told(recipe, "--set", "split.group_by=question")
    rows[0]["title"] = rows[1]["title"]
    assert "keeps nothing apart" not in told(scored(tmp_path, rows, split={"group_by": grouped}))


ANSWERED_BY_A_SERVER: dict[str, Any] = {
    "retrieval": {"milvus": {"uri": "vectors.db"}},
    "answer": {
        "reader": "engine",
        "engine": {
            "kind": "openai",
            "model": "qwen3-32b",
            "base_url": "http://127.0.0.1:1/v1",
            "entropies": "lower_bound",
        },
        "routes": ["RAG", "LONG_RAG", "LC"],
        "entropy_tokens": 30,
        "max_tokens": 64,
    },
    "score": {
        "metric": "evidence_recall",
        "faithfulness": {
            "engine": {"kind": "openai", "model": "judge", "base_url": "http://127.0.0.1:1/v1"}
        },
    },
    "route": {
        "routers": ["always_rag", "edar_prompted"],
        "splits": ["train", "validation", "test"],
        "checks": {"query_types": {"engine": {"kind": "ray", "model": "small"}, "ask_by": "reply"}},
    },
}


def test_the_calls_of_every_retrieving_route_and_of_a_prompted_classifier_are_told(
    tmp_path: Path,
) -> None:
    recipe = str(own_documents(tmp_path, **ANSWERED_BY_A_SERVER))
    shown = told(recipe)
    # Two for each of 12 answers by RAG and by LONG_RAG.
    assert "faithfulness: at most 48 calls of judge through openai" in shown
    assert "route: 12 queries sorted by small through ray, one a question" in shown
    bare = "answer.tokenizers: the tokenizer of reader is looked for on the Hub as qwen3-32b"
    assert bare in shown
    named = told(recipe, "--set", "answer.tokenizers={reader: Qwen/Qwen3-32B}")
    assert bare not in named


def test_all_that_a_recipe_takes_and_is_not_installed_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(own_documents(tmp_path, **ANSWERED_BY_A_SERVER))
    monkeypatch.setattr("prerouter.cli.check.util.find_spec", lambda name: None)
    lines = _not_installed(recipe)
    for package, extra in (("pymilvus", "milvus"), ("ray", "ray")):
        line = f"not installed here: {package} (in prerouter's clone: pip install -e '.[{extra}]')"
        assert line in lines


@pytest.mark.parametrize("key", ["train.sft", "classify.arguments"])
def test_a_tracker_that_is_none_is_told_before_anything_is_paid_for(
    key: str, tmp_path: Path
) -> None:
    section, arguments = key.split(".")
    given = {"train": {"model": "m"}, "filter": {}, "teach": {"teacher": "guideline"}}
    given.setdefault(section, {"model": "m"})[arguments] = {"report_to": "foo"}
    if section == "classify":
        given = {"classify": given["classify"]}
    recipe = str(own_documents(tmp_path, **given))
    for verb in ("check", "run"):
        assert [line.partition(";")[0] for line in errors(verb, recipe)] == [
            f"error: {key}.report_to: foo is no tracker"
        ]


def test_a_student_without_a_system_turn_is_told_before_anything_is_paid_for(
    tmp_path: Path,
) -> None:
    model = tmp_path / "gemma"
    model.mkdir()
    refusing = "{{ raise_exception('none') if messages[0].role == 'system' }}{{ messages }}"
    (model / "chat_template.jinja").write_text(refusing)
    recipe = str(own_documents(tmp_path, classify={"model": str(model)}))
    for verb in ("check", "run"):
        (line,) = errors(verb, recipe)
        assert line.startswith(f"error: classify.model: the chat template of {model} takes no sys")
