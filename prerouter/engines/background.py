"""Concurrent requests as a plain iterator: an event loop in a thread of its own."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TypeVar

Client = TypeVar("Client")
Item = TypeVar("Item")
Result = TypeVar("Result")

_SECONDS_TO_STOP = 5.0


def results_as_done(
    open_client: Callable[[], AbstractAsyncContextManager[Client]],
    work: Callable[[Client, Item], Awaitable[Result]],
    items: Sequence[Item],
    limit: int,
) -> Iterator[tuple[Item, Result]]:
    """Yield (item, result) as they get done; an exception of `work` or `open_client` ends it all.

    `limit` bounds the items that are in work or wait to be taken: an item counts until the consumer
    comes back for the next, so a kill loses no more than that many. Closing the iterator, or
    Ctrl-C in the consumer, cancels what is in work and returns within seconds.
    """
    if not items:
        return
    done: queue.SimpleQueue[tuple[Item, Result] | BaseException] = queue.SimpleQueue()
    free = asyncio.Semaphore(limit)

    async def do(client: Client, item: Item) -> None:
        done.put((item, await work(client, item)))

    async def do_all() -> None:
        try:
            async with open_client() as client, asyncio.TaskGroup() as group:
                for item in items:
                    await free.acquire()
                    group.create_task(do(client, item))
        except BaseExceptionGroup as errors:
            done.put(errors.exceptions[0])
        except BaseException as error:  # noqa: BLE001 -- the consumer's thread raises it
            done.put(error)

    loop = asyncio.new_event_loop()
    task = loop.create_task(do_all())
    # A daemon, so that a consumer who died holding the iterator never keeps the process alive.
    thread = threading.Thread(target=loop.run_until_complete, args=(task,), daemon=True)
    thread.start()
    try:
        for _ in range(len(items)):
            result = done.get()
            if isinstance(result, BaseException):
                raise result
            yield result
            loop.call_soon_threadsafe(free.release)
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(_SECONDS_TO_STOP)
        if not thread.is_alive():
            loop.close()
