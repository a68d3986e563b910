"""The service under load on loopback: nothing lost or mixed up, flat memory, order in the end.

    python benchmarks/serving.py --clients 200 --seconds 60

A router whose decision is a function of the question runs behind the service, so that every answer
is checked against what was asked. Four parts: clients that ask without pause while the server's
memory is sampled; an overload of a slow router with a short queue; bodies that must be refused;
SIGTERM while requests are in flight. The last line says whether all of it held.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import signal
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from prerouter.core.records import Decision, Rationale, Route, RoutingCase
from prerouter.serving.served import as_served
from prerouter.serving.server import open_socket, serve
from prerouter.serving.service import Limits, make_app

OVERLOAD_SECONDS, SLOW_BATCH_SECONDS, SHORT_QUEUE = 5.0, 0.05, 32
HELD_BATCH_SECONDS = 3.0
GROWTH = 1.05
"""Memory is flat where the last third of the samples is at most so many times the second third; in
the first, all connections and buffers come to be."""


class Echo:
    """LC for an odd number at the end of the question, which its rationale repeats."""

    name = "echo"

    def __init__(self, batch_seconds: float) -> None:
        self._batch_seconds = batch_seconds

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        time.sleep(self._batch_seconds)
        for case in cases:
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                route=expected(int(case.question.split()[-1])),
                rationale=Rationale(free_text=case.question),
            )


def expected(number: int) -> Route:
    return Route.LC if number % 2 else Route.RAG


@dataclass
class Tally:
    """What came of the requests of one part; `wrong` counts answers to something else."""

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: int = 0
    lost: int = 0
    without_retry_after: int = 0
    seconds: list[float] = field(default_factory=list)

    def take(self, number: int, response: httpx2.Response, seconds: float) -> None:
        self.statuses[response.status_code] += 1
        self.seconds.append(seconds)
        if response.status_code == 200:
            told = response.json()
            right = (told["case_id"], told["route"], told["rationale"]["free_text"]) == (
                str(number),
                expected(number).value,
                f"Number {number}",
            )
            self.wrong += not right
        elif response.status_code == 503:
            self.without_retry_after += int(response.headers.get("retry-after", 0)) < 1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--serve", type=float, help=argparse.SUPPRESS)
    parser.add_argument("--queue", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is not None:
        _serve(options.serve, options.queue, options.batch)
        return
    held = [
        _load(options.clients, options.seconds),
        _overload(options.clients),
        _refusals(),
        _end(options.clients),
    ]
    print("all held" if all(held) else "NOT ALL HELD")
    sys.exit(0 if all(held) else 1)


def _serve(batch_seconds: float, queue: int, batch: int) -> None:
    listening = open_socket("127.0.0.1", 0)
    app = make_app(as_served(Echo(batch_seconds)), Limits(queue=queue, max_batch=batch))
    serve(app, listening, 30, lambda: print(listening.getsockname()[1], flush=True))


@contextmanager
def _server(
    batch_seconds: float, queue: int = 1024, batch: int = 16
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, __file__, "--serve", str(batch_seconds)]
    command += ["--queue", str(queue), "--batch", str(batch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        try:
            yield process, f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.terminate()


def _load(clients: int, seconds: float) -> bool:
    with _server(0.0) as (process, address):
        tally, memory = asyncio.run(_ask(address, clients, seconds, process.pid))
    third = max(1, len(memory) // 3)
    second = statistics.median(memory[-2 * third : -third] or memory)
    last = statistics.median(memory[-third:])
    ordered = sorted(tally.seconds)
    p50, p95, p99 = (1000 * ordered[int(share * (len(ordered) - 1))] for share in (0.5, 0.95, 0.99))
    print(f"load: {clients} clients, {seconds:g} s: {dict(tally.statuses)}, {tally.lost} lost,")
    print(f"  {tally.wrong} mixed up; {len(ordered) / seconds:.0f} requests/s;")
    print(f"  p50 {p50:.0f}, p95 {p95:.0f}, p99 {p99:.0f} ms")
    print(f"  server's memory {second:.1f} MiB in the second third, {last:.1f} in the last")
    only_answers = set(tally.statuses) == {200} and not tally.lost and not tally.wrong
    return only_answers and last <= second * GROWTH


def _overload(clients: int) -> bool:
    with _server(SLOW_BATCH_SECONDS, SHORT_QUEUE) as (process, address):
        tally, _ = asyncio.run(_ask(address, clients, OVERLOAD_SECONDS, process.pid))
    print(f"overload: {dict(tally.statuses)}, {tally.lost} lost, {tally.wrong} mixed up,")
    print(f"  {tally.without_retry_after} of the 503 without Retry-After")
    bad = tally.lost + tally.wrong + tally.without_retry_after
    return set(tally.statuses) == {200, 503} and bad == 0


def _refusals() -> bool:
    json_type = {"content-type": "application/json"}

    def endless() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    bodies: dict[str, Any] = {
        "10 MB": b" " * 10_000_000,
        "10 MB in chunks": endless(),
        "no JSON": b"{",
        "deep JSON": b"[" * 100_000,
        "a list": b"[]",
        "a document's body": b'{"question": "q", "answer_model": {"name": "m"}, "text": "t"}',
    }
    found = {}
    with _server(0.0) as (_, address), httpx2.Client(timeout=30) as http:
        for name, body in bodies.items():
            response = http.post(f"{address}/v1/route", content=body, headers=json_type)
            found[name] = response.status_code
        after = http.post(f"{address}/v1/route", json=_case(1)).status_code
    print(f"refused: {found}; after them {after}")
    return all(400 <= status < 500 for status in found.values()) and after == 200


def _end(clients: int) -> bool:
    with _server(HELD_BATCH_SECONDS, batch=64) as (process, address):
        tally = asyncio.run(_ask_once(address, clients, process))
        code = process.wait(40)
    print(f"SIGTERM: {dict(tally.statuses)} of {clients} in flight, {tally.wrong} mixed up,")
    print(f"  {tally.lost} lost; exit code {code}")
    return tally.statuses == Counter({200: clients}) and not tally.wrong and code == 0


async def _ask(
    address: str, clients: int, seconds: float, server: int
) -> tuple[Tally, list[float]]:
    """Clients that ask without pause, and the server's memory in MiB, sampled twice a second."""
    tally, numbers, memory = Tally(), itertools.count(), list[float]()
    end = time.monotonic() + seconds

    async def client(http: httpx2.AsyncClient) -> None:
        while time.monotonic() < end:
            await _one(http, address, next(numbers), tally)

    async def watch() -> None:
        while time.monotonic() < end:
            memory.append(_resident_mib(server))
            await asyncio.sleep(0.5)

    async with _http(clients) as http:
        await asyncio.gather(watch(), *(client(http) for _ in range(clients)))
    return tally, memory


async def _ask_once(address: str, clients: int, server: subprocess.Popen[str]) -> Tally:
    """One request of each client, and SIGTERM once the server has all of them."""
    tally = Tally()
    async with _http(clients + 1) as http:
        calls = [asyncio.create_task(_one(http, address, n, tally)) for n in range(clients)]
        # The first batch takes long enough for all the others to arrive behind it.
        seen = [-1, -2, -3]
        while len(set(seen[-3:])) > 1:
            await asyncio.sleep(0.2)
            seen.append((await http.get(f"{address}/healthz")).json()["waiting"])
        server.send_signal(signal.SIGTERM)
        await asyncio.gather(*calls)
    return tally


async def _one(http: httpx2.AsyncClient, address: str, number: int, tally: Tally) -> None:
    began = time.monotonic()
    try:
        response = await http.post(f"{address}/v1/route", json=_case(number))
    except httpx2.HTTPError:
        tally.lost += 1
        return
    tally.take(number, response, time.monotonic() - began)
    if response.status_code == 503:
        await asyncio.sleep(0.1)


def _http(connections: int) -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=connections, max_keepalive_connections=connections)
    return httpx2.AsyncClient(limits=limits, timeout=60, trust_env=False)


def _case(number: int) -> dict[str, Any]:
    return {
        "case_id": str(number),
        "question": f"Number {number}",
        "answer_model": {"name": "reader", "context_window": 4096},
        "document": {"title": "A report", "type": "report", "tokens": 9_000, "head": "It begins"},
    }


def _resident_mib(process: int) -> float:
    lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))


if __name__ == "__main__":
    main()
