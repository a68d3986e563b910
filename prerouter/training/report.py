"""What a training run says of itself."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from prerouter.core.records import Count, Record, Reject


class LossPoint(Record):
    """Mean training loss (nats a completion token) since the point before."""

    step: Count
    loss: float


class WatchPoint(Record):
    """What the student decided after `step` steps, as shares of the cases looked at."""

    step: Count
    route_accuracy: float
    lc_rate: float
    parse_rate: float


class TrainReport(Record):
    """A finished training run. Token counts leave padding out.

    `tokens_seen` counts prompt and completion over all steps, those before a kill included;
    `seconds` is the time of the last process alone, which began at `resumed_from` steps.
    """

    model_dir: Annotated[str, Field(description="name of the model's folder inside the stage's")]
    fingerprint: str
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
