from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerouter.recipe.retrieval import Grouping
from prerouter.retrieval.chunking import TokenisedText
from prerouter.retrieval.units import heading_places, long_units

BOOK = """A Tale

CHAPTER I.
One two three. Four five six.

CHAPTER II.
Seven eight nine. Ten eleven twelve. Thirteen fourteen fifteen. Sixteen seventeen.

CHAPTER III.
Last words.
"""


def texts(document: str, unit_tokens: int, group_by: Grouping) -> list[str]:
    text = TokenisedText(document)
    return [
        document[text.edge(first) : text.edge(last)]
        for first, last in long_units(text, unit_tokens, group_by)
    ]


@pytest.mark.parametrize(
    "line",
    [
        "# Results",
        "### 3.1 Data",
        "CHAPTER IV.",
        "Chapter 12. The Council",
        "STAVE  TWO.",
        "Item 7A. Disclosures About Market Risk",
        "PART II",
        "Appendix B",
        "2 Related Work",
        "2.1 Data",
        "IV.",
        "第三章 天地",
        "第十二回",
        "  Chapter 2",
    ],
)
def test_headings_are_found_where_their_line_begins(line: str) -> None:
    document = f"Some text before.\n{line}\nSome text after."
    assert heading_places(document) == [18]


@pytest.mark.parametrize(
    "line",
    [
        "Chapters are long.",
        "12 men came, and went.",
        "3 represents a",
        "1. Bread, milk and eggs.",
        "He read chapter 3",
        "#hashtag",
        "1914",
        "I think so",
        "civil",
        "第三",
    ],
)
def test_other_lines_are_no_headings(line: str) -> None:
    assert heading_places(f"Before.\n{line}\nAfter.") == []


def test_structure_keeps_sections_whole_and_joins_small_ones() -> None:
    assert texts(BOOK, 23, "structure") == [
        "A Tale\n\nCHAPTER I.\nOne two three. Four five six.\n\n",
        BOOK[BOOK.index("CHAPTER II.") : BOOK.index("CHAPTER III.")],
        "CHAPTER III.\nLast words.\n",
    ]


def test_a_section_longer_than_a_unit_is_cut_at_sentences_and_joined_to_no_other() -> None:
    units = texts(BOOK, 13, "structure")
    assert units[1].startswith("CHAPTER II.")
    assert units[1].endswith("Ten eleven twelve. ")
    assert units[-1].startswith("CHAPTER III.")


def test_size_pays_no_heed_to_headings() -> None:
    assert texts(BOOK, 1000, "size") == [BOOK]
    assert len(texts(BOOK, 24, "size")) == 2


def test_without_headings_structure_is_size() -> None:
    document = "One two three. " * 40
    assert texts(document, 20, "structure") == texts(document, 20, "size")


@pytest.mark.parametrize("group_by", ["size", "structure"])
@pytest.mark.parametrize("document", ["", "   ", "\n\n"])
def test_a_document_without_a_token_has_no_unit(document: str, group_by: Grouping) -> None:
    assert texts(document, 20, group_by) == []


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(
        st.sampled_from(["Chapter 1", "# A", "One two. Three four.", "天地玄黄。", "", "x" * 60])
    ),
    size=st.integers(1, 30),
    group_by=st.sampled_from(["size", "structure"]),
)
def test_units_partition_any_document(lines: list[str], size: int, group_by: Grouping) -> None:
    document = "\n".join(lines)
    text = TokenisedText(document)
    units = long_units(text, size, group_by)
    if len(text.starts) == 0:
        assert units == []
        return
    assert units[0][0] == 0
    assert units[-1][1] == len(text.starts)
    assert all(left[1] == right[0] for left, right in pairwise(units))
    assert all(0 < last - first <= size for first, last in units)
    assert "".join(texts(document, size, group_by)) == document


@pytest.mark.parametrize("unit", ["Chapter 1\n", " ", "1. ", "# ", "IV.\n", "chapter "], ids=repr)
def test_time_is_linear_even_on_hostile_text(unit: str) -> None:
    document = unit * (1_000_000 // len(unit))
    began = time.perf_counter()
    heading_places(document)
    assert time.perf_counter() - began < 10
