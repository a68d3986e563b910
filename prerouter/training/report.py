"""What a training run says of itself."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

from pydantic import Field

from prerouter.core.records import Count, Record, Reject


class RunReport(Record):
    """What every training run says: by `fingerprint` it is told from others."""

    fingerprint: str


class LossPoint(Record):
    """Mean training loss (nats a completion token) since the point before, and the share of the
    completion tokens that the student held for the likeliest, where that was measured."""

    step: Count
    loss: float
    token_accuracy: float | None = None

    @classmethod
    def read(cls, history: Iterable[Mapping[str, Any]]) -> tuple[LossPoint, ...]:
        """The points of a trainer's log."""
        return tuple(
            cls(
                step=entry["step"],
                loss=entry["loss"],
                token_accuracy=entry.get("mean_token_accuracy"),
            )
            for entry in history
            if "loss" in entry
        )


class WatchPoint(Record):
    """What the student decided after `step` steps, as shares of the cases looked at."""

    step: Count
    route_accuracy: float
    lc_rate: float
    parse_rate: float


class TrainReport(RunReport):
    """A finished training run. Token counts leave padding out.

    `tokens_seen` counts prompt and completion over all steps, those before a kill included;
    `seconds` is the time of the last process alone, which began at `resumed_from` steps.
    """

    model_dir: Annotated[str, Field(description="name of the model's folder inside the stage's")]
    steps: Count
    epochs: Annotated[float, Field(ge=0)]
    resumed_from: Count
    losses: tuple[LossPoint, ...]
    eval_loss: Annotated[float | None, Field(description="nats a completion token")] = None
    watched: tuple[WatchPoint, ...] = ()
    exported_step: Annotated[Count, Field(description="the best of those watched, or the last")]
    train_examples: Count
    validation_examples: Count
    epoch_tokens: Count
    epoch_completion_tokens: Count
    longest_example: Count
    tokens_seen: Count
    rejects: tuple[Reject, ...]
    total_parameters: Count
    trainable_parameters: Count
    end_of_turn: str
    pad_token: str
    processes: Annotated[int, Field(ge=1)]
    global_batch: Annotated[int, Field(ge=1, description="examples a step, of all processes")]
    seconds: Annotated[float, Field(ge=0)]
    settings: Annotated[dict[str, Any], Field(description="the SFTConfig fields that were set")]
    versions: dict[str, str]
