"""What an example counts, by its score margin or its class (Pre-Route weighs all alike; this is our
own)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import StageError
from prerouter.recipe.train import WeightsSection
from prerouter.training.examples import TokenisedExample

if TYPE_CHECKING:
    from torch import Tensor


def margin_weights(
    examples: Sequence[TokenisedExample], margins: Mapping[str, float], section: WeightsSection
) -> list[float]:
    """One weight an example, by its case's score margin; their mean over completion tokens is 1.

    `margins` are U(LC) - U(RAG) by case id. Equal margins give weights of exactly 1. Raises
    StageError where no case has a margin: all weights would be 0.
    """
    sizes = [abs(margins[example.example.case_id]) for example in examples]
    largest = max(sizes)
    if not largest:
        raise StageError(
            "train.weights",
            "every training case is a tie, so that none has a weight",
            next_step="leave train.weights out, or score on a finer scale",
        )
    if len(set(sizes)) == 1:
        return [1.0] * len(sizes)
    raw = [max(size, section.least * largest) for size in sizes]
    tokens = [len(example.completion_ids) for example in examples]
    mean = sum(w * n for w, n in zip(raw, tokens, strict=True)) / sum(tokens)
    return [weight / mean for weight in raw]


def balanced_loss(counts: Sequence[int]) -> Callable[..., Tensor]:
    """A classification loss for transformers' Trainer, where each class counts the same in all.

    `counts` are the training cases of each class, none of them 0; a case counts by the inverse of
    its class's, so that the mean over the training cases is 1. The loss is the mean over the cases
    of a step, of all accumulated batches and all processes.
    """
    import torch

    total = sum(counts)
    weights = torch.tensor([total / (len(counts) * count) for count in counts])

    def loss(
        outputs: Any, labels: Tensor, num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        logits = outputs.logits.float()
        summed = torch.nn.functional.cross_entropy(
            logits, labels, weight=weights.to(logits.device), reduction="sum"
        )
        return summed / (len(labels) if num_items_in_batch is None else num_items_in_batch)

    return loss
