"""What of a document an answering model gets to see on each route, as character spans."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prerouter.core.records import Evidence, RagConfig, Span
from prerouter.retrieval.chunking import TokenStarts, chunk_document
from prerouter.retrieval.index import Bm25Index


class DocumentIndex:
    """A document's chunks under one RAG configuration, indexed once for all its questions."""

    def __init__(self, document: str, rag: RagConfig, token_starts: TokenStarts) -> None:
        self._chunks = chunk_document(document, rag.chunk_tokens, rag.overlap_tokens, token_starts)
        self._index = Bm25Index([document[chunk.start : chunk.end] for chunk in self._chunks])

    def retrieve(self, question: str, top_k: int, budget: int | None) -> tuple[Span, ...]:
        """The best `top_k` chunks, best first; those that pass `budget` tokens are left out."""
        spans = []
        used = 0
        for place, _ in self._index.search(question, top_k):
            chunk = self._chunks[place]
            used += chunk.tokens
            if budget is not None and used > budget:
                break
            spans.append(Span(start=chunk.start, end=chunk.end))
        return tuple(spans)


class DocumentBody:
    """A document with its tokens counted once, and its indexes as RAG configurations ask."""

    def __init__(self, document: str, token_starts: TokenStarts) -> None:
        self._document = document
        self._token_starts = token_starts
        starts = np.asarray(token_starts(document), dtype=np.int64)
        self._starts = np.maximum.accumulate(starts)
        self._indexes: dict[tuple[int, int], DocumentIndex] = {}

    def index(self, rag: RagConfig) -> DocumentIndex:
        sizes = (rag.chunk_tokens, rag.overlap_tokens)
        if sizes not in self._indexes:
            self._indexes[sizes] = DocumentIndex(self._document, rag, self._token_starts)
        return self._indexes[sizes]

    def count(self, spans: Sequence[Span]) -> int:
        """The tokens that start in each span, added up: overlap is read twice and counted twice."""
        edges = [(span.start, span.end) for span in spans]
        return int(np.diff(np.searchsorted(self._starts, edges), axis=-1).sum()) if edges else 0

    def long_context(self, budget: int | None) -> tuple[tuple[Span, ...], bool]:
        """The whole document, or its beginning and end where it passes `budget` tokens.

        Returns the spans and whether the middle was cut out.
        """
        end = len(self._document)
        total = len(self._starts)
        if budget is None or total <= budget:
            return ((Span(start=0, end=end),) if end else ()), False
        head = (budget + 1) // 2
        tail = budget - head
        spans = []
        if head:
            spans.append(Span(start=0, end=int(self._starts[head])))
        if tail:
            spans.append(Span(start=int(self._starts[total - tail]), end=end))
        return tuple(spans), True


def holds(document: str, context: Sequence[Span], evidence: Evidence) -> bool:
    """Whether `evidence` lies wholly in the merged `context`; without a span, by its text."""
    if evidence.start is not None and evidence.end is not None:
        start, end = evidence.start, evidence.end
        return any(span.start <= start and end <= span.end for span in context)
    return any(document.find(evidence.text, span.start, span.end) >= 0 for span in context)
