from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import StageError
from prerouter.training.examples import TokenisedExample, tokenise
from prerouter.training.tokens import choose_pad, find_end_of_turn
from prerouter.training.trainer import load_tokenizer

from .conftest import example


@pytest.fixture
def tokenizer(tiny_model_dir: Path):  # type: ignore[no-untyped-def]
    return load_tokenizer(str(tiny_model_dir), None)


@pytest.fixture
def rows(tokenizer) -> list[TokenisedExample]:  # type: ignore[no-untyped-def]
    return [tokenise(example(n), tokenizer, False) for n in range(2)]


def test_the_end_of_turn_is_what_the_template_closes_with(tokenizer, rows) -> None:  # type: ignore[no-untyped-def]
    assert tokenizer.convert_ids_to_tokens(find_end_of_turn(rows, tokenizer)) == "<|im_end|>"


def test_a_template_that_closes_with_text_is_refused(tokenizer) -> None:  # type: ignore[no-untyped-def]
    tokenizer.chat_template = (
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    rows = [tokenise(example(0), tokenizer, False)]
    with pytest.raises(StageError, match="could not learn to stop"):
        find_end_of_turn(rows, tokenizer)


def test_text_behind_the_end_of_turn_is_refused(tokenizer) -> None:  # type: ignore[no-untyped-def]
    tokenizer.chat_template = tokenizer.chat_template.replace(
        "message.content + '<|im_end|>", "message.content + '<|im_end|> over'+ '"
    )
    rows = [tokenise(example(0), tokenizer, False)]
    with pytest.raises(StageError, match="could not learn to stop"):
        find_end_of_turn(rows, tokenizer)


def test_the_wanted_pad_comes_first(tokenizer, rows) -> None:  # type: ignore[no-untyped-def]
    assert choose_pad(tokenizer, "<|im_start|>", frozenset({2}), rows) == "<|im_start|>"


def test_the_tokenizers_own_pad_is_taken(tokenizer, rows) -> None:  # type: ignore[no-untyped-def]
    assert choose_pad(tokenizer, None, frozenset({2}), rows) == "<|endoftext|>"


def test_a_token_that_is_named_for_padding_is_preferred(tokenizer, rows) -> None:  # type: ignore[no-untyped-def]
    tokenizer.pad_token = "<|im_end|>"
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|aaa|>", "<|my_pad|>"]})
    assert choose_pad(tokenizer, None, frozenset({2}), rows) == "<|my_pad|>"


def test_no_token_to_spare_is_an_error_that_says_what_to_set(tokenizer, rows) -> None:  # type: ignore[no-untyped-def]
    tokenizer.pad_token = "<|im_end|>"
    with pytest.raises(StageError, match=r"set train\.pad_token"):
        choose_pad(tokenizer, None, frozenset({0, 2}), rows)
