"""Whether a chat template takes the system turn that every prompt here begins with."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from prerouter.core.errors import InputError

Render = Callable[[list[dict[str, str]]], str]
"""A chat template: messages to text."""

_SYSTEM, _USER = "first words", "second words"


def check_tokenizer(place: str, model: str, tokenizer: Any) -> None:
    """`check_system_turn` for a tokenizer of transformers, which has a chat template."""
    check_system_turn(place, model, partial(tokenizer.apply_chat_template, tokenize=False))


def check_system_turn(place: str, model: str, render: Render) -> None:
    """Raises InputError, in the name of `place`, where the template refuses a system turn or leaves
    it out, as Gemma's and the first ones of Mistral do.

    The text could go into the user's turn instead, but a server is sent a system turn, and would
    show the student another prompt than it was trained on.
    """
    from jinja2.exceptions import TemplateError

    chat = [{"role": "system", "content": _SYSTEM}, {"role": "user", "content": _USER}]
    try:
        render(chat[1:])
    except TemplateError:
        return  # of something else, which whoever renders a prompt by it is told
    try:
        taken = _SYSTEM in render(chat)
        why = "it is left out"
    except TemplateError as error:
        taken, why = False, " ".join(str(error).split())[:200]
    if not taken:
        raise InputError(
            place,
            f"the chat template of {model} takes no system turn ({why})",
            "an instruction-tuned model whose template takes one, such as Qwen3 or Llama 3",
            "take another model",
        )
