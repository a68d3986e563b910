"""What retrieval gave the readers, of questions whose evidence has its place in the document."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prerouter.core.records import Answer, RagConfig, Reference, Route, RoutingCase, Span
from prerouter.measures.retrieval import (
    Setting,
    compare_units,
    evidence_spans,
    retrieved_recall,
)
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.chunking import TokenisedText, TokenStarts
from prerouter.retrieval.retriever import cut_units

Answers = Mapping[tuple[str, Route], Answer]


def retrieval_report(
    answers: Answers,
    cases: Iterable[RoutingCase],
    references: Mapping[str, Reference],
    retrieval: Mapping[Route, RetrievalSection],
    body: Callable[[str], str],
    token_starts: Callable[[str], TokenStarts],
) -> dict[str, Any]:
    """By each route that retrieves: evidence recall and tokens read, means over its answers; and of
    LONG_RAG beside RAG, fragmentation and dilution (`measures.retrieval`). `body` gives a document,
    `token_starts` the tokens of an answer model.
    """
    placed = [
        case
        for case in cases
        if (known := references.get(case.question_id)) and evidence_spans(known.evidence)
    ]
    report: dict[str, Any] = {
        "questions_with_placed_evidence": len({c.question_id for c in placed})
    }
    for route in retrieval:
        given = [
            (references[case.question_id], answer)
            for case in placed
            if (answer := answers.get((case.case_id, route))) and answer.text is not None
        ]
        report[route.value] = {
            "answers": len(given),
            "evidence_recall": _mean(
                [
                    retrieved_recall(evidence_spans(known.evidence) or (), answer.retrieved)
                    for known, answer in given
                ]
            ),
            "prompt_tokens": _mean(
                [a.prompt_tokens for _, a in given if a.prompt_tokens is not None]
            ),
        }
    if Route.LONG_RAG in retrieval:
        pairs = _pairs(answers, placed, references, retrieval, body, token_starts)
        compared = asdict(compare_units(pairs))
        report["LONG_RAG beside RAG"] = {k: v for k, v in compared.items() if v is not None}
    return report


def _pairs(
    answers: Answers,
    placed: Sequence[RoutingCase],
    references: Mapping[str, Reference],
    retrieval: Mapping[Route, RetrievalSection],
    body: Callable[[str], str],
    token_starts: Callable[[str], TokenStarts],
) -> list[tuple[Any, Setting, Setting]]:
    units: dict[tuple[str, str, RagConfig, Route], list[Span]] = {}
    pairs = []
    for case in placed:
        settings = []
        for route in (Route.RAG, Route.LONG_RAG):
            answer = answers.get((case.case_id, route))
            if answer is None or answer.text is None:
                break
            key = (case.document.document_id, case.answer_model.name, case.rag, route)
            if key not in units:
                starts = token_starts(case.answer_model.name)
                text = TokenisedText(body(case.document.document_id), starts)
                cut = cut_units(text, retrieval[route], case.rag)
                units[key] = [Span(start=chunk.start, end=chunk.end) for chunk in cut]
            settings.append(Setting(units[key], answer.retrieved, answer.prompt_tokens))
        if len(settings) == 2:
            pairs.append((references[case.question_id].evidence, settings[0], settings[1]))
    return pairs


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 4) if values else None
