"""Attention over prompts that stand one behind the other in one row, on a CPU.

Prompts of several lengths in a padded batch cost by the longest; packed, none of them has padding,
and what they all begin with is kept once for all. Each prompt's queries see that start and the
prompt's own tokens up to theirs. The query heads of a group are the rows of one product (grouped-
query attention: Ainslie et al., 2023, arXiv 2305.13245).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from prerouter.engines.attention import (
    attending_by,
    is_plain_attention,
    is_plain_cache,
    register,
)

if TYPE_CHECKING:
    import torch

NAME = "prerouter_packed"

# About what a CPU's cache holds of the activations; more at once isn't faster.
PACK_TOKENS = 1536

# A row's length is filled up to a multiple: matrix products of odd sizes are slower by a tenth.
MULTIPLE = 16

# Not every model hands a keyword on to its attention.
_PACK: ContextVar[Sequence[int]] = ContextVar("_PACK")

# Queries at once: scores that a cache holds, and few that lie after their query.
_BLOCK = 256


def packs(model: Any) -> bool:
    """Whether a model's attention is the plain one, over all tokens before: what is computed here.
    A sliding window or a recurrent state is another."""
    from transformers.cache_utils import DynamicCache

    return is_plain_attention(model) and is_plain_cache(DynamicCache(config=model.config))


@contextlib.contextmanager
def packed(model: Any, lengths: Sequence[int]) -> Iterator[None]:
    """Within it, `model` reads one row of prompts of these lengths, in one thread at a time."""
    token = _PACK.set(lengths)
    try:
        with attending_by(model, register(NAME, packed_attention, _no_mask)):
            yield
    finally:
        _PACK.reset(token)


def packed_attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """Causal softmax attention within each prompt that is `packed`; filling behind them gives
    zeros. The products run over blocks of queries, with no key that lies after a whole block.

    `query` has shape (1, heads, tokens, size), `key` (1, key heads, shared + tokens, size), `value`
    the same with a size of its own: first what all prompts share. Gives (1, tokens, heads, value
    size). Raises ValueError for a model that masks otherwise.
    """
    import torch

    if attention_mask is not None:
        raise ValueError("a mask of the model's own says which tokens are seen")
    heads, tokens, size = query.shape[1:]
    key_heads, length = key.shape[1:3]
    group, shared = heads // key_heads, length - tokens
    later = query.new_full((_BLOCK, _BLOCK), float("-inf")).triu_(1)
    mixed = query.new_zeros(tokens, heads, value.shape[-1])
    start = 0
    for count in _PACK.get():
        keys, values = (_seen(given[0], shared, start, count) for given in (key, value))
        for first in range(0, count, _BLOCK):
            last = min(first + _BLOCK, count)
            rows = slice(start + first, start + last)
            queries = query[0, :, rows].reshape(key_heads, -1, size) * scaling
            scores = queries @ keys[:, : shared + last].mT
            block = scores.view(key_heads, group, last - first, shared + last)
            block[..., shared + first :] += later[: last - first, : last - first]
            # Summed in float32 inside, whatever the scores are.
            found = torch.softmax(scores, dim=-1) @ values[:, : shared + last]
            mixed[rows] = found.view(heads, last - first, -1).transpose(0, 1)
        start += count
    return mixed[None], None


def _seen(given: torch.Tensor, shared: int, start: int, count: int) -> torch.Tensor:
    """What all prompts share, and one prompt's own, shape (key heads, shared + count, size)."""
    import torch

    own = given[:, shared + start : shared + start + count]
    return torch.cat([given[:, :shared], own], dim=1) if shared else own


def packs_of(lengths: Sequence[int]) -> Iterator[slice]:
    """The prompts that are read together, in their order: as many as fit in `PACK_TOKENS`."""
    start = held = 0
    for place, length in enumerate(lengths):
        if place > start and held + length > PACK_TOKENS:
            yield slice(start, place)
            start, held = place, 0
        held += length
    yield slice(start, len(lengths))


class Unpacked:
    """What a model keeps of packed prompts, as of a batch: a row a prompt, padded on the left.
    `lengths` are those of the whole prompts, of which all share the first tokens."""

    def __init__(self, lengths: Sequence[int], shared: int) -> None:
        self._lengths = lengths
        self._shared = shared
        self._layers: list[tuple[torch.Tensor, torch.Tensor]] = []

    def add(self, cache: Any, some: slice) -> None:
        """Take what `cache` holds of one pack, which is that of the prompts `some`."""
        width, rows, shared = max(self._lengths), len(self._lengths), self._shared
        packed = [(layer.keys, layer.values) for layer in cache.layers]
        if not self._layers:
            self._layers = [
                (
                    k.new_zeros(rows, k.shape[1], width, k.shape[3]),
                    v.new_zeros(rows, v.shape[1], width, v.shape[3]),
                )
                for k, v in packed
            ]
        start = shared
        for row in range(some.start, some.stop):
            own = self._lengths[row] - shared
            for kept, given in zip(self._layers, packed, strict=True):
                for into, of in zip(kept, given, strict=True):
                    into[row, :, width - own - shared : width - own] = of[0, :, :shared]
                    into[row, :, width - own :] = of[0, :, start : start + own]
            start += own

    def cache(self) -> Any:
        from transformers.cache_utils import DynamicCache

        cache = DynamicCache()
        for number, (keys, values) in enumerate(self._layers):
            cache.update(keys, values, number)
        return cache

    def mask(self) -> torch.Tensor:
        """1 where a token stands and 0 in the padding, shape (prompts, length of the longest)."""
        import torch

        width = max(self._lengths)
        lengths = torch.tensor(self._lengths)[:, None]
        return (torch.arange(width) >= width - lengths).long()


def _no_mask(*sizes: Any, **settings: Any) -> None:
    """The lengths say all."""
