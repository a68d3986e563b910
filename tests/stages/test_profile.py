"""The generated metadata setting: inferred texts and nothing of the source's, asked for once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import MetadataSetting, Reject, RoutingCase
from prerouter.measures.features import case_features
from prerouter.prompts.profile import InferredProfile
from prerouter.prompts.render import render_student, render_teacher
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.recipe.teach import TeacherPrompt
from prerouter.routers.guideline import judge
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, profile, route, teach, train
from tests.cli.tokens import SILENT, make_tokenizer
from tests.e2e.runner import prerouter
from tests.e2e.test_pipeline import KILL_AFTER_ROWS

from .profiler import Profiler

SENTINEL = "zqxsentinel"
QUESTIONS = ["Who wrote it", "How much was paid", "Is prose enough", "Where was it cut", "Why so"]


def write_recipe(folder: Path, questions: list[str], **changes: Any) -> Path:
    """Annotated questions for two answer models, which a small model is to describe anew."""
    rows = [
        {
            "question": question,
            "question_id": f"q{number}",
            "document_id": f"d{number}",
            "title": f"{SENTINEL} title",
            "document_type": f"{SENTINEL} type",
            "task_type": f"{SENTINEL} task",
            "document_tokens": 900,
            "head": f"Head number {number}.",
        }
        for number, question in enumerate(questions)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = {"kind": "openai", "model": "small", "base_url": "http://127.0.0.1:1/v1"}
    recipe = {
        "name": "profiled",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "rows.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 4096}, {"name": "other"}],
        },
        "profile": {"engine": engine, "max_failed_share": 0.5, **changes},
        "teach": {
            "engine": engine,
            "prompt": {"metadata": "generated"},
            "splits": ["train", "validation", "test"],
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def infer(
    folder: Path, monkeypatch: pytest.MonkeyPatch, questions: list[str], **changes: Any
) -> tuple[Recipe, Profiler]:
    recipe = load_recipe(write_recipe(folder, questions, **changes))
    engine = Profiler(folder / "asked.txt")
    monkeypatch.setattr("prerouter.stages.profile.start_engine", lambda section: engine)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(profile.STAGE, recipe, SilentProgress())
    return recipe, engine


def cases_in(recipe: Recipe, file: str) -> list[RoutingCase]:
    return list(read_rows(recipe.run_dir / file, RoutingCase))


def test_inferred_texts_take_the_place_of_the_sources(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, engine = infer(tmp_path, monkeypatch, QUESTIONS[:2])
    before, after = (cases_in(recipe, file) for file in ("cases/rows.jsonl", recipe.cases_file))
    assert recipe.cases_file == "profile/rows.jsonl"
    assert [case.case_id for case in after] == [case.case_id for case in before]
    for old, new in zip(before, after, strict=True):
        assert old.document.title == f"{SENTINEL} title"
        assert new.document.title == f"Title of: {new.question}"
        assert (new.document.type, new.task_type) == ("report", None)
        assert new.document.head == old.document.head
        assert new.answer_model == old.answer_model
    # Two answer models, one question: one call.
    assert len(after) == 4
    assert sorted(engine.asked.read_text().splitlines()) == sorted(QUESTIONS[:2])
    assert engine.sampling is not None
    assert engine.sampling.temperature == 0
    assert list(engine.sampling.schema or ()) != []


def test_what_fails_is_missing_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, _ = infer(tmp_path, monkeypatch, QUESTIONS)
    missing = {
        case.question_id: (case.document.title, case.document.type, case.task_type)
        for case in cases_in(recipe, "profile/rows.jsonl")
        if case.document.title is None
    }
    assert missing == {"q2": (None, None, None), "q3": (None, None, None)}
    manifest = read_manifest(recipe.run_dir / "profile")
    assert manifest is not None
    assert manifest.rejects == {"cut_off": 1, "no_json": 1}
    assert manifest.report["profiles"] == 3
    assert manifest.report["cases_without_profile"] == 4
    assert manifest.report["not_told"] == {"title": 0, "document_type": 0, "task_type": 3}
    rejects = list(read_rows(recipe.run_dir / "profile" / "rejects.jsonl", Reject))
    assert [(reject.key, reject.raw) for reject in rejects] == [
        ("q2", "It is a report."),
        ("q3", '{"title": "Title of: Where was'),
    ]


def test_more_than_the_share_allowed_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StageError, match=r"2 of 5 were refused.*profile.max_failed_share"):
        infer(tmp_path, monkeypatch, QUESTIONS, max_failed_share=0.3)
    assert read_manifest(tmp_path / "runs" / "profiled" / "profile") is None


def test_a_raised_limit_and_a_server_that_moved_ask_for_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StageError, match=r"2 of 5 were refused"):
        infer(tmp_path, monkeypatch, QUESTIONS, max_failed_share=0.3)
    asked = tmp_path / "asked.txt"
    asked.unlink()
    moved = "profile.engine.base_url=http://127.0.0.1:2/v1"
    recipe = load_recipe(tmp_path / "recipe.yaml", ["profile.max_failed_share=0.5", moved])
    execute(profile.STAGE, recipe, SilentProgress())
    assert not asked.exists()
    recipe = load_recipe(tmp_path / "recipe.yaml", ["profile.max_tokens=99"])
    with pytest.raises(StageError, match=r"2 of 5 were refused"):
        execute(profile.STAGE, recipe, SilentProgress())
    assert len(asked.read_text().splitlines()) == 5


def test_a_failed_call_is_made_again_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = tmp_path / "asked.txt"
    with pytest.raises(StageError, match="1 of 3 were refused"):
        infer(tmp_path, monkeypatch, ["One", "Two is down", "Three"], max_failed_share=0.0)
    asked.unlink()
    recipe = load_recipe(tmp_path / "recipe.yaml")
    healed = Profiler(asked, healed=True)
    monkeypatch.setattr("prerouter.stages.profile.start_engine", lambda section: healed)
    execute(profile.STAGE, recipe, SilentProgress())
    assert asked.read_text() == "Two is down\n"
    profiles = read_rows(recipe.run_dir / "profile" / "profiles.jsonl", InferredProfile)
    assert [found.question_id for found in profiles] == ["q0", "q1", "q2"]


def test_nothing_annotated_reaches_a_prompt_or_a_feature(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, engine = infer(tmp_path, monkeypatch, QUESTIONS)
    assert SENTINEL in (recipe.run_dir / "cases" / "rows.jsonl").read_text()
    shown = list(engine.prompts)
    for case in cases_in(recipe, recipe.cases_file):
        shown += [case.model_dump_json(), json.dumps(case_features(case)), str(judge(case))]
        shown.append(str(render_student(case, "guided", MetadataSetting.GENERATED)))
        shown.append(str(render_student(case, "compact", MetadataSetting.GENERATED)))
        prompt = TeacherPrompt(metadata=MetadataSetting.GENERATED)
        shown.append(str(render_teacher(case, prompt)))
    assert any("Title of: Who wrote it" in text for text in shown)
    assert not [text for text in shown if SENTINEL in text]


def test_the_teacher_is_shown_the_inferred_texts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, _ = infer(tmp_path, monkeypatch, QUESTIONS[:2])
    teacher = Profiler(tmp_path / "taught.txt")
    monkeypatch.setattr("prerouter.stages.teach.start_engine", lambda section: teacher)
    # The profiler writes no trace, so every reply is refused: what matters is what it was asked.
    with pytest.raises(StageError, match=r"teach.max_failed_share"):
        execute(teach.STAGE, recipe, SilentProgress())
    assert len(teacher.prompts) == 4
    for prompt in teacher.prompts:
        assert "Title of: " in prompt
        assert SENTINEL not in prompt


def test_every_stage_that_shows_cases_depends_on_the_profiles(tmp_path: Path) -> None:
    recipe = load_recipe(write_recipe(tmp_path, QUESTIONS))
    for stage in (teach.STAGE, train.STAGE, route.STAGE):
        assert "profile/rows.jsonl" in stage.parents(recipe), stage.name
        assert "cases/rows.jsonl" not in stage.parents(recipe), stage.name


def test_check_and_estimate_know_of_the_pass(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path, QUESTIONS[:2])
    tokenizer = str(make_tokenizer(tmp_path / "tokenizer"))
    checked = prerouter("check", str(path))
    assert "profile: 2 calls of small through openai" in checked.stdout
    early = prerouter("estimate", str(path), "--tokenizer", tokenizer)
    assert early.returncode == 1
    assert "run `prerouter" in early.stderr
    recipe, _ = infer(tmp_path, monkeypatch, QUESTIONS[:2])
    done = prerouter("estimate", str(path), "--tokenizer", tokenizer, "--json")
    assert done.returncode == 0, done.stderr
    shown = [
        render_teacher(case, TeacherPrompt(metadata=MetadataSetting.GENERATED))
        for case in cases_in(recipe, recipe.cases_file)
    ]
    written = [sum(len(f"{m.role} {m.content} ".encode()) for m in prompt) for prompt in shown]
    total = sum(length + len(f"assistant{SILENT}") for length in written)
    assert json.loads(done.stdout)["prompt"]["total"] == total


@pytest.mark.parametrize("count", [1, 4, 9])
def test_killed_in_the_middle_the_rerun_asks_for_the_rest_and_ends_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    questions = [f"Question {number}" for number in range(9)]
    questions[3] += " in prose"
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    undisturbed, _ = infer(whole, monkeypatch, questions)
    recipe = write_recipe(killed, questions)
    engine = f"""
from pathlib import Path
from prerouter.stages import profile
from tests.stages.profiler import Profiler
profile.start_engine = lambda section: Profiler(Path({str(killed / "asked.txt")!r}))
"""
    assert prerouter("cases", str(recipe)).returncode == 0
    died = prerouter("profile", str(recipe), code=KILL_AFTER_ROWS.format(count=count) + engine)
    assert died.returncode == -9
    assert not (killed / "runs" / "profiled" / "profile" / "manifest.json").exists()
    done = prerouter("profile", str(recipe), code=engine)
    assert done.returncode == 0, done.stderr
    for file in ("rows.jsonl", "profiles.jsonl", "rejects.jsonl"):
        again = killed / "runs" / "profiled" / "profile" / file
        assert again.read_bytes() == (undisturbed.run_dir / "profile" / file).read_bytes(), file
    assert sorted((killed / "asked.txt").read_text().splitlines()) == sorted(questions)
