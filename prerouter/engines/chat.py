"""Messages through a tokenizer's own chat template."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prerouter.core.errors import RecipeError
from prerouter.core.records import Message
from prerouter.prompts.system_turn import check_tokenizer

OPEN_THINKING = "<think>"


def check_chat(tokenizer: Any, model: str) -> None:
    """Raises RecipeError for a model without a chat template, InputError for one whose template
    takes no system turn, with which every prompt here begins."""
    if getattr(tokenizer, "chat_template", None) is None:
        raise RecipeError(model, "has no chat template", "an instruction-tuned model")
    check_tokenizer(model, model, tokenizer)


def encode_chat(
    tokenizer: Any, messages: Sequence[Message], thinking: bool
) -> tuple[list[int], bool]:
    """Prompt ids, and whether the template has opened the thinking text already.

    Raises TypeError for text that has no tokens: the tokenizer's word for half a character.
    """
    text = tokenizer.apply_chat_template(
        [{"role": message.role, "content": message.content} for message in messages],
        add_generation_prompt=True,
        enable_thinking=thinking,
        tokenize=False,
    )
    ids: list[int] = tokenizer(text, add_special_tokens=False).input_ids
    return ids, text.rstrip().endswith(OPEN_THINKING)
