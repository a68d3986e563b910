"""Cost-sensitive training: what an example counts (Pre-Route weighs all alike; this is our own)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prerouter.core.errors import StageError
from prerouter.recipe.train import WeightsSection
from prerouter.training.examples import TokenisedExample


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
