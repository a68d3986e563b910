from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prerouter.core.errors import InputError, RecipeError
from prerouter.core.records import Message
from prerouter.engines.chat import check_chat, encode_chat

NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
)
OPENED = "{{- '<|im_start|>assistant\\n<think>\\n' }}"


@pytest.mark.parametrize(
    ("thinking", "ending"),
    [
        (True, "<|im_start|>assistant\n"),
        (False, "<|im_start|>assistant\n<think>\n\n</think>\n\n"),
    ],
)
def test_the_real_qwen3_template_is_told_whether_to_think(
    qwen3_tokenizer_dir: Path, thinking: bool, ending: str
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_dir)
    messages = (Message(role="system", content="Route."), Message(role="user", content="Which?"))
    ids, opened = encode_chat(tokenizer, messages, thinking)
    assert tokenizer.decode(ids) == (
        f"<|im_start|>system\nRoute.<|im_end|>\n<|im_start|>user\nWhich?<|im_end|>\n{ending}"
    )
    assert not opened


def test_a_template_that_opens_the_thinking_text_itself_is_noticed(
    qwen3_tokenizer_dir: Path,
) -> None:
    # As DeepSeek-R1's does: its replies then hold the closing tag only.
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_dir)
    tokenizer.chat_template = OPENED
    ids, opened = encode_chat(tokenizer, (Message(role="user", content="Which?"),), True)
    assert tokenizer.decode(ids).endswith("<think>\n")
    assert opened


def test_a_template_without_a_system_turn_is_refused_in_one_line(qwen3_tokenizer_dir: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_dir)
    check_chat(tokenizer, "mine")
    tokenizer.chat_template = NO_SYSTEM
    with pytest.raises(InputError, match=r"mine takes no system turn \(System role not supported"):
        check_chat(tokenizer, "mine")
    tokenizer.chat_template = (
        "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"
    )
    with pytest.raises(InputError, match=r"takes no system turn \(it is left out"):
        check_chat(tokenizer, "mine")
    tokenizer.chat_template = None
    with pytest.raises(RecipeError, match="has no chat template"):
        check_chat(tokenizer, "mine")
