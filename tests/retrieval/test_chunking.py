from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerouter.retrieval.chunking import (
    Chunk,
    TokenisedText,
    chunk_document,
    count_words,
    word_starts,
    words,
)

ENGLISH = "One two three four. Five six seven! Eight nine ten eleven? Twelve thirteen."


def texts(document: str, chunks: list[Chunk]) -> list[str]:
    return [document[chunk.start : chunk.end] for chunk in chunks]


def assert_covers(document: str, chunks: list[Chunk]) -> None:
    assert chunks[0].start == 0
    assert chunks[-1].end == len(document)
    for left, right in pairwise(chunks):
        assert left.start < right.start <= left.end < right.end


def test_chunks_are_cut_where_sentences_end() -> None:
    assert texts(ENGLISH, chunk_document(ENGLISH, 10, 0)) == [
        "One two three four. Five six seven! ",
        "Eight nine ten eleven? Twelve thirteen.",
    ]


def test_overlap_repeats_whole_sentences_and_gives_way_where_the_next_would_not_fit() -> None:
    assert texts(ENGLISH, chunk_document(ENGLISH, 10, 5)) == [
        "One two three four. Five six seven! ",
        "Five six seven! Eight nine ten eleven? ",
        "Eight nine ten eleven? Twelve thirteen.",
    ]
    # Five of overlap and a next sentence of nine can't both stand in twelve tokens.
    document = "One two three four. Five six seven eight. a b c d e f g h."
    assert texts(document, chunk_document(document, 12, 5)) == [
        "One two three four. Five six seven eight. ",
        "a b c d e f g h.",
    ]


def test_a_sentence_longer_than_a_chunk_is_cut_by_tokens() -> None:
    document = "Short one. " + " ".join(f"w{number}" for number in range(50)) + ". Short two."
    chunks = chunk_document(document, 10, 2)
    assert_covers(document, chunks)
    assert max(chunk.tokens for chunk in chunks) == 10
    assert texts(document, chunks)[0] == "Short one. "


@pytest.mark.parametrize("document", ["", "  \n\n\t "])
def test_a_document_without_a_token_has_no_chunk(document: str) -> None:
    assert chunk_document(document, 10, 2) == []


def test_a_short_document_is_one_chunk() -> None:
    assert chunk_document("Only this.", 10, 2) == [Chunk(0, 10, 3)]


def test_decimal_points_end_no_sentence() -> None:
    document = "It rose to 3.75 metres in all. Then it fell."
    assert texts(document, chunk_document(document, 10, 0))[0] == "It rose to 3.75 metres in all. "


@pytest.mark.parametrize(
    ("document", "first"),
    [
        ("天地玄黄。宇宙洪荒！日月盈昃，辰宿列张。", "天地玄黄。"),
        ("他说：「好。」她走了。然后没有人。", "他说：「好。」"),
        ("هذا نص قصير؟ وهذه جملة أخرى هنا. وثالثة.", "هذا نص قصير؟ "),
    ],
    ids=["chinese", "chinese quotes", "arabic"],
)
def test_sentences_of_other_scripts_are_kept_whole(document: str, first: str) -> None:
    chunks = chunk_document(document, 8, 0)
    assert_covers(document, chunks)
    assert texts(document, chunks)[0] == first


def test_text_without_spaces_is_still_cut() -> None:
    document = "x" * 5_000
    chunks = chunk_document(document, 20, 4)
    assert_covers(document, chunks)
    assert len(chunks) > 5


def test_another_tokenizer_sets_the_sizes() -> None:
    document = "abcdefghij" * 4
    chunks = chunk_document(document, 10, 0, token_starts=lambda text: range(len(text)))
    assert [(chunk.start, chunk.end, chunk.tokens) for chunk in chunks] == [
        (place, place + 10, 10) for place in range(0, 40, 10)
    ]


def test_tokens_that_share_a_character_make_no_empty_chunk() -> None:
    document = "ab𠮷cd"
    starts = [0, 1, 2, 2, 2, 2, 3, 4]
    chunks = chunk_document(document, 2, 0, token_starts=lambda _: starts)
    assert_covers(document, chunks)


@pytest.mark.parametrize(("size", "overlap"), [(5, 5), (5, 6), (5, -1)])
def test_an_overlap_as_large_as_the_chunk_is_refused(size: int, overlap: int) -> None:
    with pytest.raises(ValueError, match="overlap_tokens"):
        chunk_document("text", size, overlap)


@settings(max_examples=200, deadline=None)
@given(
    document=st.text(
        alphabet=st.sampled_from(list("ab .!?\n。天\"'(é\u0301\u200b\u2028")), max_size=200
    ),
    size=st.integers(1, 12),
    overlap=st.integers(0, 11),
)
def test_any_text_is_covered_by_chunks_of_the_size(document: str, size: int, overlap: int) -> None:
    overlap = min(overlap, size - 1)
    chunks = chunk_document(document, size, overlap)
    if count_words(document) == 0:
        assert chunks == []
        return
    assert_covers(document, chunks)
    for chunk in chunks:
        assert 0 < chunk.tokens <= size
        assert count_words(document[chunk.start : chunk.end]) == chunk.tokens
    shared = [count_words(document[right.start : left.end]) for left, right in pairwise(chunks)]
    assert max(shared, default=0) <= overlap


@pytest.mark.parametrize(
    "unit", ["The quick brown fox jumps. ", ".", '."', "x", "\n", "天。"], ids=repr
)
def test_time_is_linear_even_on_hostile_text(unit: str) -> None:
    document = unit * (1_000_000 // len(unit))
    began = time.perf_counter()
    chunk_document(document, 200, 40)
    # Quadratic behaviour takes hours here; linear takes well under a second.
    assert time.perf_counter() - began < 10


def test_ten_million_characters_are_cut_in_reasonable_time() -> None:
    document = "The ferry sailed at noon, and nobody on the quay knew why it did.\n" * 150_000
    began = time.perf_counter()
    chunks = chunk_document(document, 600, 100)
    # Seconds on a quiet core; anything worse than linear takes hours.
    assert time.perf_counter() - began < 60
    assert_covers(document, chunks)
    assert max(chunk.tokens for chunk in chunks) <= 600


def test_a_part_of_a_text_is_cut_by_itself() -> None:
    text = TokenisedText(ENGLISH)
    # Tokens 5 to 14: "Five six seven! Eight nine ten eleven?"
    chunks = text.cut(5, 0, 5, 14)
    assert texts(ENGLISH, chunks) == ["Five six seven! ", "Eight nine ten eleven? "]
    assert text.count(*chunks[0][:2]) == chunks[0].tokens == 4
    assert (text.edge(0), text.edge(5), text.edge(17)) == (0, 20, len(ENGLISH))


def test_words_and_marks_are_counted_by_unicode() -> None:
    assert count_words("Zoë's 3 cats.") == 6
    assert words("Zoë's 3 cats.") == ["Zoë", "s", "3", "cats"]
    assert words("天地 玄") == ["天", "地", "玄"]
    assert list(word_starts("a  b.")) == [0, 3, 4]
