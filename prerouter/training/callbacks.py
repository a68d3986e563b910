"""Beside the steps: progress, the mark of a whole checkpoint, and the watch on the loss."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import StageError
from prerouter.core.protocols import Progress
from prerouter.training.resume import mark_complete

if TYPE_CHECKING:
    from transformers import TrainerCallback

WATCHED = ("loss", "grad_norm", "eval_loss")

SHARES = {
    "eval_route_accuracy": "route accuracy",
    "eval_accuracy": "route accuracy",
    "eval_lc_rate": "LC",
    "eval_parse_rate": "parsed",
}


def tell(step: int, metrics: Mapping[str, float]) -> str:
    """One line of what an evaluation found."""
    found = [f"{name} {metrics[key]:.0%}" for key, name in SHARES.items() if key in metrics]
    if "eval_loss" in metrics:
        found.append(f"validation loss {metrics['eval_loss']:.3g}")
    return f"step {step}: {', '.join(found)}"


def make_callback(
    progress: Progress, checkpoints: Path, settings: str = "train.sft"
) -> TrainerCallback:
    """A callback that reports to `progress` and stops at the first value that is not finite.

    `settings` is the key of the recipe that has the learning rate.
    """
    from accelerate import PartialState
    from transformers import TrainerCallback

    stage = settings.partition(".")[0]

    class Beside(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                progress.start(stage, state.max_steps)
                progress.advance(state.global_step)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.is_world_process_zero:
                progress.advance()

        def on_evaluate(
            self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
        ) -> None:
            if state.is_world_process_zero:
                progress.note(f"{stage}, {tell(state.global_step, metrics)}")

        def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            PartialState().wait_for_everyone()  # each process writes a part of it
            if state.is_world_process_zero:
                mark_complete(checkpoints, state.global_step)

        def on_log(
            self, args: Any, state: Any, control: Any, logs: dict[str, Any], **kwargs: Any
        ) -> None:
            for name in WATCHED:
                value = logs.get(name)
                if value is not None and not math.isfinite(float(value)):
                    raise StageError(
                        f"{stage}, step {state.global_step}",
                        f"{name} is {value}",
                        "finite numbers",
                        f"lower {settings}.learning_rate, or look at the model's weights",
                    )

    return Beside()
