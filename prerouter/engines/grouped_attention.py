"""Attention of one new token a row over what is cached, on a CPU.

A model with fewer key heads than query heads (grouped-query attention: Ainslie et al., 2023, arXiv
2305.13245) usually gets its cached keys and values copied once for every query head, at every token
that is written. Here the query heads of a group are the rows of one product instead: the same sum
without the copies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prerouter.engines.attention import is_plain_attention, register

if TYPE_CHECKING:
    import torch

NAME = "prerouter_grouped"


def one_query_attention(model: Any) -> str:
    """Name of the attention to write tokens with on a CPU: the grouped one where the model's own is
    the plain one, else its own matrix products."""
    from transformers.masking_utils import eager_mask

    if not is_plain_attention(model):
        return "eager"
    return register(NAME, grouped_attention, eager_mask)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Softmax attention. `query` has shape (rows, heads, tokens, size), `key` (rows, key heads,
    length, size), `value` the same with a size of its own, the mask is added; gives (rows, tokens,
    heads, value size)."""
    import torch

    rows, heads, tokens, size = query.shape
    key_heads, length = key.shape[1:3]
    group = heads // key_heads
    queries = query.reshape(rows, key_heads, group * tokens, size)
    scores = (queries @ key.mT * scaling).view(rows, key_heads, group, tokens, length)
    if attention_mask is not None:
        scores = scores + attention_mask[:, :, None]
    # Summed in float32 inside; asked for float32 outside, it takes several times as long.
    weights = torch.softmax(scores, dim=-1)
    mixed = weights.view(rows, key_heads, group * tokens, length) @ value
    return mixed.view(rows, heads, tokens, -1).transpose(1, 2).contiguous(), None
