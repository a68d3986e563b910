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
from dataclasses import dataclass
from functools import lru_cache
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

# Queries of a prompt at once: few of the scores lie after their query, where they are for nothing.
_BLOCK = 96

# Scores at once, which a CPU's cache holds.
_SCORES = 1 << 19


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
    zeros. Prompts of about the same length are the rows of one batch, read in blocks of queries.

    `query` has shape (1, heads, tokens, size), `key` (1, key heads, shared + tokens, size), `value`
    the same with a size of its own: first what all prompts share. Gives (1, tokens, heads, value
    size). Raises ValueError for a model that masks otherwise.
    """
    import torch

    if attention_mask is not None:
        raise ValueError("a mask of the model's own says which tokens are seen")
    heads, tokens, size = query.shape[1:]
    key_heads, length = key.shape[1:3]
    shared = length - tokens
    asking = query[0].transpose(0, 1).reshape(tokens * heads, size)
    keys, values = (given[0].reshape(key_heads * length, -1) for given in (key, value))
    later = query.new_full((_BLOCK, _BLOCK), float("-inf")).triu_(1)
    # The last row takes what padding asks for.
    mixed = value.new_zeros(tokens * heads + 1, value.shape[-1])
    for group in _groups(tuple(_PACK.get()), heads, key_heads, tokens, shared):
        batch = (group.count * key_heads, shared + group.width, -1)
        seen, told = (rows.index_select(0, group.seen).view(batch) for rows in (keys, values))
        for first, read, written in group.blocks:
            last = min(first + _BLOCK, group.width)
            queries = asking.index_select(0, read).mul_(scaling).view(batch[0], -1, size)
            scores = queries @ seen[:, : shared + last].mT
            block = scores.view(batch[0], -1, last - first, shared + last)
            block[..., shared + first :] += later[: last - first, : last - first]
            # Summed in float32 inside, whatever the scores are.
            found = torch.softmax(scores, dim=-1) @ told[:, : shared + last]
            mixed.index_copy_(0, written, found.view(-1, mixed.shape[-1]))
    return mixed[:-1].view(1, tokens, heads, -1), None


@dataclass(frozen=True)
class _Group:
    """Prompts that are read as one batch: `count` of them, the longest of `width` tokens. `seen`
    are the rows of their keys; a block has its first query, the rows of its queries, and the rows
    that its answers go to."""

    count: int
    width: int
    seen: torch.Tensor
    blocks: list[tuple[int, torch.Tensor, torch.Tensor]]


@lru_cache(maxsize=1)  # It is the same for all layers.
def _groups(
    lengths: tuple[int, ...], heads: int, key_heads: int, tokens: int, shared: int
) -> list[_Group]:
    """Where the prompts' queries, a row a token and head, and their keys, a row a head and token,
    lie, for batches in which the heads of one group of queries are the rows of one product."""
    import torch

    key_head = torch.arange(key_heads)[:, None, None, None]
    head = torch.arange(heads).view(key_heads, 1, -1, 1)
    groups, start = [], 0
    for some in _alike(lengths, heads, shared):
        own = torch.tensor(lengths[some])[:, None]
        starts = start + own.cumsum(dim=0) - own
        start += int(own.sum())
        width = int(own.max())
        column = torch.arange(width)
        # Padding repeats the prompt's own last token: of another's, a NaN would spread.
        place = starts + torch.minimum(column, own - 1)
        before = torch.arange(shared).expand(len(own), shared)
        seen = key_head * (shared + tokens) + torch.cat([before, shared + place], dim=1)[:, None]
        read = place[:, None] * heads + head
        written = torch.where(column < own, place, tokens)[:, None] * heads + head
        blocks = []
        for first in range(0, width, _BLOCK):
            rows = slice(first, first + _BLOCK)
            to = written[..., rows].clamp(max=tokens * heads)
            blocks.append((first, read[..., rows].flatten(), to.flatten()))
        groups.append(_Group(len(own), width, seen.flatten(), blocks))
    return groups


def _alike(lengths: Sequence[int], heads: int, shared: int) -> Iterator[slice]:
    """Prompts for one batch, in their order: padding is at most a quarter of it, and a block's
    scores are few enough."""
    start = width = total = 0
    for place, length in enumerate(lengths):
        count, most = place + 1 - start, max(width, length)
        scores = count * heads * min(most, _BLOCK) * (shared + most)
        if count > 1 and (scores > _SCORES or 3 * count * most > 4 * (total + length)):
            yield slice(start, place)
            start, width, total = place, 0, 0
        width, total = max(width, length), total + length
    yield slice(start, len(lengths))


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
