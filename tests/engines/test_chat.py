from __future__ import annotations

from pathlib import Path

import pytest
from transformers import AutoTokenizer

from prerouter.core.records import Message
from prerouter.engines.chat import encode_chat

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
