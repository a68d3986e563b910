"""Attention over prompts that stand one behind the other in one row, on a CPU.

Prompts of several lengths in a padded batch cost by the longest; packed, none of them has padding,
and what they all begin with is kept once for all. Each prompt's queries see that start and the
prompt's own tokens up to theirs. The query heads of a group are the rows of one product (grouped-
query attention: Ainslie et al., 2023, arXiv 2305.13245).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from prerouter.engines.grouped_attention import is_plain_attention

if TYPE_CHECKING:
    import torch

NAME = "prerouter_packed"

# About what a CPU's cache holds of the activations; more at once isn't faster.
PACK_TOKENS = 1536

# A row's length is filled up to a multiple: matrix products of odd sizes are slower by a tenth.
MULTIPLE = 16


@dataclass(frozen=True)
class Pack:
    """The lengths of prompts that are read together, and their masks, which all layers share."""

    lengths: Sequence[int]
    _masks: dict[int, torch.Tensor] = field(default_factory=dict)

    def mask(self, count: int, shared: int, group: int, like: torch.Tensor) -> torch.Tensor:
        """What is added to the scores of a prompt of `count` tokens behind `shared` ones: shape
        (group * count, shared + count)."""
        if count not in self._masks:
            mask = like.new_full((count, shared + count), float("-inf")).triu_(shared + 1)
            self._masks[count] = mask.repeat(group, 1)
        return self._masks[count]


def packs(model: Any) -> bool:
    """Whether a model's attention is the plain one, over all tokens before: what is computed here.
    A sliding window or a recurrent state is another."""
    from transformers.cache_utils import DynamicCache, DynamicLayer

    if not is_plain_attention(model):
        return False
    layers = DynamicCache(config=model.config).layers
    return all(type(layer) is DynamicLayer for layer in layers)


@contextlib.contextmanager
def packed(model: Any) -> Iterator[None]:
    """Within it, `model` reads one row of prompts; it is given their `pack`."""
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, _no_mask)
    usual = model.config._attn_implementation
    model.set_attn_implementation(NAME)
    try:
        yield
    finally:
        model.set_attn_implementation(usual)


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    *,
    pack: Pack,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Causal softmax attention within each prompt of the `pack`; padding behind them gives zeros.
    `query` has shape (1, heads, tokens, size), `key` (1, key heads, shared + tokens, size), `value`
    the same with a size of its own: first what all prompts share. Gives (1, tokens, heads, value
    size)."""
    import torch

    heads, tokens, size = query.shape[1:]
    key_heads, length = key.shape[1:3]
    group, shared = heads // key_heads, length - tokens
    mixed = query.new_zeros(tokens, heads, value.shape[-1])
    start = 0
    for count in pack.lengths:
        mask = pack.mask(count, shared, group, query)
        own = slice(shared + start, shared + start + count)
        keys = torch.cat([key[0, :, :shared], key[0, :, own]], dim=1)
        values = torch.cat([value[0, :, :shared], value[0, :, own]], dim=1)
        queries = query[0, :, start : start + count].reshape(key_heads, group * count, size)
        scores = torch.baddbmm(mask, queries, keys.mT, alpha=scaling)
        # Summed in float32 inside, whatever the scores are.
        rows = torch.softmax(scores, dim=-1) @ values
        mixed[start : start + count] = rows.reshape(heads, count, -1).transpose(0, 1)
        start += count
    return mixed[None], None


def packs_of(lengths: Sequence[int]) -> Iterator[slice]:
    """The prompts that are read together, in their order: as many as fit in `PACK_TOKENS`."""
    start = held = 0
    for place, length in enumerate(lengths):
        if place > start and held + length > PACK_TOKENS:
            yield slice(start, place)
            start, held = place, 0
        held += length
    yield slice(start, len(lengths))


def _no_mask(*sizes: Any, **settings: Any) -> None:
    """The lengths say all."""
