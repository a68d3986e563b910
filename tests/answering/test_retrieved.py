"""What retrieval held of the evidence: by route, and long units beside chunks."""

from __future__ import annotations

from prerouter.answering.retrieved import retrieval_report
from prerouter.core.records import Answer, Evidence, MissingReason, Reference, Route, Span
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.chunking import word_starts

from .scripted import make_case

SENTENCES = [f"Keeper {n} of the long grey harbour wall wrote line {n} here. " for n in range(40)]
BODY = "".join(SENTENCES)
RAG = RetrievalSection(vector_ratio=0)
LONG = RetrievalSection(vector_ratio=0, unit="long", unit_tokens=240)


def span_of(first: int, last: int) -> Span:
    """The sentences from `first` to `last`."""
    start = sum(map(len, SENTENCES[:first]))
    return Span(start=start, end=start + sum(map(len, SENTENCES[first : last + 1])))


def reference(question: str, first: int, last: int) -> Reference:
    span = span_of(first, last)
    text = BODY[span.start : span.end]
    return Reference(
        question_id=question,
        answer="a",
        evidence=(Evidence(text=text, start=span.start, end=span.end),),
    )


def answer(case: str, route: Route, tokens: int | None, *spans: Span) -> Answer:
    return Answer(case_id=case, route=route, text="a", prompt_tokens=tokens, retrieved=spans)


# Evidence of q0 lies in a chunk that was retrieved; that of q1 runs over the border of two chunks,
# and inside one long unit; q2 has no place for its evidence; q3 was not answered.
CASES = [make_case(case_id=f"q{n}") for n in range(4)]
REFERENCES = {
    "q0": reference("q0", 1, 1),
    "q1": reference("q1", 3, 6),
    "q2": Reference(question_id="q2", answer="a", evidence=(Evidence(text="elsewhere"),)),
    "q3": reference("q3", 2, 2),
}
ANSWERS = {
    ("q0", Route.RAG): answer("q0", Route.RAG, 90, span_of(0, 3)),
    ("q0", Route.LONG_RAG): answer("q0", Route.LONG_RAG, 300, span_of(0, 19)),
    ("q1", Route.RAG): answer("q1", Route.RAG, 110, span_of(0, 3)),
    ("q1", Route.LONG_RAG): answer("q1", Route.LONG_RAG, 300, span_of(0, 19)),
    ("q2", Route.RAG): answer("q2", Route.RAG, 100, span_of(0, 3)),
    ("q3", Route.RAG): Answer(case_id="q3", route=Route.RAG, missing=MissingReason.CUT_OFF),
}


def report(sections: dict[Route, RetrievalSection]) -> dict[str, object]:
    return retrieval_report(
        ANSWERS, CASES, REFERENCES, sections, lambda document: BODY, lambda model: word_starts
    )


def test_recall_and_tokens_are_of_answers_whose_evidence_has_a_place() -> None:
    found = report({Route.RAG: RAG})
    assert found["questions_with_placed_evidence"] == 3
    assert found["RAG"] == {"answers": 2, "evidence_recall": 0.5, "prompt_tokens": 100.0}
    assert "LONG_RAG beside RAG" not in found


def test_long_units_are_held_against_chunks() -> None:
    found = report({Route.RAG: RAG, Route.LONG_RAG: LONG})
    assert found["LONG_RAG"] == {"answers": 2, "evidence_recall": 1.0, "prompt_tokens": 300.0}
    beside = found["LONG_RAG beside RAG"]
    assert isinstance(beside, dict)
    assert beside["questions"] == 2
    assert (beside["recall_small"], beside["recall_large"]) == (0.5, 1.0)
    # Chunks of 60 tokens end within q1's evidence, and a unit of 240 holds it.
    assert beside["fragmented"] == {"hits": 1, "of": 2}
    assert (beside["tokens_small"], beside["tokens_large"]) == (100.0, 300.0)


def test_nothing_placed_is_told() -> None:
    found = retrieval_report({}, CASES, {}, {Route.RAG: RAG}, str, lambda model: word_starts)
    assert found == {
        "questions_with_placed_evidence": 0,
        "RAG": {"answers": 0, "evidence_recall": None, "prompt_tokens": None},
    }


def test_tokens_that_nobody_told_are_in_no_mean_and_none_read_is_zero() -> None:
    found = retrieval_report(
        ANSWERS
        | {
            ("q0", Route.RAG): answer("q0", Route.RAG, None, span_of(0, 3)),
            ("q3", Route.RAG): answer("q3", Route.RAG, 0),
        },
        CASES,
        REFERENCES,
        {Route.RAG: RAG, Route.LONG_RAG: LONG},
        lambda document: BODY,
        lambda model: word_starts,
    )
    # 110 of q1 and 0 of q3.
    assert found["RAG"]["prompt_tokens"] == 55.0
    assert found["LONG_RAG beside RAG"]["tokens_small"] == 110.0
