"""A prompt study: each variant is a router, what was asked is not paid twice."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from prerouter.cli.main import app
from prerouter.core.errors import CombinedError, StageError
from prerouter.core.protocols import (
    Completion,
    GenerationRequest,
    Sampling,
    SilentProgress,
)
from prerouter.core.records import Rationale, Route, Step
from prerouter.measures.routing import POOLED, Measure, RoutingRow
from prerouter.prompts.trace import format_trace
from prerouter.recipe.study import PRESETS, PromptStudy, load_prompt_study
from prerouter.runs.manifest import altered_files, read_manifest
from prerouter.runs.stage import execute
from prerouter.stages import cases, label, profile
from prerouter.stages.study import run_prompt_study

from .profiler import Profiler
from .tables import MODELS, Scripted, table_recipe

QUESTIONS = 30
ENGINE = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
# Each would lead out of the study's folder, or be another name on another system.
BAD_NAMES = (".", "..", "...", ".hidden", " up", "up ", "up.", "-x", "_x", "up\n")
Reply = Callable[[int, str], Completion]


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    recipe = table_recipe(tmp_path, QUESTIONS, split={"group_by": "document"})
    execute(cases.STAGE, recipe, SilentProgress())
    execute(label.STAGE, recipe, SilentProgress())
    return recipe.run_dir


def write_study(run: Path, **changes: Any) -> Path:
    data: dict[str, Any] = {
        "name": "tried",
        "runs_dir": str(run.parent),
        "run": str(run),
        "models": [{"name": "large", "engine": ENGINE}],
        "variants": {"full": {}, "no step": {"without": ["step_3", "reflection"]}},
        "resamples": 100,
    }
    path = run.parent / "study.yaml"
    path.write_text(yaml.safe_dump({k: v for k, v in (data | changes).items() if v is not None}))
    return path


def odd_is_lc(index: int, prompt: str) -> Completion:
    """RAG for even parts and LC for odd ones, which is the ideal route of all."""
    part = int(prompt.split("said in part ")[1].split("?")[0])
    rationale = Rationale(steps=dict.fromkeys(Step, "found"), reflection="looked again")
    text = format_trace(rationale, Route.LC if part % 2 else Route.RAG)
    return Completion(text, "stop", 900, 120)


class Held(Scripted):
    """Holds its replies to the keys of the schema, as an engine with structured outputs does."""

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        assert sampling.schema is not None
        keys = sampling.schema["properties"]
        for index, done in super().generate(requests, sampling):
            text = done.text
            if text.startswith("{"):
                data = {key: value for key, value in json.loads(text).items() if key in keys}
                text = json.dumps(data)
            yield index, dataclasses.replace(done, text=text)


def play(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> list[Scripted]:
    engines: list[Scripted] = []

    def start(section: object) -> Scripted:
        engines.append(Held(reply))
        return engines[-1]

    monkeypatch.setattr("prerouter.stages.study.start_engine", start)
    return engines


def pooled(rows: tuple[RoutingRow, ...]) -> dict[str, RoutingRow]:
    return {row.router: row for row in rows if row.answer_model is POOLED}


def test_every_variant_is_a_row_beside_the_fixed_routers(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = play(monkeypatch, odd_is_lc)
    study = load_prompt_study(write_study(finished))
    outcome = run_prompt_study(study, SilentProgress())
    rows = pooled(outcome.rows)
    assert list(rows) == ["always_rag", "always_lc", "large, full", "large, no step", "oracle"]
    for name in ("large, full", "large, no step"):
        assert rows[name].measures[Measure.ACCURACY].value == 1.0
        assert rows[name].undecided == 0
    # One engine for both variants.
    assert len(engines) == 1
    assert 2 * len(engines[0].requests) == outcome.asked
    table = (study.folder / "table.csv").read_text("utf-8")
    assert "large, no step" in table


def test_a_rerun_asks_for_nothing_and_a_changed_variant_for_its_own(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, odd_is_lc)
    first = run_prompt_study(load_prompt_study(write_study(finished)), SilentProgress())
    engines = play(monkeypatch, odd_is_lc)
    again = run_prompt_study(load_prompt_study(write_study(finished)), SilentProgress())
    assert (again.asked, engines) == (0, [])
    assert again.rows == first.rows
    changed = {"full": {}, "no step": {"without": ["reflection", "step_4"]}}
    half = load_prompt_study(write_study(finished, variants=changed))

    def refuses(index: int, prompt: str) -> Completion:
        return Completion("RAG", "stop", 900, 1)

    play(monkeypatch, refuses)
    outcome = run_prompt_study(half, SilentProgress())
    assert outcome.asked * 2 == first.asked
    row = pooled(outcome.rows)["large, no step"]
    assert row.undecided == row.n
    assert pooled(outcome.rows)["large, full"] == pooled(first.rows)["large, full"]
    # What was paid for stands: the study as it was before asks for nothing.
    engines = play(monkeypatch, refuses)
    back = run_prompt_study(load_prompt_study(write_study(finished)), SilentProgress())
    assert (back.asked, back.rows, engines) == (0, first.rows, [])


def test_replies_where_an_earlier_version_kept_them_stand(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, odd_is_lc)
    study = load_prompt_study(write_study(finished, variants={"full": {}}))
    first = run_prompt_study(study, SilentProgress())
    (kept,) = (study.folder / "large" / "full").iterdir()
    for file in kept.iterdir():
        file.rename(kept.parent / file.name)
    kept.rmdir()
    engines = play(monkeypatch, odd_is_lc)
    again = run_prompt_study(study, SilentProgress())
    assert (again.asked, again.rows, engines) == (0, first.rows, [])


@pytest.mark.parametrize("name", ["a", "full", "no step 3", "v1.5", "Qwen3-32B+x", "统计"])
def test_names_that_a_folder_can_bear_are_taken(finished: Path, name: str) -> None:
    assert list(load_prompt_study(write_study(finished, variants={name: {}})).prompts) == [name]


def test_a_folder_that_leads_out_of_the_study_is_left_alone(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = play(monkeypatch, odd_is_lc)
    study = load_prompt_study(write_study(finished, variants={"full": {}}))
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "file").write_text("kept")
    (study.folder / "large").mkdir(parents=True)
    (study.folder / "large" / "full").symlink_to(tmp_path / "precious")
    with pytest.raises(StageError, match="leads out of the study's folder"):
        run_prompt_study(study, SilentProgress())
    assert (tmp_path / "precious" / "file").read_text() == "kept"
    assert engines == []


def test_its_manifest_tells_what_it_left_and_how_long_it_took(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play(monkeypatch, odd_is_lc)
    study = load_prompt_study(
        write_study(finished, variants={"full": {}}, samples=2, temperature=0.7)
    )
    outcome = run_prompt_study(study, SilentProgress())
    manifest = read_manifest(study.folder)
    assert manifest is not None
    assert {name: entry.rows for name, entry in manifest.files.items()} == {
        "rows.jsonl": len(outcome.rows),
        "best_of.json": 2,
    }
    assert altered_files(study.folder, manifest) == []
    assert manifest.seconds > 0


def test_an_answer_model_that_nobody_learnt_from_is_flagged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split = {"group_by": "document", "unseen_models": [MODELS[1]]}
    recipe = table_recipe(tmp_path, QUESTIONS, split=split)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(label.STAGE, recipe, SilentProgress())
    play(monkeypatch, odd_is_lc)
    study = load_prompt_study(write_study(recipe.run_dir, variants={"full": {}}))
    rows = run_prompt_study(study, SilentProgress()).rows
    assert {row.answer_model: row.unseen for row in rows} == {
        MODELS[0]: False,
        MODELS[1]: True,
        POOLED: False,
    }


def test_failed_calls_end_it_and_are_made_again(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = load_prompt_study(write_study(finished, variants={"full": {}}))

    def half_fails(index: int, prompt: str) -> Completion:
        if index % 2:
            return Completion("", "error", error="HTTP 500 (after 5 attempts)")
        return odd_is_lc(index, prompt)

    play(monkeypatch, half_fails)
    with pytest.raises(StageError, match=r"were refused.*max_failed_share"):
        run_prompt_study(study, SilentProgress())
    assert not (study.folder / "manifest.json").exists()
    play(monkeypatch, odd_is_lc)
    outcome = run_prompt_study(study, SilentProgress())
    row = pooled(outcome.rows)["large, full"]
    assert row.undecided == 0
    # Of this split, only what had failed was asked for again.
    every = row.n + row.unlabelled
    assert outcome.asked == every // 2


def test_several_samples_give_best_of_n(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counts: dict[str, int] = {}

    def every_second_is_right(index: int, prompt: str) -> Completion:
        counts[prompt] = counts.get(prompt, 0) + 1
        right = odd_is_lc(index, prompt)
        if counts[prompt] % 2:
            return right
        other = {"RAG": "LC", "LC": "RAG"}
        data = json.loads(right.text)
        data["decision"] = other[data["decision"]]
        return Completion(json.dumps(data), "stop", 900, 120)

    play(monkeypatch, every_second_is_right)
    study = load_prompt_study(
        write_study(finished, variants={"full": {}}, samples=4, temperature=0.7)
    )
    outcome = run_prompt_study(study, SilentProgress())
    best = {row.samples: row for row in outcome.best_of["large, full"]}
    assert list(best) == [1, 2, 4]
    # Two of four are right: 1/2 alone, 5/6 with two, all with four.
    assert best[1].oracle.value == pytest.approx(0.5)
    assert best[2].oracle.value == pytest.approx(5 / 6)
    assert best[4].oracle.value == pytest.approx(1.0)
    assert "vote of N" in (study.folder / "best_of.md").read_text("utf-8")


def test_fewer_samples_than_before_are_the_first_ones(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: dict[str, int] = {}

    def only_the_first_is_right(index: int, prompt: str) -> Completion:
        counts[prompt] = counts.get(prompt, 0) + 1
        right = odd_is_lc(index, prompt)
        # The engine answers the last request first: of four samples, the fourth call is sample 0.
        return right if counts[prompt] == 4 else Completion("nothing", "stop", 900, 1)

    play(monkeypatch, only_the_first_is_right)
    settings: dict[str, Any] = {"variants": {"full": {}}, "temperature": 0.7}
    many = load_prompt_study(write_study(finished, samples=4, **settings))
    assert run_prompt_study(many, SilentProgress()).best_of["large, full"][0].oracle.value == 0.25
    fewer = run_prompt_study(
        load_prompt_study(write_study(finished, samples=2, **settings)), SilentProgress()
    )
    assert fewer.asked == 0
    assert [row.oracle.value for row in fewer.best_of["large, full"]] == [0.5, 1.0]


def test_generated_metadata_need_a_run_that_has_them(
    finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engines = play(monkeypatch, odd_is_lc)
    study = load_prompt_study(write_study(finished, variants=None, preset="metadata"))
    with pytest.raises(StageError, match="needs profile, which is not finished"):
        run_prompt_study(study, SilentProgress())
    assert engines == []


def test_each_metadata_setting_is_shown_what_it_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sections = {
        "split": {"group_by": "document"},
        "profile": {"engine": ENGINE},
        "teach": {"engine": ENGINE, "prompt": {"metadata": "generated"}},
    }
    recipe = table_recipe(tmp_path, QUESTIONS, **sections)
    profiler = Profiler(tmp_path / "asked.txt")
    monkeypatch.setattr("prerouter.stages.profile.start_engine", lambda section: profiler)
    for stage in (cases.STAGE, profile.STAGE, label.STAGE):
        execute(stage, recipe, SilentProgress())
    shown: dict[str, list[str]] = {"full": [], "head only": [], "generated": []}

    def keeps(index: int, prompt: str) -> Completion:
        own, inferred = '"Report ' in prompt, '"Title of: ' in prompt
        shown["full" if own else "generated" if inferred else "head only"].append(prompt)
        return odd_is_lc(index, prompt)

    play(monkeypatch, keeps)
    study = load_prompt_study(write_study(recipe.run_dir, variants=None, preset="metadata"))
    outcome = run_prompt_study(study, SilentProgress())
    assert list(pooled(outcome.rows))[2:5] == [f"large, {setting}" for setting in shown]
    assert {len(prompts) for prompts in shown.values()} == {outcome.asked // 3}
    assert all("Document " in prompt for prompts in shown.values() for prompt in prompts)


def test_the_presets_are_the_papers() -> None:
    assert len(PRESETS["guideline"]) == 9
    assert [p.without for p in PRESETS["guideline"].values()][:2] == [(), ("reflection",)]
    assert {p.paradigm for p in PRESETS["paradigms"].values()} == {
        "guided",
        "direct",
        "unconstrained",
    }
    assert len(PRESETS["metadata"]) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"preset": "guideline"}, "takes a preset"),
        ({"variants": None}, "takes a preset"),
        ({"samples": 4}, "all alike: set temperature"),
        ({"name": "mine"}, "a folder of its own"),
        ({"models": [{"name": "a", "engine": ENGINE}] * 2}, "a name of its own"),
        ({"variants": {"../up": {}}}, "variants"),
        *(({"variants": {name: {}}}, "variants") for name in BAD_NAMES),
        *(({"models": [{"name": name, "engine": ENGINE}]}, "models") for name in BAD_NAMES),
    ],
)
def test_a_study_that_makes_no_sense_is_refused(
    finished: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(CombinedError) as caught:
        load_prompt_study(write_study(finished, **changes))
    assert message in " ".join(caught.value.lines)


def test_the_command_prints_the_table(finished: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    play(monkeypatch, odd_is_lc)
    done = CliRunner().invoke(app, ["study", str(write_study(finished))])
    assert done.exit_code == 0, done.output
    assert "large, full" in done.output.replace("\n", " ")
    assert "table.md" in done.output


def test_every_study_that_ships_is_valid() -> None:
    for path in sorted((Path(__file__).parents[2] / "recipes" / "studies").glob("*.yaml")):
        assert isinstance(load_prompt_study(path), PromptStudy)
