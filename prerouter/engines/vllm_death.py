"""A killed vLLM engine process is noticed by whoever waits for its output."""

from __future__ import annotations

import multiprocessing
import multiprocessing.connection
import threading
from multiprocessing.process import BaseProcess
from typing import Any


def raise_when_killed(engine: Any, processes: set[BaseProcess]) -> None:
    """Make `engine.step`, and calls of the workers, raise EngineDeadError once one of its
    `processes` ends.

    vLLM marks an engine as dead whose process was killed (by the kernel for memory, say), but
    leaves who waits for its output waiting for ever.
    """
    # Only the client of an engine in another process has this queue.
    outputs = getattr(engine.engine_core, "outputs_queue", None)
    if outputs is None or not processes:
        return
    calls = engine.engine_core.utility_results
    sentinels = [process.sentinel for process in processes]

    def watch() -> None:
        from vllm.v1.engine.exceptions import EngineDeadError

        multiprocessing.connection.wait(sentinels)
        outputs.put_nowait(EngineDeadError())
        for call in list(calls.values()):
            call.set_exception(EngineDeadError())

    # It holds the queue and not the engine, which can be freed while this waits.
    threading.Thread(target=watch, name="prerouter-vllm-watch", daemon=True).start()
