"""Cases of concurrent requests, gathered into batches for a router that one thread runs."""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Sequence

from prerouter.core.protocols import Router
from prerouter.core.records import Decision, DecisionFailure, RoutingCase

LINGER_SECONDS = 0.002
"""How long a batch that isn't full waits for what arrives at the same moment."""
_LONGEST_ADVICE = 60

log = logging.getLogger(__name__)


_Batch = tuple[Sequence[RoutingCase], asyncio.Future[list[Decision]]]


class QueueFullError(Exception):
    """No room for so many cases. `retry_after` is in whole seconds, at least 1."""

    def __init__(self, retry_after: int) -> None:
        self.retry_after = retry_after
        super().__init__(f"the queue is full; try again in {retry_after} s")


class Batcher:
    """Everything but the router itself runs on the event loop, so that nothing is locked.

    A router that raises costs the case that it raised at: its batch is asked again one by one.
    """

    def __init__(self, router: Router, *, max_batch: int, queue_limit: int) -> None:
        self._router = router
        self._max_batch = max_batch
        self._queue_limit = queue_limit
        self._waiting: deque[tuple[RoutingCase, asyncio.Future[Decision]]] = deque()
        self._arrived = asyncio.Event()
        self._due: queue.SimpleQueue[_Batch | None] = queue.SimpleQueue()
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._began: float | None = None
        self._last_seconds = 0.0

    @property
    def waiting(self) -> int:
        """Cases that no batch has taken yet, and that somebody still waits for."""
        return sum(not future.done() for _, future in self._waiting)

    @property
    def busy_seconds(self) -> float:
        """How long the batch in hand takes by now; 0 where there is none."""
        return 0.0 if self._began is None else time.monotonic() - self._began

    def start(self) -> None:
        """Inside the event loop that submits."""
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._gather())
        # A daemon: a model that hangs must not hold up the end of the process.
        threading.Thread(target=self._work, name="router", daemon=True).start()

    async def stop(self) -> None:
        if self._task:
            self._task.cancel()
            self._due.put(None)
            await asyncio.gather(self._task, return_exceptions=True)

    def submit(self, cases: Sequence[RoutingCase]) -> list[asyncio.Future[Decision]]:
        """A future for each case; a cancelled one is passed over. `case_id`s must be unique.

        Raises QueueFullError where there isn't room for all of them.
        """
        if len(self._waiting) + len(cases) > self._queue_limit:
            # Those that nobody waits for any more hold no place.
            self._waiting = deque(each for each in self._waiting if not each[1].done())
        if len(self._waiting) + len(cases) > self._queue_limit:
            # Room comes when a batch is done: the last one tells how long that takes.
            advice = math.ceil(max(self._last_seconds, self.busy_seconds))
            raise QueueFullError(min(max(advice, 1), _LONGEST_ADVICE))
        assert self._loop is not None
        futures = [self._loop.create_future() for _ in cases]
        self._waiting.extend(zip(cases, futures, strict=True))
        self._arrived.set()
        return futures

    async def _gather(self) -> None:
        assert self._loop is not None
        while True:
            await self._arrived.wait()
            if len(self._waiting) < self._max_batch:
                await asyncio.sleep(LINGER_SECONDS)
            batch = self._take()
            if batch:
                done: asyncio.Future[list[Decision]] = self._loop.create_future()
                self._began = time.monotonic()
                self._due.put(([case for case, _ in batch], done))
                decisions = await done
                self._last_seconds = self.busy_seconds
                self._began = None
                for (_, future), decision in zip(batch, decisions, strict=True):
                    if not future.done():
                        future.set_result(decision)
            if not self._waiting:
                self._arrived.clear()

    def _take(self) -> list[tuple[RoutingCase, asyncio.Future[Decision]]]:
        batch: list[tuple[RoutingCase, asyncio.Future[Decision]]] = []
        while self._waiting and len(batch) < self._max_batch:
            case, future = self._waiting.popleft()
            if not future.done():
                batch.append((case, future))
        return batch

    def _work(self) -> None:
        assert self._loop is not None
        while batch := self._due.get():
            cases, done = batch
            decisions = self._decide(cases)
            try:
                self._loop.call_soon_threadsafe(_deliver, done, decisions)
            except RuntimeError:
                return  # The loop is closed: nobody waits any more.

    def _decide(self, cases: Sequence[RoutingCase]) -> list[Decision]:
        try:
            decisions = list(self._router.route(cases))
            if [each.case_id for each in decisions] != [case.case_id for case in cases]:
                raise RuntimeError("the router lost a case or turned their order")
        # Whatever a model raises, a panic of Rust's that is no Exception among it, the service goes
        # on and says so in its answer: there is no other thread to ask.
        except BaseException:
            if len(cases) > 1:
                return [decision for case in cases for decision in self._decide([case])]
            log.exception("the router failed")
            return [
                Decision(
                    case_id=cases[0].case_id,
                    router=self._router.name,
                    failure=DecisionFailure.CALL_FAILED,
                )
            ]
        return decisions


def _deliver(done: asyncio.Future[list[Decision]], decisions: list[Decision]) -> None:
    if not done.done():
        done.set_result(decisions)
