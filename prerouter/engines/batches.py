"""What a batch holds while it is generated: its requests, and what the model has read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray


def chunk_of(batch_size: int) -> int:
    """How many cases a router reads before it hands any on: a few batches, so that these can be
    parted by length, and no more, since a kill loses what was not handed on."""
    return max(64, 4 * batch_size)


@dataclass
class Row:
    """One request under way."""

    index: int
    prompt: list[int]
    opened: bool
    room: int
    seed: int | None
    tokens: list[int] = field(default_factory=list)
    entropies: list[float] = field(default_factory=list)
    stopped: bool = False
    hopeless: bool = False

    @property
    def goes_on(self) -> bool:
        return not self.stopped and not self.hopeless and len(self.tokens) < self.room


@dataclass
class Prefix:
    """What a batch has read: its cache, its attention mask, the logits after its prompts."""

    cache: Any
    mask: torch.Tensor
    logits: torch.Tensor

    def select(self, rows: torch.Tensor) -> None:
        self.cache.batch_select_indices(rows)
        self.mask = self.mask[rows]


@dataclass(frozen=True)
class PromptState:
    """What a model's layers make of a prompt's last token: `vectors` float32 of shape (layers + 1,
    hidden size), the embedding first, or the reason why there are none; and the natural
    log-probability of each choice as the next text, where some were asked for."""

    vectors: NDArray[np.float32] | None = None
    log_probabilities: tuple[float, ...] = ()
    prompt_tokens: int = 0
    error: str | None = None
    seconds: float = 0.0
