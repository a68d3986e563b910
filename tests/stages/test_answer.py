"""Answers by a model: missing is missing, kills are safe, a failed call is made again."""

from __future__ import annotations

import json
import shutil
import weakref
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.core.errors import CombinedError, InputError, StageError
from prerouter.core.protocols import Completion, GenerationRequest, SilentProgress
from prerouter.core.records import ROUTES, Answer, MissingReason, Reject, Route
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.made_of import MADE_OF
from prerouter.runs.manifest import Manifest, read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import answer, cases, score
from tests.answering.scripted import ScriptedModel, question_of, shown, window
from tests.e2e.runner import prerouter
from tests.e2e.test_pipeline import KILL_AFTER_ROWS

DOCUMENTS = {
    "harbour.txt": b"\xef\xbb\xbf" + b"The harbour froze in March.\r\n" * 40,
    "mill.txt": "Die Mühle brannte im Juni. ".encode() * 40,
}
QUESTIONS = [
    ("q0", "When did the harbour freeze?", "harbour.txt"),
    ("q1", "Wann brannte die Mühle im Juni?", "mill.txt"),
    ("q2", "Is the harbour cut off?", "harbour.txt"),
    ("q3", "Zeppelin?", "mill.txt"),
    ("q4", "Is the harbour down?", "harbour.txt"),
    ("q5", "Who owns the mill?", None),
]


def reply(request: GenerationRequest, *, healed: bool = False) -> Completion:
    question = question_of(request)
    if "cut off" in question:
        return Completion("It is", "length", 50, 20)
    if "down" in question and not healed:
        return Completion("", "error", error="HTTP 503")
    return Completion(f"Answer to: {question}", "stop", 50, 4)


def healed_reply(request: GenerationRequest) -> Completion:
    return reply(request, healed=True)


class Recorded(ScriptedModel):
    """Writes down what it was asked, in a file that outlives a kill."""

    def __init__(self, asked: Path, *, healed: bool = False) -> None:
        super().__init__(healed_reply if healed else reply)
        self._asked = asked

    def generate(self, requests: Any, sampling: Any) -> Any:
        with self._asked.open("a") as file:
            file.writelines(f"{question_of(request)}\n" for request in requests)
        return super().generate(requests, sampling)


def write_recipe(folder: Path, **changes: Any) -> Path:
    for name, data in DOCUMENTS.items():
        (folder / name).write_bytes(data)
    rows = [
        {"question_id": id_, "question": question, "answer": "March", "document_id": path or "none"}
        | ({"document_path": path} if path else {})
        for id_, question, path in QUESTIONS
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    settings = {"reader": "engine", "engine": engine, "max_tokens": 20, "max_failed_share": 0.5}
    recipe = {
        "name": "answered",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "rows.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 800}],
        },
        "rag": {"chunk_tokens": 40, "overlap_tokens": 5, "top_k": 2},
        "retrieval": {"vector_ratio": 0},
        "answer": {key: it for key, it in (settings | changes).items() if it is not None},
        "score": {},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def play(monkeypatch: pytest.MonkeyPatch, engine: ScriptedModel) -> None:
    monkeypatch.setattr("prerouter.stages.answer.start_engine", lambda section: engine)
    monkeypatch.setattr("prerouter.stages.answer.load_tokens", lambda *given: window().tokens)


def run(
    path: Path, monkeypatch: pytest.MonkeyPatch, engine: ScriptedModel, *changes: str
) -> Recipe:
    recipe = load_recipe(path, changes)
    play(monkeypatch, engine)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(answer.STAGE, recipe, SilentProgress())
    return recipe


def stop_before_the_first_call(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(section: object) -> ScriptedModel:
        raise KeyboardInterrupt

    monkeypatch.setattr("prerouter.stages.answer.start_engine", stopped)
    with pytest.raises(KeyboardInterrupt):
        execute(answer.STAGE, recipe, SilentProgress())


def answers_of(recipe: Recipe) -> dict[tuple[str, Route], Answer]:
    found = read_rows(recipe.run_dir / "answer" / "rows.jsonl", Answer)
    return {(each.case_id.partition("/")[0], each.route): each for each in found}


def manifest_of(recipe: Recipe) -> Manifest:
    manifest = read_manifest(recipe.run_dir / "answer")
    assert manifest is not None
    return manifest


def test_every_case_has_two_rows_and_missing_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run(write_recipe(tmp_path), monkeypatch, ScriptedModel(reply))
    found = answers_of(recipe)
    assert list(found) == [(id_, route) for id_, _, _ in QUESTIONS for route in ROUTES]
    assert found["q0", Route.RAG].text == "Answer to: When did the harbour freeze?"
    assert found["q3", Route.RAG].text == "The document does not tell."
    assert found["q3", Route.LC].text == "Answer to: Zeppelin?"
    missing = {id_: each.missing for (id_, route), each in found.items() if route is Route.LC}
    assert missing == {
        "q0": None,
        "q1": None,
        "q2": MissingReason.CUT_OFF,
        "q3": None,
        "q4": MissingReason.CALL_FAILED,
        "q5": MissingReason.NO_DOCUMENT,
    }
    report = manifest_of(recipe).report
    assert report["missing_by_arm_reason"] == {
        f"{route} {reason}": 1
        for route in ("LC", "RAG")
        for reason in ("call_failed", "cut_off", "no_document")
    }
    assert report["declined_with_nothing_to_read"] == {"RAG": 1}
    assert report["cached_prompt_share"] == {"reader": 0.25}
    assert manifest_of(recipe).rejects == {"call_failed": 2, "cut_off": 2}
    execute(score.STAGE, recipe, SilentProgress())


def test_the_document_is_read_without_its_mark_and_with_its_line_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedModel(reply)
    recipe = run(write_recipe(tmp_path), monkeypatch, engine)
    body = DOCUMENTS["harbour.txt"].decode("utf-8-sig")
    assert [body] in [shown(request) for request in engine.requests]
    rag = answers_of(recipe)["q0", Route.RAG]
    for span in rag.retrieved:
        assert body[span.start : span.end].startswith("The harbour froze")


def test_a_document_that_was_changed_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = load_recipe(write_recipe(tmp_path))
    play(monkeypatch, ScriptedModel(reply))
    execute(cases.STAGE, recipe, SilentProgress())
    (tmp_path / "mill.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=r"mill.txt: was changed since the cases were made"):
        execute(answer.STAGE, recipe, SilentProgress())


def test_over_the_share_allowed_it_fails_and_asks_again_for_failed_calls_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path, max_failed_share=0.3), tmp_path / "asked.txt"
    with pytest.raises(StageError, match=r"4 of 10 were refused.*answer.max_failed_share"):
        run(path, monkeypatch, Recorded(asked))
    asked.unlink()
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    assert asked.read_text().splitlines() == ["Is the harbour down?"] * 2
    assert answers_of(recipe)["q4", Route.RAG].text == "Answer to: Is the harbour down?"
    assert manifest_of(recipe).rejects == {"cut_off": 2}


@pytest.mark.parametrize("count", [1, 8])
def test_killed_in_the_middle_the_rerun_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    recipe = run(write_recipe(whole), monkeypatch, Recorded(whole / "asked.txt", healed=True))
    path = write_recipe(killed)
    engine = f"""
from pathlib import Path
from prerouter.stages import answer
from tests.answering.scripted import window
from tests.stages.test_answer import Recorded
answer.start_engine = lambda section: Recorded(Path({str(killed / "asked.txt")!r}), healed=True)
answer.load_tokens = lambda *given: window().tokens
"""
    execute(cases.STAGE, load_recipe(path), SilentProgress())
    died = prerouter("answer", str(path), code=KILL_AFTER_ROWS.format(count=count) + engine)
    assert died.returncode == -9
    assert not (killed / "runs" / "answered" / "answer" / "manifest.json").exists()
    done = prerouter("answer", str(path), code=engine)
    assert done.returncode == 0, done.stderr
    assert plain(killed) == plain(whole)
    again = (killed / "runs" / "answered" / "answer" / "rejects.jsonl").read_bytes()
    assert again == (recipe.run_dir / "answer" / "rejects.jsonl").read_bytes()


def plain(folder: Path) -> list[Answer]:
    """The rows without the seconds that were measured on the way."""
    rows = read_rows(folder / "runs" / "answered" / "answer" / "rows.jsonl", Answer)
    return [row.model_copy(update={"seconds": None}) for row in rows]


def test_what_is_answered_is_not_asked_for_twice_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked.txt"
    path = write_recipe(tmp_path)
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    folder = recipe.run_dir / "answer"
    (folder / "manifest.json").unlink()
    rows = (folder / "rows.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "rows.jsonl").write_bytes(b"".join(rows[2:]) + rows[0][:20])
    asked.unlink()
    execute(answer.STAGE, recipe, SilentProgress())
    # The torn line, and those that were never written: both routes of the first question.
    assert asked.read_text().splitlines() == [QUESTIONS[0][1]] * 2
    assert len(answers_of(recipe)) == 12


def test_a_reject_that_a_kill_tore_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = run(write_recipe(tmp_path), monkeypatch, ScriptedModel(reply))
    folder = recipe.run_dir / "answer"
    rejects = (folder / "rejects.jsonl").read_bytes()
    assert rejects
    (folder / "manifest.json").unlink()
    (folder / "rejects.jsonl").write_bytes(rejects + rejects[:20])
    play(monkeypatch, ScriptedModel(healed_reply))
    execute(answer.STAGE, recipe, SilentProgress())
    assert len(answers_of(recipe)) == 12


def test_a_finished_stage_starts_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healed = Recorded(tmp_path / "asked.txt", healed=True)
    recipe = run(write_recipe(tmp_path), monkeypatch, healed)
    (recipe.run_dir / "answer" / "manifest.json").unlink()

    def refuse(section: object) -> None:
        raise AssertionError("a model was started")

    monkeypatch.setattr("prerouter.stages.answer.start_engine", refuse)
    execute(answer.STAGE, recipe, SilentProgress())
    assert len(answers_of(recipe)) == 12


def test_failed_calls_of_a_finished_stage_are_made_again_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    recipe = run(path, monkeypatch, Recorded(asked))
    assert answers_of(recipe)["q4", Route.RAG].missing is MissingReason.CALL_FAILED
    assert execute(answer.STAGE, recipe, SilentProgress()).action == "passed over"
    asked.unlink()
    play(monkeypatch, Recorded(asked, healed=True))
    execute(answer.STAGE, recipe, SilentProgress(), retry_failed=True)
    assert asked.read_text().splitlines() == ["Is the harbour down?"] * 2
    assert answers_of(recipe)["q4", Route.RAG].text == "Answer to: Is the harbour down?"
    assert manifest_of(recipe).rejects == {"cut_off": 2}
    order = [(id_, route) for id_, _, _ in QUESTIONS for route in ROUTES]
    assert list(answers_of(recipe)) == order


def test_a_server_that_moved_costs_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path)
    run(path, monkeypatch, Recorded(tmp_path / "asked.txt", healed=True))
    moved = load_recipe(
        path,
        [
            "answer.engine.base_url=http://127.0.0.1:2/v1",
            "answer.engine.concurrency=3",
            "answer.max_failed_share=0.9",
            "answer.documents_per_call=4",
            "retrieval.cache_dir=elsewhere",
            "retrieval.batch_size=1",
        ],
    )
    assert execute(answer.STAGE, moved, SilentProgress()).action == "passed over"
    warmer = load_recipe(path, ["answer.temperature=0.5"])
    assert "answer" in execute(answer.STAGE, warmer, SilentProgress()).why


def test_a_third_route_asks_for_its_own_answers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    run(path, monkeypatch, Recorded(asked, healed=True))
    asked.unlink()
    more = ["answer.routes=[RAG, LC, LONG_RAG]", "answer.long_rag.unit_tokens=60"]
    recipe = load_recipe(path, [*more, "answer.long_rag.top_k=1"])
    assert recipe.routes == (Route.RAG, Route.LONG_RAG, Route.LC)
    engine = Recorded(asked, healed=True)
    play(monkeypatch, engine)
    execute(answer.STAGE, recipe, SilentProgress())
    found = answers_of(recipe)
    assert list(found) == [(id_, route) for id_, _, _ in QUESTIONS for route in recipe.routes]
    long = found["q0", Route.LONG_RAG]
    (unit,) = long.retrieved
    # One unit of 60 tokens, where RAG has two chunks of 40.
    assert unit.end - unit.start > max(s.end - s.start for s in found["q0", Route.RAG].retrieved)
    assert set(asked.read_text().splitlines()) <= {question for _, question, _ in QUESTIONS}
    assert len(asked.read_text().splitlines()) <= len(QUESTIONS)


def test_other_units_ask_anew_though_stopped_before_the_first_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path, routes=["RAG", "LONG_RAG", "LC"]), tmp_path / "asked.txt"
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    # One reply is cut off whatever the units: a reject that is no failed call.
    assert answers_of(recipe)["q2", Route.LONG_RAG].missing is MissingReason.CUT_OFF
    changed = load_recipe(path, ["answer.long_rag.unit_tokens=60", "answer.long_rag.top_k=1"])
    stop_before_the_first_call(changed, monkeypatch)
    asked.unlink()
    play(monkeypatch, Recorded(asked, healed=True))
    execute(answer.STAGE, changed, SilentProgress())
    again = asked.read_text().splitlines()
    # Of each question with a document and something found, once: the other routes stand.
    assert sorted(again) == sorted(set(again))
    assert QUESTIONS[2][1] in again


ANOTHER_RETRIEVAL = "retrieval={vector_ratio: 0, unit: long, unit_tokens: 60}"
FOUND_AGAIN = sorted(question for _, question, path in QUESTIONS if path and "Zep" not in question)


def test_another_retrieval_costs_the_whole_documents_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    before = answers_of(run(path, monkeypatch, Recorded(asked, healed=True)))
    changed = load_recipe(path, [ANOTHER_RETRIEVAL])
    stop_before_the_first_call(changed, monkeypatch)
    asked.unlink()
    play(monkeypatch, Recorded(asked, healed=True))
    assert execute(answer.STAGE, changed, SilentProgress()).action == "done"
    # Once each, on the one route that retrieves.
    assert sorted(asked.read_text().splitlines()) == FOUND_AGAIN
    found = answers_of(changed)
    assert list(found) == list(before)
    assert found["q0", Route.RAG].retrieved != before["q0", Route.RAG].retrieved
    assert found["q0", Route.LC] == before["q0", Route.LC]


@pytest.mark.parametrize(
    ("changes", "again"), [([], []), ([ANOTHER_RETRIEVAL], FOUND_AGAIN)], ids=["same", "another"]
)
def test_answers_of_an_earlier_version_are_known_by_what_they_were_begun_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changes: list[str], again: list[str]
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    asked.write_text("")
    # It held the whole section, and no file told what the answers were made of.
    folder = recipe.run_dir / "answer"
    (folder / MADE_OF).unlink()
    assert recipe.retrieval is not None
    whole = recipe.retrieval.model_dump(mode="json") | {"cache_dir": "runs/vectors"}
    manifest = json.loads((folder / "manifest.json").read_bytes())
    manifest["fingerprint"]["sections"]["retrieval"] = whole
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "started.json").write_text(json.dumps(manifest["fingerprint"]))
    execute(answer.STAGE, load_recipe(path, changes), SilentProgress())
    assert sorted(asked.read_text().splitlines()) == again


def test_answers_that_tell_not_what_they_were_made_of_are_of_their_own_cases_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    everything = asked.read_text()
    asked.unlink()
    (recipe.run_dir / "answer" / MADE_OF).unlink()
    run(path, monkeypatch, Recorded(asked, healed=True), "rag.top_k=1")
    assert sorted(asked.read_text().splitlines()) == sorted(everything.splitlines())


THREE_ROUTES = ["RAG", "LONG_RAG", "LC"]


@pytest.mark.parametrize(
    ("change", "touched"),
    [
        ("rag.top_k=1", {Route.RAG}),
        ("rag.chunk_tokens=30", {Route.RAG, Route.LONG_RAG}),
        ("retrieval={vector_ratio: 0, unit: long, unit_tokens: 60}", {Route.RAG}),
        ("answer.long_rag.top_k=1", {Route.LONG_RAG}),
        ("cases.head_characters=30", set()),
    ],
)
def test_a_change_costs_the_routes_that_it_touches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, touched: set[Route]
) -> None:
    path = write_recipe(tmp_path, routes=THREE_ROUTES)
    before = answers_of(run(path, monkeypatch, ScriptedModel(healed_reply)))
    changed = load_recipe(path, [change])
    play(monkeypatch, ScriptedModel(healed_reply))
    execute(cases.STAGE, changed, SilentProgress())
    if touched:
        stop_before_the_first_call(changed, monkeypatch)
    model = ScriptedModel(healed_reply)
    run(path, monkeypatch, model, change)
    after = answers_of(changed)
    assert list(after) == list(before)
    # Of each route that is touched, each question with a document and something found.
    assert sorted(map(question_of, model.requests)) == sorted(FOUND_AGAIN * len(touched))
    kept = [key for key in before if key[1] not in touched]
    assert [after[key] for key in kept] == [before[key] for key in kept]


def test_another_setting_of_rag_in_a_run_of_its_own_takes_the_answers_along(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    first = run(path, monkeypatch, Recorded(asked, healed=True))
    asked.unlink()
    shutil.copytree(first.run_dir / "answer", first.runs_dir / "top1" / "answer")
    engine = Recorded(asked, healed=True)
    second = run(path, monkeypatch, engine, "name=top1", "rag.top_k=1")
    assert sorted(asked.read_text().splitlines()) == FOUND_AGAIN
    assert answers_of(second)["q0", Route.LC] == answers_of(first)["q0", Route.LC]
    assert len(answers_of(second)["q0", Route.RAG].retrieved) == 1
    assert len(answers_of(first)["q0", Route.RAG].retrieved) == 2


def test_other_rows_cost_their_own_answers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, asked = write_recipe(tmp_path), tmp_path / "asked.txt"
    run(path, monkeypatch, Recorded(asked, healed=True))
    asked.unlink()
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    rows[0]["question"] = "When did the harbour thaw?"
    rows[2]["answer"] = "April"
    rows[4]["task_type"] = "location"
    new = rows[0] | {"question_id": "q6", "question": "Did the harbour freeze in March?"}
    del rows[3]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [*rows, new]))
    (tmp_path / "mill.txt").write_text("Die Mühle brannte im Juli. " * 40)
    recipe = run(path, monkeypatch, Recorded(asked, healed=True))
    again = [rows[0]["question"], new["question"], QUESTIONS[1][1]]
    assert sorted(asked.read_text().splitlines()) == sorted(again * 2)
    order = [(id_, r) for id_ in ("q0", "q1", "q2", "q4", "q5", "q6") for r in ROUTES]
    assert list(answers_of(recipe)) == order


def test_names_with_one_engine_start_it_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = ({"kind": "transformers", "model": model} for model in ("one", "other"))
    path = write_recipe(tmp_path, engine=None, engines={"a": one, "b": other, "c": one})
    started, alive = [], weakref.WeakSet[ScriptedModel]()

    def start(section: Any) -> ScriptedModel:
        assert not alive
        model = ScriptedModel(reply)
        alive.add(model)
        started.append(section.model)
        return model

    names = "cases.answer_models=[{name: a}, {name: b}, {name: c}]"
    recipe = load_recipe(path, [names])
    play(monkeypatch, ScriptedModel(reply))
    monkeypatch.setattr("prerouter.stages.answer.start_engine", start)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(answer.STAGE, recipe, SilentProgress())
    assert started == ["one", "other"]
    assert manifest_of(recipe).report["cached_prompt_share"].keys() == {"a", "b", "c"}


def test_other_prompts_or_another_retrieval_make_new_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path)
    run(path, monkeypatch, ScriptedModel(reply))
    changed = load_recipe(path, ["retrieval.unit=long"])
    outcome = execute(answer.STAGE, changed, SilentProgress())
    assert "retrieval" in outcome.why
    monkeypatch.setattr("prerouter.stages.answer.prompt_hash", lambda form: f"new {form}")
    assert "prompt answer_lc" in execute(answer.STAGE, changed, SilentProgress()).why


def test_rejects_keep_the_reply_and_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run(write_recipe(tmp_path), monkeypatch, ScriptedModel(reply))
    rejects = list(read_rows(recipe.run_dir / "answer" / "rejects.jsonl", Reject))
    assert [(r.key, r.reason, r.raw, r.transient) for r in rejects] == [
        ("q2/reader|RAG", "cut_off", "It is", False),
        ("q2/reader|LC", "cut_off", "It is", False),
        ("q4/reader|RAG", "call_failed", None, True),
        ("q4/reader|LC", "call_failed", None, True),
    ]
    assert rejects[2].detail == "HTTP 503"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"engine": None, "engines": {"raeder": {"kind": "transformers", "model": "m"}}},
            "names 'raeder', which no case has",
        ),
        (
            {"engine": None, "engines": {"raeder": {"kind": "transformers", "model": "m"}}},
            "names no engine for the answer model reader",
        ),
        ({"tokenizers": {"other": "m"}}, "names 'other', which no case has"),
        ({"max_tokens": 600}, "800 tokens of reader, less 600 for the reply and 256 reserved"),
    ],
)
def test_engines_are_checked_against_the_cases(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    path = write_recipe(tmp_path, **changes)
    with pytest.raises(CombinedError) as caught:
        execute(cases.STAGE, load_recipe(path), SilentProgress())
    assert any(problem in line for line in caught.value.lines)


def test_one_engine_does_not_answer_for_two_models(tmp_path: Path) -> None:
    models = "[{name: reader}, {name: other}]"
    recipe = load_recipe(write_recipe(tmp_path), [f"cases.answer_models={models}"])
    with pytest.raises(CombinedError, match="the cases have 2 answer models: reader, other"):
        execute(cases.STAGE, recipe, SilentProgress())


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"engine": None}, "needs an `engine`, or `engines` by answer model"),
        (
            {"engines": {"reader": {"kind": "transformers", "model": "m"}}},
            "needs an `engine`, or `engines` by answer model",
        ),
        ({"reader": "evidence"}, "reader `evidence` reads no engine, max_failed_share, max_tokens"),
        ({"retriever": "bm25"}, "reader `engine` reads no retriever"),
    ],
)
def test_keys_that_do_not_go_together_are_refused(
    tmp_path: Path, changes: dict[str, Any], problem: str
) -> None:
    with pytest.raises(CombinedError) as caught:
        load_recipe(write_recipe(tmp_path, **changes))
    assert any(problem in line for line in caught.value.lines)


def test_an_engine_needs_retrieval(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    path.write_text(
        "\n".join(
            line
            for line in path.read_text().splitlines()
            if "vector" not in line and line != "retrieval:"
        )
    )
    with pytest.raises(CombinedError, match=r"answer\.reader engine needs `retrieval`"):
        load_recipe(path)


def test_check_tells_the_calls(tmp_path: Path) -> None:
    checked = prerouter("check", str(write_recipe(tmp_path)))
    assert checked.returncode == 0, checked.stderr
    assert "answer: 12 calls of m through openai for reader" in checked.stdout
