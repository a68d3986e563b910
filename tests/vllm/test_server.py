"""The openai engine on a real vLLM server, started by the launcher that users start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.embedded import resolve_model
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.transformers import TransformersModel
from prerouter.recipe.engine import OpenAIEngine
from tests.vllm.serving import served
from tests.vllm.traces import COUNT, MODEL, guided_requests, parse, short_traces


@pytest.fixture(scope="module")
def engine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIServer]:
    log = tmp_path_factory.mktemp("server") / "log"
    with served(repository, resolve_model(MODEL), "smollm2", log) as address:
        yield OpenAIServer(
            OpenAIEngine(
                kind="openai",
                model="smollm2",
                base_url=address,
                concurrency=COUNT,
                max_attempts=1,
            )
        )


def request(text: str, seed: int | None = None) -> GenerationRequest:
    return GenerationRequest((Message(role="user", content=text),), seed=seed)


def test_it_honours_schemas(engine: OpenAIServer) -> None:
    assert engine.honours_schema() is True


def test_every_guided_trace_parses(engine: OpenAIServer) -> None:
    done = dict(engine.generate(guided_requests(), short_traces()))
    assert [completion.error for completion in done.values()] == [None] * COUNT
    traces = parse(done)
    assert len({trace.rationale.model_dump_json() for trace in traces}) > COUNT / 2
    assert all(done[index].prompt_tokens > 1000 for index in done)
    assert engine.cached_share is not None
    assert engine.cached_share > 0.7


def test_one_over_long_prompt_costs_that_request_only(engine: OpenAIServer) -> None:
    asked = [request("Name a colour."), request("word " * 5000), request("Name a fish.")]
    done = dict(engine.generate(asked, Sampling(max_tokens=4)))
    assert (done[1].error or "").startswith("HTTP 400: ")
    assert (done[1].error or "").endswith("(after 1 attempt)")
    assert [done[index].completion_tokens for index in (0, 2)] == [4, 4]


def test_entropies_are_bounds_of_the_exact_ones(
    engine: OpenAIServer, exact: TransformersModel
) -> None:
    asked = [request(f"Tell a story, number {number}.") for number in range(4)]
    sampling = Sampling(max_tokens=12, entropy_tokens=8)
    bounding = OpenAIServer(engine._section.model_copy(update={"entropies": "lower_bound"}))
    found = dict(bounding.generate(asked, sampling))
    expected = dict(exact.generate(asked, sampling))
    for index, completion in found.items():
        assert completion.text == expected[index].text
        assert completion.entropies_are_bounds
        pairs = list(zip(completion.entropies, expected[index].entropies, strict=True))
        assert len(pairs) == 8
        assert all(bound <= true + 1e-3 for bound, true in pairs)
        # Certain tokens leave nothing beyond the listed ones.
        assert any(bound == pytest.approx(true, rel=0.02) for bound, true in pairs)


def test_choices_and_tokens_agree_with_transformers(
    engine: OpenAIServer, exact: TransformersModel
) -> None:
    asked = [request("Say RAG or LC."), request("Which route is dear? One word.")]
    choices = ("RAG", "LC", " LC then RAG")
    for row, expected in zip(
        engine.score_choices(asked, choices), exact.score_choices(asked, choices), strict=True
    ):
        assert row.log_probabilities == pytest.approx(expected.log_probabilities, abs=5e-3)
    for messages in (asked[0].messages, guided_requests(1)[0].messages):
        assert engine.count_tokens(messages) == exact.count_tokens(messages)
