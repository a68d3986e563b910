"""Choosing the next token from logits, row by row, each row with a seed of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def next_tokens(
    logits: torch.Tensor,
    temperature: float,
    top_p: float,
    generators: list[torch.Generator],
) -> torch.Tensor:
    """One token for each row of `logits`, shape (rows, vocabulary) to (rows,).

    At temperature 0 the likeliest; else drawn from the smallest set of tokens whose probability
    reaches `top_p`, by one uniform number of the row's own generator, so that a row's draw depends
    on no other row.
    """
    import torch

    if temperature == 0:
        return logits.argmax(dim=-1)
    probabilities, tokens = torch.softmax(logits.float() / temperature, dim=-1).sort(
        dim=-1, descending=True, stable=True
    )
    reached = probabilities.cumsum(dim=-1)
    last = (reached < top_p).sum(dim=-1, keepdim=True).clamp(max=reached.shape[-1] - 1)
    uniform = torch.cat([torch.rand(1, generator=generator) for generator in generators])
    drawn = uniform.to(logits.device)[:, None] * reached.gather(-1, last)
    # Rounding can carry the product past the set by one.
    index = torch.searchsorted(reached, drawn, right=True).minimum(last)
    return tokens.gather(-1, index)[:, 0]


def entropy_bits(logits: torch.Tensor) -> torch.Tensor:
    """Entropy of each row's next-token distribution over the whole vocabulary, in bits.

    Of the model's own distribution, before temperature and top_p (EDAR, arXiv 2609.35831: H_t).
    NaN where the logits hold one.
    """
    import torch

    log_probabilities = torch.log_softmax(logits.float(), dim=-1)
    terms = log_probabilities.exp()
    # A masked token has log-probability -inf and takes no part: 0 * -inf would be NaN. In place,
    # because fresh memory for a large batch takes longer than the arithmetic.
    terms.mul_(log_probabilities.clamp_(min=torch.finfo(torch.float32).min))
    return -terms.sum(dim=-1) / math.log(2)


def not_finite(entropies: Sequence[float]) -> str | None:
    """The error of a reply whose entropies aren't all numbers: its logits weren't."""
    if all(map(math.isfinite, entropies)):
        return None
    return "the model's logits are not finite: try dtype bfloat16 or float32"


def new_generator(seed: int | None) -> torch.Generator:
    """A generator of its own for one request; without a seed, another at each call."""
    import torch

    generator = torch.Generator()
    if seed is None:
        generator.seed()
    else:
        generator.manual_seed(seed)
    return generator
