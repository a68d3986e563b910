"""Search over the chunks of one document: lexical by BM25, dense by exact inner products."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from prerouter.retrieval.chunking import words

Hits = list[tuple[int, float]]
"""(chunk index, score), best first; ties in the order of the document."""


def terms(text: str) -> list[str]:
    """The words of `text`, case and compatibility forms folded."""
    return words(unicodedata.normalize("NFKC", text).casefold())


class Bm25Index:
    """BM25 by bm25s (Lucene's variant, k1 1.5, b 0.75). Ties keep the order of the document.

    A chunk that shares no word with the query is never returned.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        import bm25s

        # bm25s numbers words in the order of a set; numbered here, two runs build one index.
        vocabulary: dict[str, int] = {}
        corpus = [
            [vocabulary.setdefault(term, len(vocabulary)) for term in terms(text)] for text in texts
        ]
        self._vocabulary = vocabulary
        self._index = bm25s.BM25(k1=1.5, b=0.75, method="lucene")
        if vocabulary:
            self._index.index((corpus, vocabulary), create_empty_token=False, show_progress=False)

    def search(self, query: str, top_k: int) -> Hits:
        """The best `top_k` at most."""
        known = [self._vocabulary[term] for term in terms(query) if term in self._vocabulary]
        if not known or top_k <= 0:
            return []
        scores = self._index.get_scores_from_ids(known)
        places = np.flatnonzero(scores > 0)
        return best(places, scores[places], top_k)


# Scores that agree so far are a tie.
_DECIMALS = 5
_TIE = 2 * 10.0**-_DECIMALS

# Shorter indexes are read whole: nothing is gained by leaving some out.
_SMALL = 4096
_FIRST_BLOCK, _BLOCK = 128, 64


class ExactVectors:
    """Exact search in memory over `vectors` of length 1, of shape (chunks, dimensions).

    Reading every number of 100,000 vectors takes longer than the arithmetic. So they are turned to
    their principal axes, which changes no product, and read in blocks of dimensions, of most
    variance first. What is left of a vector bounds what it can still gain (Cauchy-Schwarz): those
    that can't be among the best any more are read no further.
    """

    def __init__(self, vectors: NDArray[np.float32]) -> None:
        vectors = np.ascontiguousarray(vectors, dtype=np.float32)
        self._count, dimensions = vectors.shape
        self._axes: NDArray[np.float32] | None = None
        cuts = [0, dimensions]
        if self._count > _SMALL and dimensions > _FIRST_BLOCK:
            _, axes = np.linalg.eigh(vectors.T @ vectors)
            self._axes = np.ascontiguousarray(axes[:, ::-1], dtype=np.float32)
            vectors = vectors @ self._axes
            cuts = [0, *range(_FIRST_BLOCK, dimensions, _BLOCK), dimensions]
        self._cuts = list(pairwise(cuts))
        self._blocks = [np.ascontiguousarray(vectors[:, a:b]) for a, b in self._cuts]
        # The length of what each vector has after each block but the last, rounded up.
        self._rest = [
            _lengths(vectors[:, end:]) * np.float32(1.00001) for _, end in self._cuts[:-1]
        ]

    def nearest(self, vector: NDArray[np.float32], top_k: int) -> Hits:
        """The `top_k` chunks (all where there are fewer) with the largest inner product."""
        top_k = min(top_k, self._count)
        if top_k <= 0:
            return []
        if self._axes is not None:
            vector = np.einsum("ij,i->j", self._axes, vector)
        parts = [vector[a:b] for a, b in self._cuts]
        scores = _products(self._blocks[0], parts[0])
        places = np.arange(self._count)
        reached = self._reached(scores, parts, top_k) if len(parts) > 1 else 0.0
        for number, part in enumerate(parts[1:], start=1):
            left = float(np.linalg.norm(vector[self._cuts[number][0] :]))
            rest = self._rest[number - 1]
            sparse = len(places) < self._count
            bound = scores + (rest[places] if sparse else rest) * left
            possible = bound >= reached - _TIE
            # Rows picked out one by one cost several times what rows in a row do.
            if sparse or np.count_nonzero(possible) < self._count // 8:
                sparse, places, scores = True, places[possible], scores[possible]
            block = self._blocks[number]
            scores = scores + _products(block[places] if sparse else block, part)
        # Two equal vectors may differ in their last bits, by how they were reached.
        return best(places, scores.astype(np.float64).round(_DECIMALS), top_k)

    def _reached(
        self, scores: NDArray[np.float32], parts: list[NDArray[np.float32]], top_k: int
    ) -> float:
        """A score that the `top_k` best reach at least: that of the most promising ones."""
        some = min(8 * top_k, self._count)
        places = np.argpartition(scores, -some)[-some:]
        whole = scores[places]
        for block, part in zip(self._blocks[1:], parts[1:], strict=True):
            whole = whole + _products(block[places], part)
        return float(np.partition(whole, -top_k)[-top_k])


def _products(rows: NDArray[np.float32], vector: NDArray[np.float32]) -> NDArray[np.float32]:
    # Not `rows @ vector`: BLAS shares the work among threads and waits for the slowest, which on
    # a busy machine takes many times as long as one thread needs.
    products: NDArray[np.float32] = np.einsum("ij,j->i", rows, vector)
    return products


def _lengths(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    lengths: NDArray[np.float32] = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return lengths


def best(
    places: NDArray[np.int64], scores: NDArray[np.float32] | NDArray[np.float64], top_k: int
) -> Hits:
    """The `top_k` places with the best scores; ties keep the order of the places."""
    if len(places) > top_k:
        kept = scores >= np.partition(scores, -top_k)[-top_k]
        places, scores = places[kept], scores[kept]
    order = np.lexsort((places, -scores))[:top_k]
    return [(int(places[i]), float(scores[i])) for i in order]
