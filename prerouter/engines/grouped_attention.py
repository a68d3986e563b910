"""Attention of one new token a row over what is cached, on a CPU.

A model with fewer key heads than query heads (grouped-query attention: Ainslie et al., 2023, arXiv
2305.13245) usually gets its cached keys and values copied once for every query head, at every token
that is written. Here the query heads of a group are the rows of one product instead: the same sum
without the copies.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

NAME = "prerouter_grouped"


def one_query_attention(model: Any) -> str:
    """Name of the attention to write tokens with on a CPU: the grouped one where the model's own is
    the plain one, else its own matrix products."""
    if not is_plain_attention(model):
        return "eager"
    _register()
    return NAME


def is_plain_attention(model: Any) -> bool:
    """Whether a model's attention has no caps and no sinks, which is told by its code."""
    from transformers.models.llama import modeling_llama

    own = getattr(sys.modules[type(model).__module__], "eager_attention_forward", None)
    return own is not None and _code(own) == _code(modeling_llama.eager_attention_forward)


def grouped_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Softmax attention. `query` has shape (rows, heads, tokens, size),
    `key` (rows, key heads, length, size), `value` the same with a size of its own, the mask is
    added; gives (rows, tokens, heads, value size)."""
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


def _register() -> None:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    AttentionInterface.register(NAME, grouped_attention)
    AttentionMaskInterface.register(NAME, eager_mask)


def _code(function: Any) -> tuple[object, ...]:
    code = function.__code__
    return code.co_code, code.co_consts, code.co_names
