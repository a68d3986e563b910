"""Every fault of a server, among requests that go well."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import itertools
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx2
import pytest
from tenacity import RetryCallState

from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import Message, Reject
from prerouter.engines.http import BoundedTransport
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.retries import ServerError, attempts, retry_after_seconds
from prerouter.recipe.engine import OpenAIEngine
from tests.engines.fault_server import FaultServer, requests, running_server, section

SAMPLING = Sampling(max_tokens=50)
KEY = "sk-sentinel-0123456789abcdef"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running_server() as server:
        yield server


def ask(server: FaultServer, *prompts: str, **changes: object) -> list[Completion]:
    engine = OpenAIServer(section(server, **changes))
    results = dict(engine.generate(requests(*prompts), SAMPLING))
    assert sorted(results) == list(range(len(prompts)))
    return [results[index] for index in range(len(prompts))]


PASSING = {
    "busy": r"HTTP 429: slow down",
    "broken": r"HTTP 500: out of memory",
    "dropped": r"connection failed: RemoteProtocolError",
    "not_json": r"malformed reply: not JSON",
    "error_in_200": r"malformed reply: choices: Field required",
    "no_choices": r"0 choices instead of 1",
    "two_choices": r"2 choices instead of 1",
    "null": r"neither content nor reasoning",
    "null_beside_reasoning": r"reasoning without content",
    "blank_beside_reasoning": r"reasoning without content",
    "overloaded": r"finish_reason 'insufficient_system_resource'",
    "aborted": r"finish_reason 'abort'",
    "rot13_error": r"HTTP 500: out of memory",
    "not_utf8": r"malformed reply: not UTF-8",
    "half_gzip": r"malformed reply: half a gzip",
    "brotli": r"content-encoding 'br' was not asked for",
}
LASTING = {
    "too_long": "HTTP 400: maximum context length is 4096 tokens",
    "forbidden": "HTTP 403: no access",
    "unknown": "HTTP 404: no such model",
    "unprocessable": "HTTP 422: bad field",
    "payment": "HTTP 402: Insufficient Balance",
    "method": "HTTP 405: not allowed",
    "proxy": "HTTP 407: who are you",
    "bad_field": "HTTP 400: Unsupported parameter: 'max_tokens'",
    "too_large": "HTTP 413: entity too large",
    "redirect": "HTTP 307",
    "filtered": "finish_reason 'content_filter'",
    "refused": "the model refused to answer",
}


@pytest.mark.parametrize(("fault", "reason"), PASSING.items())
def test_a_fault_that_passes_is_tried_again(server: FaultServer, fault: str, reason: str) -> None:
    for_good, for_now = f"{fault} all", f"{fault} 2"
    done = ask(server, "one", for_good, "two", for_now, "three")
    assert [done[index].text for index in (0, 2, 4)] == [
        "answer to one", "answer to two", "answer to three",
    ]  # fmt: skip
    assert done[1].finish_reason == "error"
    assert done[1].error == f"{reason} (after 3 attempts)"
    assert (done[3].finish_reason, done[3].text) == ("stop", f"answer to {for_now}")
    # Exactly the section's attempts: no second layer of retries multiplies them.
    assert server.seen.attempts == {
        "one": 1, "two": 1, "three": 1, for_good: 3, for_now: 3,
    }  # fmt: skip


@pytest.mark.parametrize(("fault", "reason"), LASTING.items())
def test_a_fault_that_stays_is_not(server: FaultServer, fault: str, reason: str) -> None:
    done = ask(server, "one", f"{fault} all", "two")
    assert [done[0].text, done[2].text] == ["answer to one", "answer to two"]
    assert done[1].error == f"{reason} (after 1 attempt)"
    assert server.seen.attempts == {"one": 1, "two": 1, f"{fault} all": 1}
    # What lies with this one prompt is refused for good, all else is asked again by a rerun.
    assert done[1].passing is (fault not in ("too_long", "too_large", "filtered", "refused"))


@pytest.mark.parametrize("fault", ["hanging", "dripping"])
def test_a_hang_past_the_timeout(server: FaultServer, fault: str) -> None:
    began = time.monotonic()
    done = ask(server, "one", f"{fault} all", f"{fault} 1", "two", timeout_seconds=0.4)
    assert [done[0].text, done[3].text] == ["answer to one", "answer to two"]
    assert done[1].error == "no reply within 0.4 seconds (after 3 attempts)"
    assert done[2].text == f"answer to {fault} 1"
    assert server.seen.attempts[f"{fault} all"] == 3
    assert 1.2 <= time.monotonic() - began < 10


@pytest.mark.parametrize(("temperature", "asked"), [(0.7, 2), (0.0, 1)])
def test_a_reply_cut_off_is_asked_again_with_another_seed(
    server: FaultServer, temperature: float, asked: int
) -> None:
    engine = OpenAIServer(section(server, cut_off_attempts=2))
    request = GenerationRequest((Message(role="user", content="cut_off all"),), seed=7)
    ((_, done),) = engine.generate([request], Sampling(max_tokens=5, temperature=temperature))
    assert (done.finish_reason, done.error) == ("length", None)
    assert [body["seed"] for body in server.seen.bodies] == [7, 8][:asked]
    assert (done.prompt_tokens, done.completion_tokens) == (10, 3)
    # The attempt before was paid for as well.
    lost = asked - 1
    assert (done.lost_prompt_tokens, done.lost_completion_tokens) == (10 * lost, 3 * lost)


@pytest.mark.parametrize(
    ("fault", "lost", "own"),
    [
        ("cut_off 1", 1, 1),
        ("null 2", 2, 1),
        ("null all", 3, 0),
        ("filtered all", 1, 0),
        ("busy 2", 0, 1),
    ],
)
def test_what_a_reply_took_that_is_none_is_counted_apart(
    server: FaultServer, fault: str, lost: int, own: int
) -> None:
    sampling = Sampling(max_tokens=50, temperature=0.7)
    ((_, done),) = OpenAIServer(section(server)).generate(requests(fault), sampling)
    assert (done.prompt_tokens, done.completion_tokens) == (10 * own, 3 * own)
    assert (done.lost_prompt_tokens, done.lost_completion_tokens) == (10 * lost, 3 * lost)


def test_seconds_are_those_of_all_attempts(server: FaultServer) -> None:
    sampling = Sampling(max_tokens=50, temperature=0.7)
    began = time.monotonic()
    ((_, done),) = OpenAIServer(section(server)).generate(requests("slowly_cut_off 1"), sampling)
    assert 0.4 <= done.seconds <= time.monotonic() - began


@pytest.mark.parametrize(("fault", "text"), [("rot13 all", "caf\u00e9"), ("gzip all", "packed")])
def test_a_body_is_read_whatever_its_charset_is_called(
    server: FaultServer, fault: str, text: str
) -> None:
    (done,) = ask(server, fault)
    assert (done.text, done.error) == (text, None)


@pytest.mark.parametrize("fault", ["bomb", "endless"])
def test_a_reply_without_end_is_left(server: FaultServer, fault: str) -> None:
    done = ask(server, "one", f"{fault} all", "two")
    assert [done[0].text, done[2].text] == ["answer to one", "answer to two"]
    assert done[1].error == "a reply of over 8 MiB (after 1 attempt)"


class _Once(httpx2.AsyncByteStream):
    def __init__(self, parts: Iterable[bytes]) -> None:
        self._parts = parts

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for part in self._parts:
            yield part


@pytest.mark.parametrize(
    ("parts", "encoding"),
    [
        ([gzip.compress(b"a" * (64 << 20))], "gzip"),
        (itertools.repeat(b"a" * 65536), "identity"),
    ],
)
def test_no_reply_takes_more_memory_than_the_limit_lets_it(
    parts: Iterable[bytes], encoding: str
) -> None:
    class Inner(httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
            headers = {"content-encoding": encoding}
            return httpx2.Response(200, headers=headers, stream=_Once(parts))

    transport = BoundedTransport("key", Inner())
    request = httpx2.Request("POST", "http://127.0.0.1/v1/chat/completions")
    tracemalloc.start()
    with pytest.raises(ServerError, match="over 8 MiB"):
        asyncio.run(transport.handle_async_request(request))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 32 << 20


def test_a_host_that_takes_no_connection_is_not_waited_for_as_for_a_reply(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A listener whose queue is full lets no more connections in, as a black hole does.
    monkeypatch.setattr("prerouter.engines.http._CONNECT_SECONDS", 0.2)
    with socket.socket() as listener, contextlib.ExitStack() as queue:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        address = listener.getsockname()
        for _ in range(4):
            waiting = queue.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(address)
        began = time.monotonic()
        base_url = f"http://127.0.0.1:{address[1]}/v1"
        (done,) = ask(server, "one", base_url=base_url, timeout_seconds=30, max_attempts=2)
    assert done.error == "connection failed: ConnectTimeout (after 2 attempts)"
    assert time.monotonic() - began < 10


def test_a_prompt_that_can_not_be_sent(server: FaultServer) -> None:
    done = ask(server, "one", "half a character: \ud800", "two")
    assert [done[0].text, done[2].text] == ["answer to one", "answer to two"]
    assert done[1].error == "the request holds text that can't be sent (after 1 attempt)"


def test_nobody_listens() -> None:
    with running_server() as server:
        pass
    (done,) = ask(server, "one", max_attempts=2)
    assert done.error == "connection failed: ConnectError (after 2 attempts)"


@pytest.mark.parametrize(("fault", "least"), [("busy_second 1", 1.0), ("busy_date 1", 0.9)])
def test_retry_after_is_waited(server: FaultServer, fault: str, least: float) -> None:
    done = ask(server, fault, "fine")
    first, second = server.seen.times[fault]
    assert least <= second - first < 10
    assert done[0].text == f"answer to {fault}"


def test_an_hour_is_not_waited(server: FaultServer) -> None:
    began = time.monotonic()
    (done,) = ask(server, "busy_hour all", max_wait_seconds=0.2)
    assert done.error == "HTTP 503: maintenance (after 3 attempts)"
    assert 0.4 <= time.monotonic() - began < 10


def waits(attempt: int, retry_after: float | None = None, count: int = 200) -> list[float]:
    retrying = attempts(
        OpenAIEngine(
            kind="openai",
            model="m",
            base_url="http://127.0.0.1/v1",
            backoff_seconds=0.5,
            max_wait_seconds=8,
        )
    )
    state = RetryCallState(retrying, None, (), {})
    state.attempt_number = attempt
    fault = ServerError("busy", passing=True, retry_after=retry_after)
    state.set_exception((ServerError, fault, None))
    return [retrying.wait(state) for _ in range(count)]


@pytest.mark.parametrize(("attempt", "most"), [(1, 0.5), (2, 1.0), (3, 2.0), (10, 8.0)])
def test_waits_double_up_to_a_cap_and_differ(attempt: int, most: float) -> None:
    drawn = waits(attempt)
    assert min(drawn) >= 0
    assert max(drawn) <= most
    # Full jitter: a crowd that was refused together does not come back together.
    assert min(drawn) < most * 0.2
    assert max(drawn) > most * 0.8


def test_what_the_server_asks_for_is_waited_before_the_jitter() -> None:
    drawn = waits(1, retry_after=3)
    assert min(drawn) >= 3
    assert max(drawn) <= 3.5
    assert max(waits(1, retry_after=3600)) <= 8.5


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Wed, 21 Oct 2026 07:28:30 GMT", 30.0),
        ("Wed, 21 Oct 2026 07:28:30 -0000", 30.0),
        ("Wed, 21 Oct 2026 07:27:00 GMT", 0.0),
        ("nan", None),
        ("inf", None),
        ("soon", None),
        ("Mon, 01 Jan 2026 00:00:00 +99999999999999999", None),
        ("Mon, 01 Jan 99999 00:00:00 GMT", None),
        ("", None),
        (None, None),
    ],
)
def test_retry_after_forms(header: str | None, seconds: float | None) -> None:
    now = datetime(2026, 10, 21, 7, 28, 0, tzinfo=UTC)
    assert retry_after_seconds(header, now) == seconds


def test_the_key_shows_nowhere(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MY_TEACHER_KEY", KEY)
    caplog.set_level(logging.DEBUG)
    engine = OpenAIServer(section(server, api_key_variable="MY_TEACHER_KEY", timeout_seconds=0.4))
    prompts = ["echo_key all", "busy all", "dropped all", "hanging all", "fine"]
    done = dict(engine.generate(requests(*prompts), SAMPLING))
    assert server.seen.keys == {f"Bearer {KEY}"}
    assert done[0].error == "HTTP 401: no such key: Bearer [key] [31m (after 1 attempt)"
    rejects = [
        Reject(stage="teach", key="k", reason="call_failed", detail=completion.error or "")
        for completion in done.values()
    ]
    shown = [repr(done), repr(engine), repr(engine.__dict__), repr(rejects), caplog.text]
    assert caplog.records
    for text in [*shown, *(repr(record.__dict__) for record in caplog.records)]:
        assert KEY not in text


@pytest.mark.parametrize(
    ("fault", "text", "error"),
    [
        ("echo_escaped all", "[key]", None),
        ("echo_escaped_twice all", "", "the reply spells out the key (after 1 attempt)"),
    ],
)
def test_a_key_in_another_spelling_of_json_shows_nowhere(
    server: FaultServer,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    text: str,
    error: str | None,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    (done,) = ask(server, fault)
    assert (done.text, done.error) == (text, error)


def test_ctrl_c_ends_within_seconds(server: FaultServer, tmp_path: Path) -> None:
    script = tmp_path / "teach.py"
    script.write_text(
        "import sys\n"
        "from prerouter.core.protocols import GenerationRequest, Sampling\n"
        "from prerouter.core.records import Message\n"
        "from prerouter.engines.openai import OpenAIServer\n"
        "from prerouter.recipe.engine import OpenAIEngine\n"
        "section = OpenAIEngine(kind='openai', model='m', base_url=sys.argv[1])\n"
        "asked = [GenerationRequest((Message(role='user', content=text),))\n"
        "         for text in ('a', 'hanging all', 'hanging all 2')]\n"
        "for index, done in OpenAIServer(section).generate(asked, Sampling(max_tokens=5)):\n"
        "    print(done.text, flush=True)\n"
    )
    process = subprocess.Popen(
        [sys.executable, str(script), server.base_url],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "answer to a\n"
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=15)
    assert time.monotonic() - began < 8
    assert "KeyboardInterrupt" in errors
    assert process.returncode != 0
