from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

import prerouter
from prerouter.core.errors import InputError
from prerouter.core.records import AnswerModel, DocumentProfile, Route, RoutingCase
from prerouter.serving.client import Client, ServiceError
from prerouter.serving.service import Limits
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


@pytest.mark.parametrize("asynchronous", [False, True])
def test_more_than_the_service_takes_goes_in_halves(asynchronous: bool) -> None:
    cases = [case(n) for n in range(10)]
    # 413 for more cases than its queue holds.
    with running(Echo(), Limits(queue=3)) as address:
        client = Client(address, attempts=1)
        told = asyncio.run(client.adecide(cases)) if asynchronous else client.decide(cases)
    assert [each.case_id for each in told] == [f"case {n}" for n in range(10)]


def test_a_body_is_no_larger_than_a_service_takes_by_default() -> None:
    head = "ä" * 20_000
    profile = DocumentProfile(document_id="d", head=head)
    long = [case(n).model_copy(update={"document": profile}) for n in range(60)]
    echo = Echo()
    with running(echo) as address, Client(address, attempts=1) as client:
        assert len(client.decide(long)) == 60
        refused = httpx2.get(f"{address}/metrics").text
    assert 'prerouter_refused_requests_total{status="413"}' not in refused


def test_a_case_that_no_service_takes_is_told_by_its_name() -> None:
    endless = case(1).model_copy(update={"question": "q" * 20_001})
    with pytest.raises(InputError, match="case case 1: question: "):
        Client("http://127.0.0.1:9").decide(endless)


def test_no_connection_outlives_its_client() -> None:
    async def ask(client: Client) -> None:
        await client.adecide(case(1))

    with running(Echo()) as address, warnings.catch_warnings():
        warnings.simplefilter("error", ResourceWarning)
        with Client(address) as client:
            # Two loops: a connection that is kept would belong to the first.
            asyncio.run(ask(client))
            asyncio.run(ask(client))
        del client
        gc.collect()


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
        ("http://host:port", {}),
        ("http://[::1", {}),
        ("http://host\x00", {}),
        ("ftp://host", {}),
        ("http://host", {"api_key": "two\r\nlines"}),
        ("http://host", {"api_key": ""}),
        ("http://host", {"attempts": 0}),
    ],
)
def test_what_can_never_work_is_refused_at_once(address: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        Client(address, **options)


@pytest.mark.parametrize("address", ["http://ann:secret1@host", "http://secret1@host"])
def test_an_address_with_a_password_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(InputError, match="api_key") as refused:
        Client(address)
    assert "secret1" not in str(refused.value)
