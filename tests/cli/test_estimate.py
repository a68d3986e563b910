"""The estimate against counts made by hand: a token is a byte here (tests/cli/tokens.py)."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.cli.check import read_cases
from prerouter.cli.estimate import Estimate, Options, describe, engine_gpus, make_estimate
from prerouter.cli.pilot import draw_evenly
from prerouter.core.errors import CombinedError, RecipeError, StageError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
    SilentProgress,
)
from prerouter.core.records import Message, Trace
from prerouter.prompts.render import render_teacher
from prerouter.prompts.trace import format_trace
from prerouter.recipe.engine import RayEngine, VllmEngine
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.routers.guideline import judge
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, teach
from tests.e2e.runner import prerouter

from .tokens import SILENT, make_tokenizer

QUESTIONS = [f"Who {'signed ' * number}the register?" for number in reversed(range(12))]
NOTHING = Options(
    tokenizer=None,
    pilot=None,
    output_tokens=None,
    throughput=None,
    gpus=None,
    prices=None,
    skip_bad=False,
)


def write_recipe(folder: Path, **changes: Any) -> Path:
    rows = "".join(json.dumps({"question": text, "title": text}) + "\n" for text in QUESTIONS)
    (folder / "questions.jsonl").write_text(rows)
    teacher = {
        "engine": {"kind": "transformers", "model": str(make_tokenizer(folder / "teacher"))},
        "splits": ["train", "validation", "test"],
        "max_tokens": 500,
    }
    recipe = {
        "name": "priced",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "questions.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 8192}],
        },
        "teach": teacher | changes,
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def prices(folder: Path, model: str, cached: float | None = None) -> Path:
    price = {"input": 2.0, "output": 8.0, "source": "a contract", "date": "2026-01-02"}
    if cached is not None:
        price["cached_input"] = cached
    path = folder / "prices.yaml"
    path.write_text(yaml.safe_dump({"models": {model: price}}))
    return path


def estimated(folder: Path, options: dict[str, Any] | None = None, **changes: Any) -> Estimate:
    recipe = load_recipe(write_recipe(folder, **changes))
    return of(recipe, **(options or {}))


def of(recipe: Recipe, **options: Any) -> Estimate:
    assert recipe.teach is not None
    assert recipe.teach.engine is not None
    chosen = Options(**{**NOTHING.__dict__, **options})
    return make_estimate(recipe, recipe.teach, recipe.teach.engine, chosen, SilentProgress())


def prompt_bytes(recipe: Recipe) -> list[bytes]:
    """Each prompt with thinking off, as the template writes it."""
    assert recipe.teach is not None
    found = []
    for case in read_cases(recipe)[0]:
        messages = render_teacher(case, recipe.teach.prompt)
        turns = "".join(f"{message.role} {message.content} " for message in messages)
        found.append(f"{turns}assistant{SILENT}".encode())
    return found


def test_every_prompt_is_counted_once_for_each_sample(tmp_path: Path) -> None:
    found = estimated(tmp_path, samples=3)
    prompts = prompt_bytes(load_recipe(tmp_path / "recipe.yaml"))
    assert (found.cases, found.samples, found.calls) == (12, 3, 36)
    assert found.prompt.total == 3 * sum(map(len, prompts))
    assert found.prompt.longest == max(map(len, prompts))
    columns = enumerate(zip(*prompts, strict=False))
    first_difference = next(place for place, column in columns if len(set(column)) > 1)
    assert found.prompt.shared_prefix == first_difference > 1000
    repeated = 11 * found.prompt.shared_prefix + 2 * sum(map(len, prompts))
    assert found.prompt.repeated == repeated < found.prompt.total


def test_the_thinking_switch_is_in_the_count(tmp_path: Path) -> None:
    quiet, thinking = estimated(tmp_path), estimated(tmp_path, thinking=True)
    assert quiet.prompt.total - thinking.prompt.total == len(SILENT) * 12
    server = {
        "kind": "openai",
        "model": "m",
        "base_url": "http://127.0.0.1:1/v1",
        "thinking_switch": "none",
    }
    untold = estimated(tmp_path, {"tokenizer": tmp_path / "teacher"}, engine=server)
    assert untold.prompt.total == thinking.prompt.total


def test_only_the_splits_that_are_taught_are_counted(tmp_path: Path) -> None:
    found = estimated(tmp_path, splits=["train"])
    assert 0 < found.cases < 12


def test_nothing_is_written_without_a_pilot(tmp_path: Path) -> None:
    estimated(tmp_path)
    assert not (tmp_path / "runs").exists()


def test_without_output_tokens_the_limit_is_told_and_is_no_estimate(tmp_path: Path) -> None:
    model = str(tmp_path / "teacher")
    found = estimated(tmp_path, {"prices": prices(tmp_path, model)})
    assert (found.output.basis, found.output.total) == ("limit", 12 * 500)
    text = "\n".join(describe(found))
    assert "output tokens: at most 6,000" in text
    assert "USD: at most" in text


def test_given_output_tokens_are_priced(tmp_path: Path) -> None:
    options = {"prices": prices(tmp_path, str(tmp_path / "teacher"), 0.5), "output_tokens": 100.0}
    found = estimated(tmp_path, options)
    assert found.output.total == 1200
    assert found.usd is not None
    assert found.usd.total == pytest.approx((found.prompt.total * 2 + 1200 * 8) / 1e6)
    saved = found.prompt.repeated * 1.5 / 1e6
    assert found.usd.cached == pytest.approx(found.usd.total - saved)
    assert (found.usd.low, found.usd.high) == (None, None)
    # The teacher runs here: nobody bills its tokens.
    assert "transformers runs on your own machines, and takes GPU-hours" in describe(found)[-1]


def test_a_model_without_a_price_costs_nothing_known(tmp_path: Path) -> None:
    table = prices(tmp_path, "another")
    found = estimated(tmp_path, {"prices": table})
    assert found.usd is None
    model = tmp_path / "teacher"
    assert found.notes == (f"no price for {model}; add it to {table}",)
    assert "USD" not in "\n".join(describe(found))


def test_the_recipe_can_name_the_price_table(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    table = prices(tmp_path, str(tmp_path / "teacher"))
    recipe = load_recipe(path, [f"prices={table}"])
    assert of(recipe, output_tokens=1.0).usd is not None


def test_gpu_hours_come_from_the_throughput(tmp_path: Path) -> None:
    found = estimated(tmp_path, {"output_tokens": 3600.0, "throughput": 12.0, "gpus": 4})
    assert found.gpu is not None
    assert (found.gpu.hours, found.gpu.gpu_hours) == (1.0, 4.0)
    assert estimated(tmp_path).gpu is None


def test_gpus_are_those_that_the_engine_takes() -> None:
    vllm = VllmEngine(
        kind="vllm",
        model="m",
        tensor_parallel_size=4,
        pipeline_parallel_size=2,
        data_parallel_size=3,
    )
    assert engine_gpus(vllm) == 24
    ray = RayEngine(kind="ray", model="m", tensor_parallel_size=4, replicas=3)
    assert engine_gpus(ray) == 12
    assert engine_gpus(ray.model_copy(update={"gpus_per_replica": 2})) == 6
    assert engine_gpus(ray.model_copy(update={"gpus_per_replica": 0})) == 0


def test_an_engine_on_cpus_has_no_gpu_hours(tmp_path: Path) -> None:
    engine = {"kind": "ray", "model": str(tmp_path / "teacher"), "gpus_per_replica": 0}
    options = {"output_tokens": 3600.0, "throughput": 12.0}
    found = estimated(tmp_path, options, engine=engine)
    assert found.gpu is None
    assert any(note.startswith("no GPU-hours") for note in found.notes)
    found = estimated(tmp_path, options | {"gpus": 2}, engine=engine)
    assert found.gpu is not None
    assert found.gpu.gpus == 2


def test_a_teacher_without_a_tokenizer_here_says_what_to_give(tmp_path: Path) -> None:
    engine = {"kind": "vllm", "model": "some/teacher"}
    with pytest.raises(RecipeError, match=r"--tokenizer: is needed.*some/teacher.*tokenizer.json"):
        estimated(tmp_path, engine=engine)


@pytest.mark.parametrize(
    "options",
    [
        {"pilot": 2, "output_tokens": 9.0},
        {"gpus": 2, "output_tokens": 9.0},
        {"output_tokens": float("inf")},
        {"output_tokens": float("nan")},
        {"output_tokens": 1e300},
        {"output_tokens": 9.0, "throughput": float("inf")},
    ],
)
def test_options_that_contradict_each_other_or_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    with pytest.raises(CombinedError):
        estimated(tmp_path, options)


def test_cases_are_drawn_evenly_and_the_same_under_a_seed() -> None:
    drawn = draw_evenly(range(1000), 50, seed=4)
    assert drawn == draw_evenly(range(1000), 50, seed=4)
    assert drawn != draw_evenly(range(1000), 50, seed=5)
    assert [position // 20 for position in drawn] == list(range(50))
    # Six answer models take turns: a draw by equal steps of 18 would meet one of them only.
    assert {position % 6 for position in draw_evenly(range(900), 50, seed=4)} == set(range(6))
    assert draw_evenly(range(3), 50, seed=4) == [0, 1, 2]


class Teacher:
    """Writes a whole trace, as many tokens long as the question has words; the odd one out is
    refused, and where `down`, nothing comes back."""

    cached_share = None

    def __init__(self, *, down: bool = False) -> None:
        self.down = down
        self.lost = (0, 0)
        self.asked: list[str] = []

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(kind="scripted", model="teacher")

    def honours_schema(self) -> bool | None:
        return True

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return len(messages)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        for index, request in enumerate(requests):
            question = json.loads(request.messages[1].content.split("\n")[1])["question"]
            self.asked.append(question)
            length = 100 * len(question.split())
            if self.down:
                yield index, Completion("", "error", error="HTTP 503")
            elif question == QUESTIONS[1]:
                yield index, Completion("I can't say.", "stop", 7, length)
            else:
                prompt, output = self.lost
                yield (
                    index,
                    Completion(
                        self.text,
                        "stop",
                        7,
                        length,
                        lost_prompt_tokens=prompt,
                        lost_completion_tokens=output,
                    ),
                )

    text = ""

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        return [[0.0] * len(choices) for _ in requests]


@pytest.fixture
def teacher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Teacher:
    found = Teacher()
    case = read_cases(load_recipe(write_recipe(tmp_path)))[0][0]
    found.text = format_trace(*judge(case))
    monkeypatch.setattr("prerouter.engines.start.start_engine", lambda section: found)
    monkeypatch.setattr("prerouter.stages.teach.start_engine", lambda section: found)
    return found


def test_a_pilot_gives_mean_interval_and_n(tmp_path: Path, teacher: Teacher) -> None:
    found = estimated(tmp_path, {"pilot": 6}, samples=2)
    lengths = [100 * len(question.split()) for question in teacher.asked]
    assert len(lengths) == 6
    assert (found.output.basis, found.output.cases) == ("pilot", 6)
    assert found.output.per_call == pytest.approx(sum(lengths) / 6)
    assert found.output.total == round(sum(lengths) / 6 * 24)
    assert found.output.low is not None
    assert found.output.high is not None
    assert min(lengths) * 24 <= found.output.low < found.output.total < found.output.high
    assert "n = 6" in "\n".join(describe(found))
    assert any("the engine counts other prompt tokens in 6 of 6" in note for note in found.notes)


def test_a_pilot_counts_what_was_cut_off_and_asked_again(tmp_path: Path, teacher: Teacher) -> None:
    teacher.lost = (7, 1000)
    found = estimated(tmp_path, {"pilot": 6})
    lengths = [100 * len(question.split()) for question in teacher.asked]
    kept = sum(question != QUESTIONS[1] for question in teacher.asked)
    assert kept >= 5
    assert found.output.per_call == pytest.approx((sum(lengths) + 1000 * kept) / 6)
    assert any(f"pilot: {7 * kept} more prompt tokens" in note for note in found.notes)
    # A trace's own length is that of its reply.
    recipe = load_recipe(tmp_path / "recipe.yaml")
    traces = read_rows(recipe.run_dir / "teach" / "rows.jsonl", Trace)
    assert max(trace.completion_tokens or 0 for trace in traces) <= max(lengths)


def test_teach_goes_on_from_the_pilot(tmp_path: Path, teacher: Teacher) -> None:
    estimated(tmp_path, {"pilot": 4})
    recipe = load_recipe(tmp_path / "recipe.yaml")
    piloted = list(teacher.asked)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(teach.STAGE, recipe, SilentProgress())
    assert len(piloted) == 4
    assert sorted(teacher.asked) == sorted(QUESTIONS)
    traces = list(read_rows(recipe.run_dir / "teach" / "rows.jsonl", Trace))
    assert len(traces) == 11


def test_a_refused_reply_was_paid_for(tmp_path: Path, teacher: Teacher) -> None:
    found = estimated(tmp_path, {"pilot": 12})
    lengths = [100 * len(question.split()) for question in QUESTIONS]
    assert found.output.total == sum(lengths)
    assert any("pilot: 1 refused (no_json 1)" in note for note in found.notes)
    # A later estimate knows the traces' tokens, and that one reply's are not known.
    again = of(load_recipe(tmp_path / "recipe.yaml"))
    kept = [*lengths[:1], *lengths[2:]]
    assert (again.output.basis, again.output.cases, again.output.unknown) == ("traces", 11, 1)
    assert again.output.per_call == pytest.approx(sum(kept) / 11)
    assert len(teacher.asked) == 12


def test_a_repeated_pilot_asks_for_nothing_twice(tmp_path: Path, teacher: Teacher) -> None:
    first = estimated(tmp_path, {"pilot": 5})
    assert len(teacher.asked) == 5
    again = of(load_recipe(tmp_path / "recipe.yaml"), pilot=5)
    assert len(teacher.asked) == 5
    assert again.output.cases + again.output.unknown == 5
    assert first.prompt == again.prompt


def test_a_finished_teacher_needs_no_pilot(tmp_path: Path, teacher: Teacher) -> None:
    recipe = load_recipe(tmp_path / "recipe.yaml")
    execute(cases.STAGE, recipe, SilentProgress())
    execute(teach.STAGE, recipe, SilentProgress())
    assert (of(recipe).output.basis, of(recipe).output.cases) == ("traces", 11)
    before = (recipe.run_dir / "teach" / "rows.jsonl").read_bytes()
    with pytest.raises(StageError, match="is finished"):
        of(recipe, pilot=3)
    assert (recipe.run_dir / "teach" / "rows.jsonl").read_bytes() == before


def test_a_pilot_where_every_call_fails_is_an_error_and_leaves_no_reject_behind(
    tmp_path: Path, teacher: Teacher
) -> None:
    teacher.down = True
    with pytest.raises(StageError, match=r"all 3 calls failed: HTTP 503.*--output-tokens"):
        estimated(tmp_path, {"pilot": 3})
    teacher.down = False
    assert of(load_recipe(tmp_path / "recipe.yaml"), pilot=3).output.cases == 3


def test_a_pilot_clears_no_traces_of_another_recipe(tmp_path: Path, teacher: Teacher) -> None:
    estimated(tmp_path, {"pilot": 3})
    rows = tmp_path / "runs" / "priced" / "teach" / "rows.jsonl"
    before = rows.read_bytes()
    recipe = load_recipe(tmp_path / "recipe.yaml", ["teach.temperature=0.1"])
    with pytest.raises(StageError, match="was begun for another recipe"):
        of(recipe, pilot=3)
    assert rows.read_bytes() == before
    # Its tokens are those of other calls: not taken for this recipe's.
    assert of(recipe).output.basis == "limit"


def test_the_command_prints_what_it_found_as_json_and_in_words(tmp_path: Path) -> None:
    path = write_recipe(tmp_path)
    done = prerouter("estimate", str(path), "--output-tokens", "50", "--throughput", "10")
    assert done.returncode == 0, done.stderr
    assert "teach: 12 calls" in done.stdout
    assert "no price for" in done.stdout
    assert "GPU-hours" in done.stdout
    done = prerouter("estimate", str(path), "--output-tokens", "50", "--json")
    found = Estimate.model_validate_json(done.stdout)
    assert found.output.total == 600
    without_torch = "import sys; sys.modules |= dict.fromkeys(('torch', 'transformers'))"
    assert prerouter("estimate", str(path), code=without_torch).returncode == 0


def test_a_recipe_that_calls_no_model_has_nothing_to_estimate(tmp_path: Path) -> None:
    done = prerouter("estimate", "recipes/quickstart.yaml")
    assert done.returncode == 1
    assert "no model is called" in done.stderr
