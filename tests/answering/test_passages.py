from __future__ import annotations

import pytest

from prerouter.answering.passages import DocumentBody, holds
from prerouter.core.records import Evidence, RagConfig, Span
from prerouter.measures.retrieval import merge
from prerouter.retrieval.chunking import word_starts

DOCUMENT = "One two three four. Five six seven eight. Nine ten eleven twelve."


def spans(*pairs: tuple[int, int]) -> tuple[Span, ...]:
    return tuple(Span(start=start, end=end) for start, end in pairs)


def seen(context: tuple[Span, ...]) -> list[str]:
    return [DOCUMENT[span.start : span.end] for span in context]


def test_a_document_that_fits_is_read_whole() -> None:
    body = DocumentBody(DOCUMENT, word_starts)
    assert body.long_context(15) == (spans((0, len(DOCUMENT))), False)
    assert body.long_context(None) == (spans((0, len(DOCUMENT))), False)


@pytest.mark.parametrize(
    ("budget", "expected"),
    [
        (14, ["One two three four. Five six ", "eight. Nine ten eleven twelve."]),
        (5, ["One two three ", "twelve."]),
        (1, ["One "]),
        (0, []),
    ],
)
def test_a_longer_one_loses_its_middle(budget: int, expected: list[str]) -> None:
    body = DocumentBody(DOCUMENT, word_starts)
    context, cut = body.long_context(budget)
    assert cut
    assert seen(context) == expected
    assert body.count(context) == budget


def test_an_empty_document_has_no_context() -> None:
    body = DocumentBody("", word_starts)
    assert body.long_context(10) == ((), False)
    assert body.index(RagConfig()).retrieve("ten", 5, None) == ()
    assert body.count(()) == 0


def test_chunks_come_best_first_and_those_over_the_budget_are_left_out() -> None:
    index = DocumentBody(DOCUMENT, word_starts).index(
        RagConfig(chunk_tokens=5, overlap_tokens=0, top_k=2)
    )
    question = "ten eleven or six?"
    assert [text.split()[0] for text in seen(index.retrieve(question, 2, None))] == ["Nine", "Five"]
    assert [text.split()[0] for text in seen(index.retrieve(question, 2, 9))] == ["Nine"]
    assert index.retrieve(question, 2, 4) == ()


def test_a_document_is_indexed_once_for_a_chunk_size() -> None:
    body = DocumentBody(DOCUMENT, word_starts)
    small = RagConfig(chunk_tokens=5, overlap_tokens=0, top_k=1)
    assert body.index(small) is body.index(small.model_copy(update={"top_k": 3}))
    assert body.index(small) is not body.index(RagConfig(chunk_tokens=10, overlap_tokens=0))


def test_evidence_is_held_only_as_a_whole() -> None:
    text = "Five six seven eight."
    start = DOCUMENT.index(text)
    evidence = Evidence(text=text, start=start, end=start + len(text))
    assert holds(DOCUMENT, spans((start, start + len(text))), evidence)
    assert not holds(DOCUMENT, spans((0, start + 5), (start + 5, 60)), evidence)
    # Two chunks that touch hold it between them.
    assert holds(DOCUMENT, merge(spans((0, start + 5), (start + 5, 60))), evidence)


def test_evidence_without_a_span_is_looked_for_by_its_text() -> None:
    evidence = Evidence(text="six seven")
    assert holds(DOCUMENT, spans((20, 45)), evidence)
    assert not holds(DOCUMENT, spans((0, 27), (45, 60)), evidence)
