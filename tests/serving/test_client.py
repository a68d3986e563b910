from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import prerouter
from prerouter.core.errors import InputError
from prerouter.core.records import AnswerModel, DocumentProfile, Route, RoutingCase
from prerouter.serving.client import Client, ServiceError
from prerouter.serving.wire import MAX_CASES, AskedCase

from .routers import Broken, Echo
from .running import running

READER = AnswerModel(name="reader-4k", context_window=4_096)


def case(number: int) -> RoutingCase:
    return RoutingCase(
        case_id=f"case {number}",
        question_id="q",
        group_id="g",
        question=f"Number {number}",
        document=DocumentProfile(document_id="d", title="T", tokens=9, head="It begins"),
        answer_model=READER,
    )


@contextmanager
def scripted(*replies: tuple[int, dict[str, str], Any]) -> Iterator[tuple[str, list[float]]]:
    """A server that gives these replies in turn, the last for ever, and the times it was asked."""
    times: list[float] = []

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Silent."""

        def do_POST(self) -> None:
            times.append(time.monotonic())
            self.rfile.read(int(self.headers["content-length"]))
            status, headers, body = replies[min(len(times), len(replies)) - 1]
            content = json.dumps(body).encode()
            self.send_response(status)
            for name, value in {**headers, "content-length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", times
        finally:
            server.shutdown()
            thread.join()


def decided(case_id: str | None) -> dict[str, Any]:
    return {"decisions": [{"case_id": case_id, "route": "LC", "router": {"name": "scripted"}}]}


BUSY: tuple[int, dict[str, str], Any] = (503, {"retry-after": "1"}, {"error": "the queue is full"})
DONE: tuple[int, dict[str, str], Any] = (200, {}, decided("case 1"))


def test_it_is_public_and_light() -> None:
    assert prerouter.Client is Client
    code = "import sys, prerouter; prerouter.Client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "transformers", "fastapi", "uvicorn"} & set(done.stdout.split())


def test_decisions_are_typed_and_in_order() -> None:
    with running(Echo()) as address, Client(address) as client:
        one = client.decide(case(3))
        several = client.decide([case(n) for n in range(MAX_CASES + 20)])
        asked = AskedCase(question="Number 5", answer_model=READER)
        assert [each.route for each in client.decide([asked, case(4)])] == [Route.LC, Route.RAG]
        assert client.health().router.name == "echo"
        assert client.decide([]) == []
    assert (one[0].route, one[0].p_lc, one[0].case_id) == (Route.LC, 0.75, "case 3")
    assert [each.case_id for each in several] == [f"case {n}" for n in range(MAX_CASES + 20)]


def test_the_asynchronous_way_is_the_same() -> None:
    async def ask(address: str) -> list[Any]:
        async with Client(address) as client:
            return await asyncio.gather(*(client.adecide(case(n)) for n in range(20)))

    with running(Echo()) as address:
        told = asyncio.run(ask(address))
    assert [each[0].case_id for each in told] == [f"case {n}" for n in range(20)]


def test_a_fallback_is_told_as_one() -> None:
    with running(Broken(), fallback=Route.LC) as address, Client(address) as client:
        asked = AskedCase(question="raise", answer_model=READER)
        (told,) = client.decide(asked)
    assert (told.route, told.fallback, told.fallback_reason) == (Route.LC, True, "call_failed")


def test_the_key_goes_along() -> None:
    with running(Echo(), api_key="secret") as address:
        assert Client(address, "secret").decide(case(1))[0].route is Route.LC
        with pytest.raises(ServiceError, match="no valid key") as refused:
            Client(address, "other").decide(case(1))
    assert refused.value.status == 401
    assert "other" not in str(refused.value)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_busy_service_is_asked_again_when_it_says(asynchronous: bool) -> None:
    with scripted(BUSY, DONE) as (address, times):
        client = Client(address)
        told = asyncio.run(client.adecide(case(1))) if asynchronous else client.decide(case(1))
    assert told[0].route is Route.LC
    assert 1.0 <= times[1] - times[0] < 3.0


def test_no_wait_is_longer_than_was_allowed() -> None:
    with scripted((429, {"retry-after": "3600"}, {}), DONE) as (address, times):
        Client(address, max_wait_seconds=0.1).decide(case(1))
    assert times[1] - times[0] < 2.0


def test_attempts_end() -> None:
    with scripted((500, {}, "no reason")) as (address, times):
        with pytest.raises(ServiceError, match="answers 500") as refused:
            Client(address, attempts=3, max_wait_seconds=0.01).decide(case(1))
        assert len(times) == 3
    assert refused.value.status == 500


@pytest.mark.parametrize("status", [302, 400, 401, 413, 422])
def test_what_would_be_refused_again_is_asked_once(status: int) -> None:
    reply = (status, {"location": "http://127.0.0.1:9/"}, {"error": "question: is\nempty"})
    with scripted(reply) as (address, times):
        with pytest.raises(ServiceError, match="question: is empty"):
            Client(address).decide(case(1))
        assert len(times) == 1


@pytest.mark.parametrize(
    "body", [decided("case 2"), decided(None), {"decisions": []}, {}, "text", None]
)
def test_an_answer_to_something_else_is_no_answer(body: Any) -> None:
    with scripted((200, {}, body)) as (address, _), pytest.raises(ServiceError, match="answers"):
        Client(address).decide(case(1))


def test_nobody_there_is_told() -> None:
    client = Client("http://127.0.0.1:9", attempts=2, max_wait_seconds=0.01)
    with pytest.raises(ServiceError, match="can't be asked: ConnectError"):
        client.decide(case(1))
    with pytest.raises(ServiceError, match="can't be asked"):
        asyncio.run(client.adecide(case(1)))
    with pytest.raises(ServiceError, match="can't be asked"):
        client.health()


@pytest.mark.parametrize(
    ("address", "options"),
    [
        ("127.0.0.1:8080", {}),
        ("http://", {}),
        ("ftp://host", {}),
        ("http://host", {"api_key": "two\r\nlines"}),
        ("http://host", {"api_key": ""}),
        ("http://host", {"attempts": 0}),
    ],
)
def test_what_can_never_work_is_refused_at_once(address: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Client(address, **options)
