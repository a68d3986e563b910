"""A server that turns every call away ends the run early; one bad call, or a bad spell, doesn't."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import Completion, Sampling
from prerouter.engines.dead_server import SettingError, status_fault
from prerouter.engines.openai import OpenAIServer
from prerouter.recipe.engine import OpenAIEngine
from tests.engines.fault_server import FaultServer, requests, running_server, section

SAMPLING = Sampling(max_tokens=50)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running_server() as server:
        yield server


def taken(engine: OpenAIServer, *prompts: str) -> tuple[list[Completion], StageError | None]:
    """What came before the end, and what ended it."""
    done: list[Completion] = []
    try:
        for _, completion in engine.generate(requests(*prompts), SAMPLING):
            done.append(completion)
    except StageError as error:
        return done, error
    return done, None


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("echo_key", "HTTP 401.*OPENAI_API_KEY.*engine.api_key_variable"),
        ("forbidden", "HTTP 403: no access.*some/model.*engine.model"),
        ("unknown", "HTTP 404: no such model.*engine.model or engine.base_url"),
        ("payment", "HTTP 402: Insufficient Balance.*top up the account.*OPENAI_API_KEY"),
        ("redirect", "HTTP 307.*engine.base_url"),
        ("method", "HTTP 405.*engine.base_url"),
        ("proxy", "HTTP 407.*HTTPS_PROXY"),
        ("bad_field", "HTTP 400: Unsupported parameter.*setting that the server refuses"),
        ("unprocessable", "HTTP 422: bad field.*setting that the server refuses"),
    ],
)
def test_a_server_that_refuses_all_calls_ends_it(
    server: FaultServer, fault: str, told: str
) -> None:
    prompts = [f"{fault} all {number}" for number in range(200)]
    done, error = taken(OpenAIServer(section(server)), *prompts)
    with pytest.raises(StageError, match=f"127.0.0.1.*8 calls in a row.*{told}"):
        raise error or AssertionError("it went on")
    assert len(server.seen.bodies) < 20
    # What failed before is told one by one, and is asked again by a rerun.
    assert len(done) == 7
    assert all(completion.error and completion.passing for completion in done)


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        address = f"http://127.0.0.1:{port}/v1"
        fields = {"kind": "openai", "model": "m", "base_url": address, "backoff_seconds": 0.01}
        engine = OpenAIServer(OpenAIEngine.model_validate(fields))
        done, error = taken(engine, *map(str, range(200)))
    with pytest.raises(StageError, match=r"ConnectError; start the server, or mend"):
        raise error or AssertionError("it went on")
    assert len(done) == 7


def test_few_calls_prove_nothing(server: FaultServer) -> None:
    done, error = taken(OpenAIServer(section(server)), *(f"unknown all {n}" for n in range(7)))
    assert error is None
    assert len(done) == 7


def test_one_answer_among_them_is_a_server_that_lives(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    for turn in range(3):
        done, error = taken(engine, *(f"unknown all {turn} {n}" for n in range(7)))
        assert error is None
        assert len(done) == 7
        assert taken(engine, f"fine {turn}")[1] is None


def test_a_server_that_dies_on_the_way_is_noticed(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    assert taken(engine, "fine")[1] is None
    done, error = taken(engine, *(f"forbidden all {n}" for n in range(100)))
    assert error is not None
    assert "16 calls in a row" in error.line
    assert len(done) == 15


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("broken", "HTTP 500: out of memory; look after the server"),
        ("maintenance", "HTTP 503: back soon; look after the server"),
        ("busy", "HTTP 429: slow down; raise the quota"),
        ("dropped", "RemoteProtocolError; look at what the server sends"),
        ("hanging", "no reply within 0.2 seconds; .*engine.timeout_seconds"),
        ("not_json", "malformed reply: not JSON; .*engine.base_url"),
        ("null", "neither content nor reasoning; .*engine.base_url"),
    ],
)
def test_a_server_that_never_once_answers_ends_it_after_its_attempts(
    server: FaultServer, fault: str, told: str
) -> None:
    engine = OpenAIServer(section(server, max_attempts=2, timeout_seconds=0.2))
    done, error = taken(engine, *(f"{fault} all {n}" for n in range(100)))
    with pytest.raises(StageError, match=f"8 calls in a row failed alike: .*{told}"):
        raise error or AssertionError("it went on")
    assert len(server.seen.bodies) <= 2 * (8 + 4)
    assert all(completion.error and completion.passing for completion in done)


@pytest.mark.parametrize("fault", ["too_long", "too_large", "refused", "filtered"])
def test_what_lies_with_a_prompt_never_ends_it(server: FaultServer, fault: str) -> None:
    done, error = taken(OpenAIServer(section(server)), *(f"{fault} all {n}" for n in range(100)))
    assert error is None
    assert sum(completion.error is not None for completion in done) == 100


@pytest.mark.parametrize(
    ("status", "message", "this_prompt"),
    [
        (400, "maximum context length is 4096 tokens", True),
        (400, "the request exceeds the available context size", True),
        (400, "prompt is too long: 210000 tokens > 200000 maximum", True),
        (400, "The input token count (9) exceeds the maximum", True),
        (400, "Unsupported parameter: 'max_tokens' is not supported with this model", False),
        (400, "max_tokens is too large: 100000; at most 16384 completion tokens", False),
        (403, "prompt is too long", False),
    ],
)
def test_a_prompt_too_long_is_told_from_a_setting(
    server: FaultServer, status: int, message: str, this_prompt: bool
) -> None:
    fault = status_fault(status, f"HTTP {status}: {message}", section(server))
    assert isinstance(fault, SettingError) is not this_prompt
    assert not fault.passing


def test_two_reasons_in_turn_are_not_one(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    for turn in range(6):
        faults = ("unknown", "forbidden")
        done, error = taken(engine, *(f"{faults[turn % 2]} all {turn} {n}" for n in range(4)))
        assert error is None
        assert len(done) == 4
