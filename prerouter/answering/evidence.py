"""The evidence reader: both routes' real context, answered from the reference's evidence.

A measured stand-in for a reading model. Chunking, retrieval and the cut at the window are the real
ones; the reading itself is perfect: whatever evidence lies in the context is answered, and nothing
else. Its score is therefore evidence recall, an upper bound of what a model reads there, and it
knows neither loss in the middle nor distraction.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from prerouter.answering.passages import DocumentBody, holds
from prerouter.core.records import (
    Answer,
    MissingReason,
    Reference,
    Route,
    RoutingCase,
    Span,
)
from prerouter.measures.retrieval import merge
from prerouter.prompts.answer import DECLINE
from prerouter.retrieval.chunking import TokenStarts, word_starts


def answer_document(
    document: str,
    cases: Sequence[tuple[RoutingCase, Reference]],
    *,
    reserved_tokens: int = 256,
    token_starts: TokenStarts = word_starts,
) -> Iterator[Answer]:
    """Answer all cases over one document: two answers a case, RAG and then LC.

    RAG sees the `case.rag.top_k` best chunks by BM25, LC the document; of either, no more than the
    answer model's window less `reserved_tokens` (instructions, question and answer). A longer
    document loses its middle (`document_cut`). The text is the evidence that lies wholly in what
    was seen, in the reference's order, one passage a line, or `DECLINE` where there is none. An
    answerable question whose reference holds no evidence has no answer (`no_reference`).

    `prompt_tokens` counts context and question in tokens of `token_starts`.
    """
    body = DocumentBody(document, token_starts)
    for case, reference in cases:
        window = case.answer_model.context_window
        budget = None if window is None else max(0, window - reserved_tokens)
        # Built outside the clock: its cost belongs to the document, not to its first question.
        index = body.index(case.rag)
        for route in (Route.RAG, Route.LC):
            began = time.perf_counter()
            if route is Route.RAG:
                spans, cut = index.retrieve(case.question, case.rag.top_k, budget), False
            else:
                spans, cut = body.long_context(budget)
            text = _read(document, merge(spans), reference)
            yield Answer(
                case_id=case.case_id,
                route=route,
                text=text,
                missing=MissingReason.NO_REFERENCE if text is None else None,
                prompt_tokens=body.count(spans) + len(token_starts(case.question)),
                completion_tokens=None if text is None else len(token_starts(text)),
                seconds=time.perf_counter() - began,
                retrieved=spans if route is Route.RAG else (),
                document_cut=cut,
            )


def _read(document: str, context: Sequence[Span], reference: Reference) -> str | None:
    """The answer that `context` supports; None where the reference doesn't say what to look for."""
    if not reference.answerable:
        return DECLINE
    if not reference.evidence:
        return None
    found = [piece.text for piece in reference.evidence if holds(document, context, piece)]
    return "\n".join(found) if found else DECLINE
