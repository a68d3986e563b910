"""What retrieval gave the reader: evidence found, evidence split, units diluted, tokens read.

Fragmentation and dilution compare a small retrieval unit with a large one over the same questions
(LongRAG: Jiang, Ma and Chen, 2024, arXiv 2406.15319). All work on character spans; a question whose
evidence has no span is in none of them and is counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from prerouter.core.records import Evidence, Span


@dataclass(frozen=True)
class Setting:
    """One question under one retrieval setting: all that could be retrieved, in document order,
    what was, best first, and the tokens that the reader got, where they are known."""

    units: Sequence[Span]
    retrieved: Sequence[Span]
    tokens: int | None


class Dilution(StrEnum):
    """How a larger unit ranks the evidence that the small setting retrieved."""

    NONE = "none"
    RANKED_LOWER = "ranked_lower"
    MISSED = "missed"


@dataclass(frozen=True)
class Share:
    """`hits` of `of` questions; `rate` is None where there was none to count."""

    hits: int
    of: int

    @property
    def rate(self) -> float | None:
        return self.hits / self.of if self.of else None


@dataclass(frozen=True)
class UnitComparison:
    """A small and a large setting over the same questions. Means are None where nothing counts.

    `missed` and `ranked_lower` are over the questions of whose evidence the small setting retrieved
    a piece; the dilution rate is their sum.
    """

    questions: int
    without_spans: int
    recall_small: float | None
    recall_large: float | None
    fragmented: Share
    ranked_lower: Share
    missed: Share
    tokens_small: float | None
    tokens_large: float | None


def evidence_spans(evidence: Sequence[Evidence]) -> tuple[Span, ...] | None:
    """The spans of a question's evidence; None unless every passage has one."""
    spans = [
        Span(start=piece.start, end=piece.end)
        for piece in evidence
        if piece.start is not None and piece.end is not None
    ]
    return tuple(spans) if spans and len(spans) == len(evidence) else None


def retrieved_recall(evidence: Sequence[Span], retrieved: Sequence[Span]) -> float:
    """Share of the evidence spans that lie whole in what was retrieved, in 0..1.

    Retrieved spans that touch or overlap are read as one. Raises ValueError without evidence.
    """
    if not evidence:
        raise ValueError("evidence recall needs at least one passage")
    joined = merge(retrieved)
    return sum(_holder(joined, span) is not None for span in evidence) / len(evidence)


def merge(spans: Sequence[Span]) -> tuple[Span, ...]:
    """The same characters as spans in document order that neither overlap nor touch."""
    merged: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.start, span.end)):
        if merged and span.start <= merged[-1].end:
            end = max(span.end, merged[-1].end)
            merged[-1] = Span(start=merged[-1].start, end=end)
        else:
            merged.append(span)
    return tuple(merged)


def fragmented(evidence: Sequence[Span], small: Sequence[Span], large: Sequence[Span]) -> bool:
    """Whether a border between small units splits a piece of evidence that a large unit holds."""
    return any(
        _holder(small, span) is None and _holder(large, span) is not None for span in evidence
    )


def dilution(
    evidence: Sequence[Span], small: Sequence[Span], large: Sequence[Span]
) -> Dilution | None:
    """What becomes of the best piece of evidence that the small setting retrieved.

    `small` and `large` are ranked, best first. The piece that ranks best in the small setting is
    looked for in the large one: at a worse rank it is RANKED_LOWER, nowhere MISSED. None where the
    small setting retrieved no piece whole: there is nothing to dilute.
    """
    ranks = [(rank, span) for span in evidence if (rank := _holder(small, span)) is not None]
    if not ranks:
        return None
    before, piece = min(ranks, key=lambda each: each[0])
    after = _holder(large, piece)
    if after is None:
        return Dilution.MISSED
    return Dilution.RANKED_LOWER if after > before else Dilution.NONE


def compare_units(
    questions: Iterable[tuple[Sequence[Evidence], Setting, Setting]],
) -> UnitComparison:
    """All measures of a small setting beside a large one: (evidence, small, large) a question."""
    rows = list(questions)
    placed = [
        (spans, small, large)
        for evidence, small, large in rows
        if (spans := evidence_spans(evidence)) is not None
    ]
    split = [fragmented(spans, small.units, large.units) for spans, small, large in placed]
    diluted = [
        outcome
        for spans, small, large in placed
        if (outcome := dilution(spans, small.retrieved, large.retrieved)) is not None
    ]
    return UnitComparison(
        questions=len(rows),
        without_spans=len(rows) - len(placed),
        recall_small=_mean(
            [retrieved_recall(spans, small.retrieved) for spans, small, _ in placed]
        ),
        recall_large=_mean(
            [retrieved_recall(spans, large.retrieved) for spans, _, large in placed]
        ),
        fragmented=Share(sum(split), len(split)),
        ranked_lower=Share(diluted.count(Dilution.RANKED_LOWER), len(diluted)),
        missed=Share(diluted.count(Dilution.MISSED), len(diluted)),
        tokens_small=_mean([s.tokens for _, s, _ in rows if s.tokens is not None]),
        tokens_large=_mean([g.tokens for _, _, g in rows if g.tokens is not None]),
    )


def _holder(units: Sequence[Span], span: Span) -> int | None:
    """The first unit, by position, that `span` lies in whole."""
    return next(
        (
            place
            for place, unit in enumerate(units)
            if unit.start <= span.start and span.end <= unit.end
        ),
        None,
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None
