"""How long training examples get, counted with the student's tokenizer but without transformers.

`prerouter check` has to know this on a machine that has neither torch nor the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import InputError
from prerouter.core.records import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TokenCounter = Callable[[Sequence[Message], bool], int]


def token_counter(folder: Path) -> TokenCounter:
    """A function (messages, thinking) -> tokens of the inference prompt, by the tokenizer.json and
    the chat template in `folder`. Raises InputError where one is missing or unreadable."""
    from jinja2.exceptions import TemplateError

    tokenizer = _read_tokenizer(folder)
    template = _read_chat_template(folder)

    def count(messages: Sequence[Message], thinking: bool) -> int:
        try:
            text = template.render(
                messages=[message.model_dump() for message in messages],
                add_generation_prompt=True,
                enable_thinking=thinking,
            )
        except TemplateError as error:
            raise InputError(str(folder), f"its chat template fails: {error}") from None
        return len(tokenizer.encode(text, add_special_tokens=False).ids)

    return count


def _read_tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(
            str(folder),
            "holds no tokenizer.json",
            "the folder of the student's tokenizer",
            "download it beside the recipe, or leave out --tokenizer",
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 -- the library raises nothing narrower
        raise InputError(str(path), f"is no tokenizer: {error}") from None


def _read_chat_template(folder: Path) -> Any:
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.ext import loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    beside = folder / "chat_template.jinja"
    if beside.is_file():
        source = beside.read_text("utf-8")
    else:
        config = folder / "tokenizer_config.json"
        data = json.loads(config.read_text("utf-8")) if config.is_file() else {}
        source = data.get("chat_template") or ""
    if not isinstance(source, str) or not source:
        raise InputError(
            str(folder),
            "holds no chat template",
            "chat_template.jinja, or the key in tokenizer_config.json",
        )
    # The template comes from a stranger: it runs in a sandbox, as it does in transformers.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols]
    )
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise InputError(str(folder), f"its chat template is broken: {error}") from None
