from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.prompts.encoding import encode_json

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=60)


@given(ANY_TEXT)
def test_text_comes_back_unchanged_from_one_line_without_openers(text: str) -> None:
    encoded = encode_json(text)
    assert json.loads(encoded) == text
    assert len(encoded.splitlines()) == 1
    assert "<" not in encoded
    assert "[" not in encoded
    encoded.encode("utf-8")


@pytest.mark.parametrize("text", ["Größe", "長い文書", "می‌خواهم", "🧭", "a > b & c"])
def test_text_of_any_script_stays_readable(text: str) -> None:
    assert encode_json(text) == f'"{text}"'


def test_a_number_that_json_lacks_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_json({"tokens": float("nan")})


def test_a_list_is_refused_whose_bracket_would_be_escaped() -> None:
    with pytest.raises(TypeError, match="not lists"):
        encode_json(["a"])
