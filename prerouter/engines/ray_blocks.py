"""Rows through workers of a Ray cluster by Ray Data, block by block, as they get done."""

from __future__ import annotations

import logging
import math
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prerouter.core.errors import StageError

TRIES = 4
"""How often a block is begun whose worker dies, before it is given up."""


@dataclass(frozen=True)
class Pool:
    """How many workers, what each takes of its machine, and how it is fed."""

    workers: int
    cpus: int
    gpus: int
    rows_per_block: int
    concurrent_blocks: int


def rows_through_workers(
    rows: Sequence[dict[str, Any]],
    worker: Callable[..., Callable[[Mapping[str, Any]], Mapping[str, Any]]],
    arguments: tuple[Any, ...],
    pool: Pool,
) -> Generator[dict[str, Any], None, None]:
    """Yield what `worker(*arguments)` makes of `rows`, a block at a time, the blocks in any order.

    A worker is called from several threads, each with the columns of one block. One that dies is
    started again, and its blocks are run by whoever is free; the rows of a block that saw `TRIES`
    deaths never come. Leaving early ends the workers. Raises StageError where more blocks are lost
    than the workers have in hand at once, or where one can't be made.
    """
    import ray.data
    import ray.exceptions
    import ray.util.annotations

    blocks = math.ceil(len(rows) / pool.rows_per_block)
    if not blocks:
        return
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.print_on_execution_start = False
    # Loading a large model takes its time.
    context.execution_no_progress_timeout_s = -1
    # A row that kills its worker takes along all that the worker had in hand.
    context.max_errored_blocks = pool.workers * (pool.concurrent_blocks + 1)
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    # Retries have no named parameter yet; the pinned versions take them, and warn.
    warnings.simplefilter("ignore", ray.util.annotations.RayDeprecationWarning)
    done = ray.data.from_items(list(rows), override_num_blocks=blocks).map_batches(
        worker,
        fn_constructor_args=arguments,
        batch_size=None,
        compute=ray.data.ActorPoolStrategy(
            size=pool.workers,
            max_concurrent_calls_per_actor=pool.concurrent_blocks,
            # One lies ready, and no more of them that another worker could have taken.
            max_tasks_in_flight_per_actor=pool.concurrent_blocks + 1,
            enable_true_multi_threading=True,
        ),
        num_cpus=pool.cpus,
        num_gpus=pool.gpus,
        max_restarts=-1,
        max_task_retries=TRIES - 1,
    )
    batches: Iterator[Mapping[str, Any]] = iter(
        done.iter_batches(batch_size=None, batch_format="numpy", prefetch_batches=0)
    )
    try:
        for batch in batches:
            for values in zip(*batch.values(), strict=True):
                yield dict(zip(batch, values, strict=True))
    except ray.exceptions.RayError as error:
        raise StageError(
            "ray",
            f"the workers die ({' '.join(str(error).split())[:300]})",
            next_step="read their own lines above; a rerun goes on with what is missing",
        ) from error
