"""Dense and lexical search over the same texts, each giving its share, and a reranker after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from prerouter.retrieval.index import Bm25Index, Hits
from prerouter.retrieval.rerank import Reranker

Source = Literal["dense", "lexical", "reranker"]


class Found(NamedTuple):
    """A text's place, the score that put it there, and whose score it is.

    Scores of different sources can't be compared: the order is what counts.
    """

    place: int
    score: float
    source: Source


class VectorIndex(Protocol):
    def nearest(self, vector: NDArray[np.float32], top_k: int) -> Hits: ...


def blend(dense: Hits, lexical: Hits, count: int, vector_ratio: float) -> list[Found]:
    """`count` texts, of which `dense` gives the share `vector_ratio` and `lexical` the rest.

    The two take turns, so that every beginning of the list keeps the shares as nearly as it can,
    dense first where it is even. A text that both found takes one place and the one whose turn it
    was goes on to its next; where one has no more, the other fills up.
    """
    queues: dict[Source, Iterator[tuple[int, float]]] = {
        "dense": iter(dense),
        "lexical": iter(lexical),
    }
    shares: dict[Source, float] = {"dense": vector_ratio, "lexical": 1 - vector_ratio}
    given: dict[Source, int] = {"dense": 0, "lexical": 0}
    found: list[Found] = []
    seen: set[int] = set()
    while len(found) < count and queues:
        # Whose next text leaves it nearest to its share; who has no share comes last.
        source = min(
            queues,
            key=lambda name: (given[name] + 1) / shares[name] if shares[name] else float("inf"),
        )
        hit = next((hit for hit in queues[source] if hit[0] not in seen), None)
        if hit is None:
            del queues[source]
            continue
        given[source] += 1
        seen.add(hit[0])
        found.append(Found(hit[0], hit[1], source))
    return found


class HybridSearch:
    """All the ways to search one list of texts, and what is common to every list."""

    def __init__(
        self,
        texts: Sequence[str],
        vectors: VectorIndex | None,
        encode: Callable[[str], NDArray[np.float32]] | None,
        reranker: Reranker | None,
        vector_ratio: float,
    ) -> None:
        self._texts = texts
        self._vectors = vectors
        self._encode = encode
        self._reranker = reranker
        self._ratio = vector_ratio
        self._lexical = Bm25Index(texts) if vector_ratio < 1 else None

    def search(self, question: str, count: int) -> list[Found]:
        """The best `count` texts, best first; fewer only where nothing else is found."""
        dense: Hits = []
        if self._vectors is not None and self._encode is not None:
            dense = self._vectors.nearest(self._encode(question), count)
        lexical = self._lexical.search(question, count) if self._lexical else []
        found = blend(dense, lexical, count, self._ratio)
        if self._reranker is None:
            return found
        scores = self._reranker.scores(question, [self._texts[each.place] for each in found])
        reranked = [
            Found(each.place, score, "reranker") for each, score in zip(found, scores, strict=True)
        ]
        return sorted(reranked, key=lambda each: (-each.score, each.place))
