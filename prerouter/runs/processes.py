"""Several processes of one launcher (torchrun, accelerate, DeepSpeed, MPI): which of them this is.

The launcher's environment tells it; nothing is loaded to know it. The first process, rank 0, does
all the writing, and the others work along.
"""

from __future__ import annotations

import os

from prerouter.core.errors import StageError

_RANKS = ("RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_SIZES = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")


def world_size() -> int:
    """The number of processes that the launcher started, on all machines together; 1 without."""
    return _first(_SIZES, 1)


def rank() -> int:
    """This process's number among them, from 0. What one process alone inherits doesn't count."""
    return _first(_RANKS, 0) if world_size() > 1 else 0


def check_shared(stage: str, shared: bool) -> None:
    """Raises StageError where several processes were launched for a stage that runs in one."""
    if world_size() > 1 and not shared:
        raise StageError(
            stage,
            f"{world_size()} processes were launched, and this stage runs in one",
            next_step="launch several for `train` or `classify` alone, and the rest without them",
        )


def check_launch(place: str, wanted: int | None) -> None:
    """Raises StageError where fewer or more processes run than were asked for: by the launcher's
    own settings, or by `wanted`."""
    size = world_size()
    # accelerate names a meeting point for the several processes that it was asked for, and on a CPU
    # goes on to start one, which ends well after doing the work of all.
    asked_of_accelerate = {"ACCELERATE_MIXED_PRECISION", "MASTER_ADDR"} <= os.environ.keys()
    if size == 1 and asked_of_accelerate and not any(name in os.environ for name in _SIZES):
        raise StageError(
            place,
            "accelerate was asked for several processes and started one, as it does on a CPU",
            "torchrun on a CPU, or a launcher configuration for GPUs or DeepSpeed",
            f"torchrun --nproc_per_node 2 -m prerouter {place} RECIPE",
        )
    if wanted is not None and size != wanted:
        raise StageError(
            place,
            f"{size} processes run where {place}.processes says {wanted}",
            next_step="start as many by the launcher (its --num_processes, --nproc_per_node), or "
            "mend the recipe",
        )


def _first(names: tuple[str, ...], default: int) -> int:
    for name in names:
        value = os.environ.get(name, "")
        if value.isdecimal():
            return int(value)
    return default
