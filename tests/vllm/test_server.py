"""The openai engine on a real vLLM server, started by the launcher that users start."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.embedded import resolve_model
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.transformers import TransformersModel
from prerouter.recipe.engine import OpenAIEngine
from tests.vllm.traces import COUNT, MAX_MODEL_LEN, MODEL, guided_requests, parse, short_traces

SECONDS_TO_START = 300


@pytest.fixture(scope="module")
def engine(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenAIServer]:
    os.environ.pop("OPENAI_API_KEY", None)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    with log.open("w") as lines:
        server = subprocess.Popen(
            [
                repository / "scripts" / "serve_teacher.sh",
                resolve_model(MODEL),
                "--served-model-name=smollm2",
                "--dtype=float32",
                "--enforce-eager",
                f"--max-model-len={MAX_MODEL_LEN}",
            ],
            env={**os.environ, "PORT": str(port), "PYTHON": sys.executable},
            stdout=lines,
            stderr=subprocess.STDOUT,
        )
    try:
        _wait_until_up(server, port, log)
        yield OpenAIServer(
            OpenAIEngine(
                kind="openai",
                model="smollm2",
                base_url=f"http://127.0.0.1:{port}/v1",
                concurrency=COUNT,
                max_attempts=1,
            )
        )
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=60)


def _wait_until_up(server: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline:
        assert server.poll() is None, log.read_text()[-3000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2):
                return
        except OSError:
            time.sleep(0.5)
    raise AssertionError(log.read_text()[-3000:])


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
