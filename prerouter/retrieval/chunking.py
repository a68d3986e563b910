"""Chunks of a given number of tokens, cut at sentence borders, each with its character span."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Scripts that put no space between words: each character counts as a token.
_UNSPACED = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# A run of letters is cut after 24, so that text without any space still has tokens.
_TOKEN = re.compile(rf"[{_UNSPACED}]|[^\W{_UNSPACED}]{{1,24}}|[^\w\s]")

_STOPS = ".!?…؟۔।"  # noqa: RUF001
# Possessive, and a run of full stops is tried from its first one only: linear on any input.
_SENTENCE_END = re.compile(
    rf"(?<![{_STOPS}])[{_STOPS}]++[\"'”’»)\]]*+\s++"  # noqa: RUF001
    r"|[。！？]++[”’」』）]*+"  # noqa: RUF001
    r"|[\n\r\x85\u2028\u2029]\s*+"
)

TokenStarts = Callable[[str], "NDArray[np.int64] | Sequence[int]"]
"""Where each token of a text starts, in characters, ascending.

The answering model's own tokenizer fits in: the first halves of its offset mapping.
"""


class Chunk(NamedTuple):
    """`document[start:end]`, a half-open character span, and its length in tokens."""

    start: int
    end: int
    tokens: int


def word_starts(text: str) -> NDArray[np.int64]:
    """The starts of words and punctuation marks, by Unicode: the counter of the embedded default.

    A character of a script without spaces (Chinese, Japanese) is a token of its own.
    """
    return np.fromiter((match.start() for match in _TOKEN.finditer(text)), dtype=np.int64)


def count_words(text: str) -> int:
    """Words and punctuation marks in `text`, as `word_starts` finds them."""
    return sum(1 for _ in _TOKEN.finditer(text))


def words(text: str) -> list[str]:
    """The tokens of `text` that are words, without the punctuation marks."""
    return [token for token in _TOKEN.findall(text) if token[0].isalnum() or token[0] == "_"]


class TokenisedText:
    """A text with its tokens and sentence borders found once, to be cut in any number of ways."""

    def __init__(self, text: str, token_starts: TokenStarts = word_starts) -> None:
        self.text = text
        # Tokens that share one character (byte-level vocabularies) may come unordered.
        self.starts = np.maximum.accumulate(np.asarray(token_starts(text), dtype=np.int64))
        self._borders = _sentence_borders(text, self.starts)

    def edge(self, token: int) -> int:
        """The character where the span before `token` ends and the span from it on begins."""
        if token == 0:
            return 0
        return int(self.starts[token]) if token < len(self.starts) else len(self.text)

    def count(self, start: int, end: int) -> int:
        """The tokens that start in `text[start:end]`."""
        first, last = np.searchsorted(self.starts, (start, end))
        return int(last - first)

    def ranges(
        self, chunk_tokens: int, overlap_tokens: int, first: int = 0, last: int | None = None
    ) -> Iterator[tuple[int, int]]:
        """Cut the tokens `first` to `last` (exclusive; all where absent) as `chunk_document` does:
        ranges of tokens, their end exclusive."""
        if not 0 <= overlap_tokens < chunk_tokens:
            raise ValueError("overlap_tokens must lie in 0..chunk_tokens - 1")
        last = len(self.starts) if last is None else last
        begin, end = first, first
        while end < last:
            if end > first:
                # Later than the chunk before, which would else be repeated whole.
                low = max(end - overlap_tokens, begin + 1)
                begin = _next_begin(self._borders, low, end, last, chunk_tokens)
            end = _next_end(self._borders, begin, end, chunk_tokens, last)
            yield begin, end

    def cut(
        self, chunk_tokens: int, overlap_tokens: int, first: int = 0, last: int | None = None
    ) -> list[Chunk]:
        """The `ranges` as chunks, which cover the characters from `edge(first)` to `edge(last)`."""
        chunks = (
            Chunk(self.edge(begin), self.edge(end), end - begin)
            for begin, end in self.ranges(chunk_tokens, overlap_tokens, first, last)
        )
        return [chunk for chunk in chunks if chunk.end > chunk.start]


def chunk_document(
    document: str,
    chunk_tokens: int,
    overlap_tokens: int,
    token_starts: TokenStarts = word_starts,
) -> list[Chunk]:
    """Cut `document` into chunks of at most `chunk_tokens` tokens, in order.

    The spans cover the document without a gap and neighbours share at most `overlap_tokens`. Both
    ends of a chunk lie at sentence borders; a sentence that is longer than a chunk is cut by
    tokens. A document without a token has no chunks. Linear in the document's length.
    """
    return TokenisedText(document, token_starts).cut(chunk_tokens, overlap_tokens)


def _sentence_borders(document: str, starts: NDArray[np.int64]) -> list[int]:
    """The tokens that begin a sentence, as positions among all tokens, and the end of the last."""
    ends = np.fromiter((match.end() for match in _SENTENCE_END.finditer(document)), dtype=np.int64)
    tokens = np.unique(np.append(np.searchsorted(starts, ends), len(starts)))
    return [int(token) for token in tokens]


def _next_begin(borders: list[int], low: int, end: int, last: int, chunk_tokens: int) -> int:
    """Where the chunk after one that ends at token `end` begins: from `low` on, at a border."""
    following = min(borders[bisect_right(borders, end)], last)
    if following - end <= chunk_tokens:
        # Overlap gives way where the next sentence would not fit beside it.
        low = max(low, following - chunk_tokens)
    place = bisect_left(borders, low)
    if borders[place] <= end:
        return borders[place]
    return low


def _next_end(borders: list[int], begin: int, previous: int, chunk_tokens: int, last: int) -> int:
    limit = begin + chunk_tokens
    if limit >= last:
        return last
    place = bisect_right(borders, limit) - 1
    if place >= 0 and borders[place] > max(begin, previous):
        return borders[place]
    return limit
