from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.measures.words import fold, normalise, split_words


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Treaty,\nof Ghent!", "treaty of ghent"),
        ("STRASSE and straße", "strasse and strasse"),
        ("ﬁne ｆｕｌｌ", "fine full"),
        ("Frankenstein’s 'monster'", "frankensteins monster"),
        ("zero​width soft­hyphen no break", "zerowidth softhyphen no break"),
        ("$1,234.50 (-5%) in 1990–1995", "1234.50 -5 in 1990 1995"),
        ("− 3 and −3", "3 and -3"),
        ("mother-in-law. End.", "mother in law end"),
        ("A", "a"),
        ("The a", "the a"),
        ("%", "%"),
        ("  \n", ""),
        ("हिन्दी, भाषा।", "हिन्दी भाषा"),
        ("مرحبا، بالعالم", "مرحبا بالعالم"),
        ("e\u0301te\u0301", "été"),
    ],
)
def test_normalise(text: str, expected: str) -> None:
    assert normalise(text) == expected


def test_words_of_scripts_without_spaces_are_characters() -> None:
    assert split_words(fold("東京タワーは333m")) == [*"東京タワーは", "333m"]
    assert len(split_words(fold("ไม่มี"))) > 1
    assert split_words("हिन्दी भाषा") == ["हिन्दी", "भाषा"]


@given(st.text())
def test_only_blank_text_has_no_words(text: str) -> None:
    assert bool(split_words(normalise(text))) == bool(fold(text).strip())


@given(st.text(alphabet=st.characters(codec="latin-1")))
def test_folding_twice_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)
