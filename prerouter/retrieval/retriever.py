"""From a question and a document to the passages that a reader gets."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from prerouter.core.records import RagConfig, Span
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.chunking import Chunk, TokenisedText, TokenStarts, word_starts
from prerouter.retrieval.embedding import SentenceEmbedder, VectorCache
from prerouter.retrieval.hybrid import Found, HybridSearch, Source
from prerouter.retrieval.index import ExactVectors
from prerouter.retrieval.milvus import MilvusStore
from prerouter.retrieval.rerank import Reranker
from prerouter.retrieval.units import long_units

# Documents whose indexes are kept while others are asked.
_OPEN_DOCUMENTS = 4


@dataclass(frozen=True)
class Passage:
    """What a reader gets: `document[span.start:span.end]`, its length in tokens, and why."""

    span: Span
    text: str
    tokens: int
    score: float
    source: Source


@dataclass
class _Indexed:
    """A document cut and indexed under one RAG configuration."""

    text: TokenisedText
    digest: str
    chunks: list[Chunk]
    units: list[tuple[int, int]]
    unit_of: list[int]
    search: HybridSearch
    spans: dict[int, tuple[list[Chunk], HybridSearch]] = field(default_factory=dict)


class Retriever:
    """Retrieval as a recipe's section says, over any number of documents.

    `token_starts` is the answering model's tokenizer (`tokens.tokenizer_starts`): every size is
    counted in its tokens. What belongs to a document is made at its first question and found by
    the hash of its text: in memory for the last four documents, and its vectors under `cache_dir`
    or in Milvus for good. Deterministic: equal scores keep the order of the document.

    Raises InputError where a model or Milvus can't be used, MissingDependencyError where a library
    is absent.
    """

    def __init__(self, section: RetrievalSection, token_starts: TokenStarts = word_starts) -> None:
        self._section = section
        self._token_starts = token_starts
        self._embedder = (
            SentenceEmbedder(
                section.embedding, section.embedding_revision, section.batch_size, section.dtype
            )
            if section.vector_ratio > 0
            else None
        )
        self._reranker = (
            Reranker(section.reranker, section.reranker_revision, section.batch_size, section.dtype)
            if section.reranker
            else None
        )
        self._milvus = MilvusStore(section.milvus) if section.milvus else None
        self._cache = VectorCache(section.cache_dir)
        self._open: OrderedDict[tuple[str, int, int], _Indexed] = OrderedDict()

    def retrieve(self, question: str, document: str, rag: RagConfig) -> list[Passage]:
        """The best passages, best first: `rag.top_k` chunks or long units, or the best spans of
        each. Fewer where the document has no more; none where nothing in it was found."""
        indexed = self._indexed(document, rag)
        winners = self._winners(indexed, question, rag.top_k)
        if self._section.unit == "chunk":
            return [_passage(document, indexed.chunks[each.place], each) for each in winners]
        if self._section.unit == "long":
            return [
                _passage(document, self._unit(indexed, unit), each)
                for each in winners
                for unit in [indexed.unit_of[each.place]]
            ]
        return [
            passage
            for each in winners
            for passage in self._best_spans(indexed, indexed.unit_of[each.place], question)
        ]

    def units(self, document: str, rag: RagConfig) -> list[Chunk]:
        """All that could be retrieved as one piece: chunks, or long units. For the measures."""
        return cut_units(self._indexed(document, rag).text, self._section, rag)

    def index(self, document: str, rag: RagConfig) -> None:
        """Make what belongs to the document, which its first question would make otherwise."""
        self._indexed(document, rag)

    def close(self) -> None:
        """Give Milvus free, where there is one."""
        if self._milvus:
            self._milvus.close()

    def _winners(self, indexed: _Indexed, question: str, top_k: int) -> list[Found]:
        """The best chunk of each of the `top_k` best units."""
        asked = max(top_k, self._section.candidates) if self._reranker else top_k
        while True:
            found = indexed.search.search(question, asked)
            best: dict[int, Found] = {}
            for each in found:
                best.setdefault(indexed.unit_of[each.place], each)
            if len(best) >= top_k or len(found) < asked or asked >= len(indexed.chunks):
                return list(best.values())[:top_k]
            asked *= 2

    def _best_spans(self, indexed: _Indexed, unit: int, question: str) -> Iterator[Passage]:
        if unit not in indexed.spans:
            first, last = indexed.units[unit]
            spans = indexed.text.cut(self._section.span_tokens, 0, first, last)
            indexed.spans[unit] = (spans, self._search(indexed.text.text, indexed.digest, spans))
        spans, search = indexed.spans[unit]
        wanted = self._section.spans_per_unit
        asked = max(wanted, self._section.candidates) if self._reranker else wanted
        for each in search.search(question, asked)[:wanted]:
            yield _passage(indexed.text.text, spans[each.place], each)

    def _indexed(self, document: str, rag: RagConfig) -> _Indexed:
        digest = hashlib.sha256(document.encode()).hexdigest()
        key = (digest, rag.chunk_tokens, rag.overlap_tokens)
        if key in self._open:
            self._open.move_to_end(key)
            return self._open[key]
        indexed = self._index(document, digest, rag)
        self._open[key] = indexed
        if len(self._open) > _OPEN_DOCUMENTS:
            self._open.popitem(last=False)
        return indexed

    def _index(self, document: str, digest: str, rag: RagConfig) -> _Indexed:
        text = TokenisedText(document, self._token_starts)
        sizes = (rag.chunk_tokens, rag.overlap_tokens)
        if self._section.unit == "chunk":
            chunks = text.cut(*sizes)
            units: list[tuple[int, int]] = []
            unit_of = list(range(len(chunks)))
        else:
            # Cut inside each unit, so that no chunk stands in two.
            units = long_units(text, self._section.unit_tokens, self._section.group_by)
            inside = [text.cut(*sizes, first, last) for first, last in units]
            chunks = [chunk for some in inside for chunk in some]
            unit_of = [unit for unit, some in enumerate(inside) for _ in some]
        search = self._search(document, digest, chunks, self._milvus)
        return _Indexed(text, digest, chunks, units, unit_of, search)

    def _search(
        self,
        document: str,
        digest: str,
        chunks: Sequence[Chunk],
        milvus: MilvusStore | None = None,
    ) -> HybridSearch:
        texts = [document[chunk.start : chunk.end] for chunk in chunks]
        vectors = None
        if self._embedder is not None and texts:
            embedder = self._embedder
            key = _vector_key(digest, embedder.identity, chunks)

            def embed() -> NDArray[np.float32]:
                return self._cache.get(key, len(texts), lambda: embedder.documents(texts))

            vectors = milvus.open(key, len(texts), embed) if milvus else ExactVectors(embed())
        encode = self._embedder.question if self._embedder else None
        return HybridSearch(texts, vectors, encode, self._reranker, self._section.vector_ratio)

    def _unit(self, indexed: _Indexed, unit: int) -> Chunk:
        first, last = indexed.units[unit]
        return Chunk(indexed.text.edge(first), indexed.text.edge(last), last - first)


def cut_units(text: TokenisedText, section: RetrievalSection, rag: RagConfig) -> list[Chunk]:
    """All that could be retrieved as one piece: chunks, or long units. Nothing is indexed."""
    if section.unit == "chunk":
        return text.cut(rag.chunk_tokens, rag.overlap_tokens)
    return [
        Chunk(text.edge(first), text.edge(last), last - first)
        for first, last in long_units(text, section.unit_tokens, section.group_by)
    ]


def _vector_key(digest: str, identity: str, chunks: Sequence[Chunk]) -> str:
    """What the vectors of a document's chunks depend on: its text, the model, where it is cut."""
    cuts = np.array([(chunk.start, chunk.end) for chunk in chunks], dtype="<i8").tobytes()
    return hashlib.sha256(f"{digest}\n{identity}\n".encode() + cuts).hexdigest()


def _passage(document: str, chunk: Chunk, found: Found) -> Passage:
    return Passage(
        span=Span(start=chunk.start, end=chunk.end),
        text=document[chunk.start : chunk.end],
        tokens=chunk.tokens,
        score=found.score,
        source=found.source,
    )
