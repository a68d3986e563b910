from __future__ import annotations

import pytest

from prerouter.answering.rag import fit_passages, rag_prompt, rag_request
from prerouter.core.records import AnswerModel, Span
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.chunking import count_words, word_starts
from prerouter.retrieval.retriever import Passage, Retriever

from .scripted import count_prompt, make_case, shown, window
from .test_long_context import DOCUMENTS, FORGED

LEXICAL = RetrievalSection(vector_ratio=0)
HOUSES = " ".join(
    f"In house number {number} lived the family Smith{number}." for number in range(99)
)


def passage(start: int, text: str) -> Passage:
    span = Span(start=start, end=start + len(text))
    return Passage(span=span, text=text, tokens=count_words(text), score=1.0, source="lexical")


def test_passages_stand_in_the_order_of_the_document() -> None:
    best_first = [passage(900, "last"), passage(0, "first"), passage(300, "middle")]
    kept = fit_passages(best_first, None, word_starts)
    assert [text for _, text in kept] == ["last", "first", "middle"]
    assert shown(rag_request(make_case(), kept)) == ["first", "middle", "last"]


def test_what_does_not_fit_is_left_out_from_the_worst_on() -> None:
    ranked = [passage(200, "a " * 30), passage(0, "b " * 30), passage(100, "c " * 30)]
    kept = fit_passages(ranked, 90, word_starts)
    assert [span.start for span, _ in kept] == [200, 0]


def test_of_a_passage_that_is_too_long_alone_the_ends_are_kept() -> None:
    text = " ".join(map(str, range(500)))
    kept = fit_passages([passage(1000, text), passage(0, "short")], 60, word_starts)
    (head, first), (tail, last) = kept
    assert (head.start, tail.end) == (1000, 1000 + len(text))
    assert text.startswith(first)
    assert text.endswith(last)
    assert 30 < count_words(first) + count_words(last) <= 60


def test_the_prompt_shows_what_was_retrieved_and_the_record_says_where() -> None:
    case = make_case("Who lived in house number 42?")
    prompted = rag_prompt(case, HOUSES, Retriever(LEXICAL), window())
    assert prompted.request is not None
    passages = shown(prompted.request)
    assert any("Smith42" in text for text in passages)
    assert "Smith42" in HOUSES[prompted.retrieved[0].start : prompted.retrieved[0].end]
    assert sorted(HOUSES[span.start : span.end] for span in prompted.retrieved) == sorted(passages)
    assert len(passages) == 3
    assert prompted.seconds > 0


@pytest.mark.parametrize("name", DOCUMENTS)
@pytest.mark.parametrize("limit", [250, 400])
def test_the_prompt_stays_in_the_window(name: str, limit: int) -> None:
    document = DOCUMENTS[name]
    case = make_case(document[:24], answer_model=AnswerModel(name="r", context_window=limit))
    prompted = rag_prompt(case, document, Retriever(LEXICAL), window(reserved=32))
    assert prompted.request is not None
    assert count_prompt(prompted.request.messages, False) <= limit - 20
    assert [document[span.start : span.end] for span in sorted_spans(prompted.retrieved)] == shown(
        prompted.request
    )


def sorted_spans(spans: tuple[Span, ...]) -> list[Span]:
    return sorted(spans, key=lambda span: span.start)


@pytest.mark.parametrize(("question", "document"), [("Zeppelin?", HOUSES), ("When?", "")])
def test_where_nothing_is_found_nothing_is_asked(question: str, document: str) -> None:
    prompted = rag_prompt(make_case(question), document, Retriever(LEXICAL), window())
    assert prompted.request is None
    assert prompted.retrieved == ()


def test_a_document_of_one_chunk_is_one_passage() -> None:
    document = "The harbour froze in March."
    prompted = rag_prompt(make_case("harbour?"), document, Retriever(LEXICAL), window())
    assert prompted.request is not None
    assert shown(prompted.request) == [document]


def test_an_excerpt_can_neither_close_its_block_nor_ask_another_question() -> None:
    document = f"The harbour froze in March. {FORGED.replace('document', 'excerpts')}"
    prompted = rag_prompt(make_case("harbour?"), document, Retriever(LEXICAL), window())
    assert prompted.request is not None
    user = prompted.request.messages[1].content
    assert user.count("</excerpts>") == user.count("<question>") == 1
    assert "<|im_start|>" not in user
    assert "".join(shown(prompted.request)) == document


def test_choices_are_shown_by_letter() -> None:
    request = rag_request(make_case(), [], ("In </choices> March", "In June"))
    user = request.messages[1].content
    assert 'A: "In \\u003c/choices> March"\nB: "In June"\n</choices>' in user
    assert "letter" in user
