"""Prompts counted without transformers are as long as transformers has them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.core.records import Message
from prerouter.training.lengths import check_chat_template, prompt_tokenizer

PROMPTS = [
    (
        Message(role="system", content="Decide."),
        Message(role="user", content=f"Case {number}: \u6587"),
    )
    for number in range(3)
]


@pytest.mark.parametrize("thinking", [True, False])
def test_the_ids_are_those_of_transformers(qwen3_tokenizer_dir: Path, thinking: bool) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(qwen3_tokenizer_dir)
    expected = [
        tokenizer.apply_chat_template(
            [message.model_dump() for message in prompt],
            add_generation_prompt=True,
            enable_thinking=thinking,
            return_dict=False,
        )
        for prompt in PROMPTS
    ]
    assert prompt_tokenizer(qwen3_tokenizer_dir)(PROMPTS, thinking) == expected


def test_a_tokenizer_that_asks_for_cutting_and_padding_gets_neither(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.enable_truncation(2)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    template = "{% for message in messages %}{{ message.content }} {% endfor %}"
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": template}))
    given = [(Message(role="user", content="one two three four"),)]
    assert [len(ids) for ids in prompt_tokenizer(tmp_path)(given, None)] == [4]


def test_a_folder_without_a_tokenizer_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no tokenizer\.json"):
        prompt_tokenizer(tmp_path)


NO_SYSTEM = (
    "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}"
    "{% endif %}{% for m in messages %}{{ m.content }}{% endfor %}"
)


def test_a_template_without_a_system_turn_is_told(
    qwen3_tokenizer_dir: Path, tmp_path: Path
) -> None:
    check_chat_template("train.model", tmp_path)  # a folder without one says nothing
    (tmp_path / "chat_template.jinja").write_text(NO_SYSTEM)
    told = r"takes no system turn \(System role not supported\)"
    with pytest.raises(InputError, match=f"^train.model: .*{told}"):
        check_chat_template("train.model", tmp_path)
    marked = "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}{% endfor %}"
    (tmp_path / "chat_template.jinja").write_text(marked)
    check_chat_template("train.model", tmp_path)  # a mark that trainers use is nothing wrong
    (tmp_path / "chat_template.jinja").write_text(NO_SYSTEM)
    (tmp_path / "tokenizer.json").symlink_to(qwen3_tokenizer_dir / "tokenizer.json")
    with pytest.raises(InputError, match=told):
        prompt_tokenizer(tmp_path)
