"""The vllm engine on the real vLLM."""

from __future__ import annotations

import gc
import math
import multiprocessing
import time
from collections.abc import Iterator
from typing import Any

import pytest

from prerouter.core.errors import RecipeError, StageError
from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.start import start_engine
from prerouter.engines.transformers import TransformersModel
from prerouter.engines.vllm import VllmModel
from prerouter.recipe.engine import VllmEngine
from tests.vllm.traces import COUNT, MAX_MODEL_LEN, MODEL, guided_requests, parse, short_traces

CHOICES = ("RAG", "LC", " LC then RAG")


def section(**changes: Any) -> VllmEngine:
    fields: dict[str, Any] = {
        "kind": "vllm",
        "model": MODEL,
        "dtype": "float32",
        "max_model_len": MAX_MODEL_LEN,
        "arguments": {"enforce_eager": True},
    }
    return VllmEngine(**{**fields, **changes})


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmModel]:
    engine = start_engine(section(dtype="bfloat16"))
    assert isinstance(engine, VllmModel)
    yield engine
    # pytest holds on to what a fixture gave, so it is not freed by itself.
    engine.llm.llm_engine.engine_core.shutdown()


def request(text: str, seed: int | None = None) -> GenerationRequest:
    return GenerationRequest((Message(role="user", content=text),), seed=seed)


def test_every_guided_trace_parses(engine: VllmModel) -> None:
    done = dict(engine.generate(guided_requests(), short_traces()))
    traces = parse(done)
    assert len(traces) == COUNT
    # A seed of its own for each: they are not one text.
    assert len({trace.rationale.model_dump_json() for trace in traces}) > COUNT / 2
    assert all(done[index].prompt_tokens > 1000 for index in done)
    assert all(done[index].completion_tokens > 50 for index in done)
    # The guidelines are read once and shared, by blocks of tokens.
    assert engine.cached_share is not None
    assert engine.cached_share > 0.7


def test_one_over_long_prompt_costs_that_request_only(engine: VllmModel) -> None:
    asked = [request("Name a colour."), request("word " * 5000), request("Name a fish.")]
    done = dict(engine.generate(asked, Sampling(max_tokens=4)))
    assert (done[1].error or "").startswith("prompt too long: 50")
    assert [done[index].finish_reason for index in (0, 2)] == ["length", "length"]
    assert [done[index].completion_tokens for index in (0, 2)] == [4, 4]


def test_text_without_tokens_costs_that_request_only(engine: VllmModel) -> None:
    asked = [request("half a character: \ud800"), request("Name a fish.")]
    done = dict(engine.generate(asked, Sampling(max_tokens=4)))
    assert done[0].error == "the prompt holds text that has no tokens"
    assert done[1].completion_tokens == 4


def test_a_refused_request_costs_that_request_only(engine: VllmModel) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "nonsense"}}}
    ((_, done),) = engine.generate([request("a")], Sampling(max_tokens=4, schema=schema))
    assert "refused by vLLM" in (done.error or "")
    ((_, done),) = engine.generate([request("a")], Sampling(max_tokens=4))
    assert done.error is None


def test_leaving_early_frees_the_engine(engine: VllmModel) -> None:
    stories = [request(f"Tell a long story, number {number}.", number) for number in range(20)]
    # Sent last, refused before it runs: the stories are under way by then.
    asked = [*stories, request("too long " * 5000)]
    results = engine.generate(asked, Sampling(max_tokens=2000, temperature=1.0))
    assert next(results)[0] == len(stories)
    assert engine._engine.get_num_unfinished_requests() == len(stories)
    results.close()
    assert engine._engine.get_num_unfinished_requests() == 0
    ((_, done),) = engine.generate([request("Name a colour.")], Sampling(max_tokens=2))
    assert done.completion_tokens == 2


def test_it_keeps_its_scheduler_full_and_no_fuller(
    engine: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_window", 3)
    taken = []
    asked = [request(f"Count to {number}.", number) for number in range(9)]
    for index, _ in engine.generate(asked, Sampling(max_tokens=3)):
        taken.append(index)
        assert engine._engine.get_num_unfinished_requests() <= 3
    assert sorted(taken) == list(range(9))


def test_words_that_begin_differently_take_one_prompt_a_case(
    engine: VllmModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = [request("Say RAG or LC."), request("Which route is dear? One word.")]
    sent = []
    plain = engine._engine.add_request

    def counted(name: str, prompt: Any, parameters: Any) -> None:
        sent.append(parameters.prompt_logprobs)
        plain(name, prompt, parameters)

    monkeypatch.setattr(engine._engine, "add_request", counted)
    engine.score_choices(asked, CHOICES[:2], first_tokens=True)
    # Log-probabilities of a prompt's own tokens would keep vLLM from reading its prefix cache.
    assert sent == [None] * len(asked)
    sent.clear()
    engine.score_choices(asked, CHOICES[:2])
    assert sent == [0] * 2 * len(asked)


def test_choices_score_as_transformers_scores_them_and_nothing_stays(
    exact: TransformersModel,
) -> None:
    asked = [request("Say RAG or LC."), request("Which route is dear? One word.")]
    before = set(multiprocessing.active_children())
    engine = VllmModel(section())
    scores = engine.score_choices(asked, CHOICES)
    for row, expected in zip(scores, exact.score_choices(asked, CHOICES), strict=True):
        assert row.log_probabilities == pytest.approx(expected.log_probabilities, abs=5e-3)
        assert all(math.exp(score) < 1 for score in row.log_probabilities)
        # A pass for each choice, which reads the prompt anew.
        assert row.calls == len(CHOICES)
        assert row.prompt_tokens > len(CHOICES) * expected.prompt_tokens
    words = CHOICES[:2]
    firsts = engine.score_choices(asked, words, first_tokens=True)
    expected = exact.score_choices(asked, words, first_tokens=True)
    for row, other in zip(firsts, expected, strict=True):
        assert row.log_probabilities == pytest.approx(other.log_probabilities, abs=5e-3)
        assert (row.calls, row.prompt_tokens) == (1, other.prompt_tokens)
    with pytest.raises(ValueError, match="no tokens"):
        engine.score_choices(asked, ["RAG", ""])
    started = set(multiprocessing.active_children()) - before
    assert started
    # The stage that trains finds the accelerator's memory free.
    del engine
    gc.collect()
    deadline = time.monotonic() + 30
    while any(process.is_alive() for process in started) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not [process for process in started if process.is_alive()]


def test_tokens_are_counted_as_they_are_sent(engine: VllmModel) -> None:
    asked = request("Name a colour.")
    ((_, done),) = engine.generate([asked], Sampling(max_tokens=2))
    assert engine.count_tokens(asked.messages) == done.prompt_tokens


def test_what_can_not_be_exact_is_refused(engine: VllmModel) -> None:
    with pytest.raises(RecipeError, match="what the schema allows"):
        next(engine.generate([request("a")], Sampling(max_tokens=2, entropy_tokens=2, schema={})))
    with pytest.raises(RecipeError, match="reasoning_parser"):
        next(engine.generate([request("a")], Sampling(max_tokens=2, schema={}, thinking=True)))
    # Nothing of it is left behind.
    assert engine._engine.get_num_unfinished_requests() == 0


def test_a_dead_engine_is_said_to_be_dead(engine: VllmModel) -> None:
    # The last test on this engine.
    asked = [request(f"Tell a long story, number {number}.") for number in range(3)]
    results = engine.generate([*asked, request("too long " * 5000)], Sampling(max_tokens=2000))
    next(results)
    for process in multiprocessing.active_children():
        if process.name == "EngineCore":
            process.kill()
    with pytest.raises(StageError, match=r"vllm embedded:.*the engine died.*a rerun goes on"):
        list(results)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"data_parallel_size": 2}, r"one replica in process.*data-parallel-size N.*kind: openai"),
        ({"max_model_len": 10_000_000}, r"engine: vLLM refuses it"),
    ],
)
def test_a_section_vllm_can_not_run(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecipeError, match=problem):
        start_engine(section(**changes))
