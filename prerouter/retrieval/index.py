"""Lexical search over the chunks of one document."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from prerouter.retrieval.chunking import words


class Retriever(Protocol):
    """Ranks the chunks that it was built from."""

    def search(self, query: str, top_k: int) -> list[tuple[int, float]]:
        """(chunk index, score), best first, at most `top_k`; fewer where nothing else matches."""
        ...


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

    def search(self, query: str, top_k: int) -> list[tuple[int, float]]:
        known = [self._vocabulary[term] for term in terms(query) if term in self._vocabulary]
        if not known or top_k <= 0:
            return []
        scores = self._index.get_scores_from_ids(known)
        order = np.argsort(-scores, kind="stable")[:top_k]
        return [(int(place), float(scores[place])) for place in order if scores[place] > 0]
