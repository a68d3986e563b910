"""A training run over several processes: what of it is whole, and what is said when one dies."""

from __future__ import annotations

import re
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import StageError
from prerouter.runs.processes import world_size

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import Trainer, TrainingArguments

# How gloo and NCCL tell that the other end of a connection has gone.
_GONE = re.compile(r"gloo|nccl|connection (closed|reset|refused)|broken pipe|watchdog|remote", re.I)


@contextmanager
def telling_of_deaths(place: str) -> Iterator[None]:
    """Where one process of several has died, the others end with one line, not with a traceback.

    They learn of it by a broken connection, or by the launcher, which stops them. Often by both,
    one behind the other: the second must not end a process that has still to say its line.
    """
    if world_size() == 1:
        yield
        return

    def stopped(*_: object) -> None:
        raise _death(place)

    here = threading.current_thread() is threading.main_thread()
    previous = signal.signal(signal.SIGTERM, stopped) if here else None
    afterwards: Any = previous
    try:
        yield
    except ProcessDiedError:
        afterwards = _ends_already
        raise
    except RuntimeError as error:
        message = " ".join(str(error).split())
        if not _GONE.search(message):
            raise
        afterwards = _ends_already
        # The words are a library's and guessed at: whoever reads the line can judge for himself.
        raise _death(place, f" ({message[:300]})") from error
    finally:
        if here:
            signal.signal(signal.SIGTERM, afterwards)


def _ends_already(*_: object) -> None:
    """Not SIG_IGN: what is started from here would inherit that."""


class ProcessDiedError(StageError):
    """Another process of the launch is gone; the checkpoints stand."""


def _death(place: str, told: str = "") -> ProcessDiedError:
    return ProcessDiedError(
        place,
        f"one of {world_size()} processes has died, or was stopped, and the others stop with it"
        f"{told}",
        next_step="look at its own message (memory, most often) and launch again: training goes on "
        "from the last checkpoint",
    )


@contextmanager
def dropping_what_diverged(trainer: Trainer, checkpoints: Path) -> Iterator[None]:
    """A checkpoint of a run that has diverged is no place to go on from; one of a run that lost a
    process is."""
    try:
        yield
    except ProcessDiedError:
        raise
    except StageError:
        if trainer.is_world_process_zero():
            shutil.rmtree(checkpoints, ignore_errors=True)
        raise


def check_one_gpu(arguments: TrainingArguments, stage: str) -> None:
    """Raises StageError where one process sees several GPUs: transformers would spread each batch
    over them, so that a step learns from as many times the examples that the recipe says."""
    if arguments.n_gpu > 1 and world_size() == 1:
        raise StageError(
            stage,
            f"one process sees {arguments.n_gpu} GPUs, and its batch would be multiplied by them",
            "one process for each GPU, or one GPU",
            "accelerate launch --config_file recipes/accelerate/ddp.yaml -m prerouter "
            f"{stage} RECIPE, or set CUDA_VISIBLE_DEVICES=0",
        )


def check_trainer(trainer: Trainer) -> None:
    """Raises StageError where the trainer works alone among processes that were launched together:
    each would train a student of its own."""
    if trainer.accelerator.num_processes != world_size():
        raise StageError(
            "train",
            f"{world_size()} processes were launched, and the trainer sees "
            f"{trainer.accelerator.num_processes}",
            next_step="launch by torchrun, or by accelerate with a configuration of "
            "recipes/accelerate",
        )


def global_batch(trainer: Trainer) -> int:
    """Examples a step, of all processes and all accumulated batches."""
    arguments = trainer.args
    a_process: int = arguments.train_batch_size * arguments.gradient_accumulation_steps
    return a_process * int(trainer.accelerator.num_processes)


def describe_batch(trainer: Trainer) -> str:
    """One line: the processes, how they share the work, and the global batch."""
    way = trainer.accelerator.distributed_type.value.lower().replace("multi_", "data-parallel ")
    if trainer.is_deepspeed_enabled:
        stage = trainer.accelerator.state.deepspeed_plugin.zero_stage
        way = f"DeepSpeed ZeRO-{stage}"
    count = trainer.accelerator.num_processes
    shared = "1 process" if count == 1 else f"{count} processes ({way})"
    return (
        f"train: {shared} x {trainer.args.train_batch_size} examples x "
        f"{trainer.args.gradient_accumulation_steps} accumulated = "
        f"{global_batch(trainer)} examples a step"
    )


def count_parameters(model: Any) -> tuple[int, int]:
    """Trainable and all parameters, before a trainer has spread them over processes."""
    # ZeRO-3 leaves an empty parameter in the place of one that it keeps in pieces.
    counts = [(getattr(p, "ds_numel", p.numel()), p.requires_grad) for p in model.parameters()]
    return sum(size for size, trainable in counts if trainable), sum(size for size, _ in counts)


def is_sharded(trainer: Trainer) -> bool:
    """Whether no process holds the whole of the weights in the precision they are trained in."""
    return bool(trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled)


def gather_weights(trainer: Trainer) -> dict[str, Tensor]:
    """Every parameter of a sharded model, whole, in float32 on the CPU, in the first process.

    All processes have to call it. DeepSpeed's 16-bit weights are copies of float32 ones that its
    optimiser holds in pieces: those are put together, of ZeRO-2 and of ZeRO-3.
    """
    import torch

    first = trainer.is_world_process_zero()
    whole: dict[str, Tensor] = {}
    if not trainer.is_deepspeed_enabled:
        state = trainer.accelerator.get_state_dict(trainer.model_wrapped)
        return {name: value.float().cpu() for name, value in state.items()} if first else {}
    from deepspeed.runtime.zero import GatheredParameters
    from deepspeed.utils import safe_get_full_fp32_param

    for name, parameter in trainer.accelerator.unwrap_model(trainer.model).named_parameters():
        value = safe_get_full_fp32_param(parameter) if parameter.requires_grad else None
        if value is None:  # frozen, so no optimiser knows it
            sharded = hasattr(parameter, "ds_id")
            with GatheredParameters([parameter]) if sharded else nullcontext():
                value = parameter.detach().to("cpu", torch.float32, copy=True)
        if first:
            whole[name] = value.detach().cpu()
    return whole


@contextmanager
def whole_model(trainer: Trainer) -> Iterator[Any]:
    """The student with all its weights in place, for generation. All processes have to enter it;
    then each of them can generate by itself. Not for FSDP, which gathers in every forward pass."""
    from trl.models.utils import unwrap_model_for_generation

    with unwrap_model_for_generation(trainer.model_wrapped, trainer.accelerator) as model:
        yield model
