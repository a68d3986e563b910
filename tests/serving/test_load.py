"""The short form of benchmarks/serving.py: many clients at once, and an end in good order."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx2
import pytest

from prerouter.core.errors import StageError
from prerouter.serving.server import open_socket
from prerouter.serving.service import Limits

from .routers import Echo
from .running import asked, post, running

CLIENTS, ROUNDS = 50, 8
SERVE = """
import sys
from prerouter.serving.server import open_socket, serve
from prerouter.serving.served import as_served
from prerouter.serving.service import Limits, make_app
from tests.serving.routers import Echo

listening = open_socket("127.0.0.1", 0)
app = make_app(as_served(Echo(seconds=1.0)), Limits())
serve(app, listening, 30, lambda: print(listening.getsockname()[1], flush=True))
print("ended")
"""


def test_no_answer_of_many_is_lost_or_mixed_up() -> None:
    async def client(address: str, number: int, found: list[int]) -> None:
        async with httpx2.AsyncClient(base_url=address, timeout=30) as http:
            for turn in range(ROUNDS):
                asks = number * ROUNDS + turn
                case = asked(f"Number {asks}", case_id=str(asks))
                told = (await http.post("/v1/route", json=case)).json()
                assert told["case_id"] == str(asks)
                assert told["rationale"]["free_text"] == f"Number {asks}"
                assert told["route"] == ("LC" if asks % 2 else "RAG")
                found.append(asks)

    async def all_clients(address: str) -> list[int]:
        found: list[int] = []
        await asyncio.gather(*(client(address, number, found) for number in range(CLIENTS)))
        return found

    echo = Echo()
    with running(echo, Limits(max_batch=8)) as address:
        found = asyncio.run(all_clients(address))
    assert sorted(found) == list(range(CLIENTS * ROUNDS))
    assert max(echo.batches) > 1


def test_an_overload_is_refused_and_what_was_taken_is_answered() -> None:
    async def many(address: str) -> list[httpx2.Response]:
        limits = httpx2.Limits(max_connections=None)
        async with httpx2.AsyncClient(base_url=address, timeout=30, limits=limits) as http:
            calls = [http.post("/v1/route", json=asked(f"Number {n}")) for n in range(60)]
            return list(await asyncio.gather(*calls))

    with running(Echo(0.1), Limits(max_batch=2, queue=4)) as address:
        responses = asyncio.run(many(address))
    statuses = [response.status_code for response in responses]
    assert set(statuses) == {200, 503}
    for number, response in enumerate(responses):
        if response.status_code == 200:
            assert response.json()["rationale"]["free_text"] == f"Number {number}"
        else:
            assert int(response.headers["retry-after"]) >= 1


def test_sigterm_finishes_what_is_in_flight_and_takes_nothing_new(repository: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", SERVE], cwd=repository, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        address = f"http://127.0.0.1:{process.stdout.readline().strip()}"
        answers: list[httpx2.Response] = []
        in_flight = threading.Thread(
            target=lambda: answers.append(post(address, asked("Number 7")))
        )
        in_flight.start()
        # The answer takes a second, by when it is both asked and not yet given.
        in_flight.join(0.5)
        assert not answers
        process.send_signal(signal.SIGTERM)
        in_flight.join(0.2)
        with pytest.raises(httpx2.ConnectError):
            post(address, asked("Number 8"))
        in_flight.join(10)
        assert answers[0].json()["rationale"]["free_text"] == "Number 7"
        assert process.wait(10) == 0
        assert process.stdout.read() == "ended\n"


def test_a_port_that_is_taken_is_told() -> None:
    with open_socket("127.0.0.1", 0) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StageError, match="can't be listened on"):
            open_socket("127.0.0.1", port)
    with pytest.raises(StageError, match="can't be listened on"):
        open_socket("no.such.host.invalid", 0)
