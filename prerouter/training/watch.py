"""Looking at the student while it learns: what it decides, not how likely it finds a text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from prerouter.core.errors import StageError
from prerouter.core.records import Decision, Route
from prerouter.training.launch import whole_model

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase, Trainer, TrainerCallback

ROUTE_ACCURACY = "route_accuracy"
CHOSEN_BY = "eval_route_accuracy_then_loss"
"""The metric that the exported weights have the most of."""

# Small beside one case of any sample, so that the loss decides between equals and no more.
_TIE = 1e-7

Item = TypeVar("Item")


@dataclass(frozen=True)
class Watch:
    """`decide` takes the live model and its tokenizer and gives one decision a case; `ideal` has
    each case's ideal route; `patience` counts looks without a better route accuracy.

    The live model computes in the training's own precision (`train.dtype`) over float32 weights,
    under DeepSpeed over its copies in that precision; the router of `route` has its weights rounded
    to `route.dtype`, so that near ties can fall otherwise there.
    """

    decide: Callable[[Any, PreTrainedTokenizerBase], Sequence[Decision]]
    ideal: Mapping[str, Route]
    patience: int | None = None


def sample_by_stratum(
    items: Sequence[Item], stratum: Callable[[Item], str], count: int, seed: int
) -> list[Item]:
    """`count` items, or all where there are no more, each stratum by its share; in their order."""
    if count >= len(items):
        return list(items)
    order = np.random.default_rng(seed).permutation(len(items)).tolist()
    order.sort(key=lambda position: stratum(items[position]))
    taken = [order[math.floor((k + 0.5) * len(items) / count)] for k in range(count)]
    return [items[position] for position in sorted(taken)]


def measure(decisions: Sequence[Decision], ideal: Mapping[str, Route]) -> dict[str, float]:
    """Shares of all cases: decided as is ideal, sent to LC, decided at all. A reply that is no
    decision is a wrong one."""
    total = len(decisions)
    return {
        ROUTE_ACCURACY: sum(d.route is ideal[d.case_id] for d in decisions) / total,
        "lc_rate": sum(d.route is Route.LC for d in decisions) / total,
        "parse_rate": sum(d.route is not None for d in decisions) / total,
    }


def watch_callbacks(watch: Watch, trainer: Trainer) -> list[TrainerCallback]:
    """Callbacks that add the measures to every evaluation, and end training after `patience`.

    The first process generates and tells the others, so that all choose the same best checkpoint.
    """
    from accelerate.utils import broadcast_object_list
    from transformers import EarlyStoppingCallback, TrainerCallback

    class Looks(TrainerCallback):  # type: ignore[misc]
        def on_evaluate(
            self, args: Any, state: Any, control: Any, metrics: dict[str, float], **kwargs: Any
        ) -> None:
            found: list[dict[str, float] | None] = [None]
            with whole_model(trainer) as model:
                if state.is_world_process_zero:
                    found[0] = self._look(model)
            measures = broadcast_object_list(found)[0]
            metrics.update({f"eval_{name}": value for name, value in measures.items()})
            metrics[CHOSEN_BY] = measures[ROUTE_ACCURACY] - _TIE * metrics["eval_loss"]
            trainer.log({f"eval_{name}": value for name, value in measures.items()})

        def _look(self, model: Any) -> dict[str, float]:
            import torch

            was_training = model.training
            model.eval()
            # Whatever generation draws must not move the random numbers of training.
            with torch.random.fork_rng():
                decisions = watch.decide(model, trainer.processing_class)
            model.train(was_training)
            return measure(decisions, watch.ideal)

    if watch.patience is None:
        return [Looks()]
    stopping = EarlyStoppingCallback(watch.patience, early_stopping_threshold=1e3 * _TIE)
    return [Looks(), stopping]


def check_whole(watch: Watch | None, trainer: Trainer) -> None:
    """Raises StageError where the student can't be looked at: under FSDP every forward pass is one
    of all processes, and the first would wait in it for the others for ever."""
    if watch is not None and trainer.is_fsdp_enabled:
        raise StageError(
            "train.watch",
            "the student can't be looked at under FSDP, where no process has it whole",
            "train.watch with DDP, or with DeepSpeed ZeRO, of recipes/accelerate",
            "launch by one of these, or --set train.watch=null, in later commands too",
        )


def check_watch(watch: Watch | None, validation: int) -> None:
    """Raises StageError where there is nothing to look at."""
    if watch is not None and not (watch.ideal and validation):
        raise StageError(
            "train.watch",
            f"{len(watch.ideal)} labelled validation cases, {validation} validation examples",
            "some of both",
            "name validation in teach.splits, enlarge split.validation, or leave train.watch out",
        )
