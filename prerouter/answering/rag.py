"""The routes RAG and LONG_RAG: the passages that retrieval found, in the prompt."""

from __future__ import annotations

import time
from collections.abc import Sequence

from prerouter.answering.long_context import LongText
from prerouter.answering.prompted import Prompted
from prerouter.answering.window import Window
from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Route, RoutingCase, Span
from prerouter.prompts.answer import render_rag
from prerouter.prompts.encoding import encode_json
from prerouter.retrieval.chunking import TokenStarts
from prerouter.retrieval.retriever import Passage, Retriever

# A passage's number, its colon and the line break after it.
_LINE_TOKENS = 6


def rag_prompt(
    case: RoutingCase,
    document: str,
    retriever: Retriever,
    window: Window,
    choices: Sequence[str] = (),
    *,
    route: Route = Route.RAG,
    top_k: int | None = None,
) -> Prompted:
    """The case's question over the passages that are found for it in `document`, `top_k` where it
    is given and as many as the case says otherwise.

    Indexing isn't in `seconds`: it belongs to the document, not to its first question.
    """
    rag = case.rag.model_copy(update={"top_k": top_k}) if top_k else case.rag
    retriever.index(document, rag)
    began = time.perf_counter()
    passages = retriever.retrieve(case.question, document, rag)
    seconds = time.perf_counter() - began
    if not passages:
        return Prompted(case, route, None, seconds=seconds)
    room = window.room(case.answer_model, render_rag(case, (), choices))
    shown = fit_passages(passages, room, window.tokens.starts)
    return Prompted(case, route, rag_request(case, shown, choices), _spans(shown), seconds=seconds)


def rag_request(
    case: RoutingCase, passages: Sequence[tuple[Span, str]], choices: Sequence[str] = ()
) -> GenerationRequest:
    """The prompt over passages, given best first and shown in the order of the document.

    Sorted so, what happened first is read first, and passages that overlap stand side by side;
    answers are better for it than by rank (Yu et al., 2024, arXiv 2409.01666).
    """
    ordered = sorted(passages, key=lambda passage: (passage[0].start, passage[0].end))
    return GenerationRequest(render_rag(case, [text for _, text in ordered], choices))


def fit_passages(
    passages: Sequence[Passage], room: int | None, token_starts: TokenStarts
) -> list[tuple[Span, str]]:
    """The best passages that fit into `room` tokens together, best first, each with its text.

    From the first on that does not fit, all are left out; of one that is too long by itself, the
    two ends are kept.
    """
    shown: list[tuple[Span, str]] = []
    left = room
    for passage in passages:
        if left is not None:
            left -= len(token_starts(encode_json(passage.text))) + _LINE_TOKENS
            if left < 0:
                break
        shown.append((passage.span, passage.text))
    if shown or room is None:
        return shown
    best = passages[0]
    ends, _ = LongText(best.text, token_starts).fit(max(0, room - 2 * _LINE_TOKENS))
    offset = best.span.start
    return [
        (Span(start=offset + end.start, end=offset + end.end), best.text[end.start : end.end])
        for end in ends
    ]


def _spans(shown: Sequence[tuple[Span, str]]) -> tuple[Span, ...]:
    return tuple(span for span, _ in shown)
