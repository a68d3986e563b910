"""Where tokens start by a model's own tokenizer: it sizes the chunks that the model will read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from prerouter.retrieval.chunking import TokenStarts

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BLOCK = 65_536
_BLOCKS_AT_ONCE = 32


def tokenizer_starts(tokenizer: Tokenizer) -> TokenStarts:
    """A function text -> the character at which each token starts, special tokens left out.

    A transformers tokenizer has the `tokenizer` for this as its `backend_tokenizer`. Text is
    tokenised in blocks of at most 65,536 characters, cut at a line break, else at a space, else
    anywhere: time and memory stay linear on a word of millions of characters, and a count may
    differ from that of the whole text by a token or two a block. Where no tokenizer is at hand,
    `chunking.word_starts` counts words and punctuation marks instead.
    """
    own = tokenizer
    if tokenizer.truncation or tokenizer.padding:
        # An embedding model's tokenizer comes with both switched on, and its model needs them.
        own = tokenizer.from_str(tokenizer.to_str())
        own.no_truncation()
        own.no_padding()

    def starts(text: str) -> NDArray[np.int64]:
        found = [np.zeros(0, dtype=np.int64)]
        blocks = list(_blocks(text))
        for place in range(0, len(blocks), _BLOCKS_AT_ONCE):
            some = blocks[place : place + _BLOCKS_AT_ONCE]
            encodings = own.encode_batch(
                [text[begin:end] for begin, end in some], add_special_tokens=False
            )
            for encoding, (begin, _) in zip(encodings, some, strict=True):
                firsts = (first for first, _ in encoding.offsets)
                found.append(np.fromiter(firsts, dtype=np.int64) + begin)
        return np.concatenate(found)

    return starts


def _blocks(text: str) -> Iterator[tuple[int, int]]:
    begin = 0
    while len(text) - begin > _BLOCK:
        limit = begin + _BLOCK
        # A space goes to the block after it: in most vocabularies it begins a word.
        breaks = (text.rfind(mark, begin + 1, limit) for mark in ("\n", " "))
        end = next((place for place in breaks if place > begin), limit)
        yield begin, end
        begin = end
    if begin < len(text):
        yield begin, len(text)
