"""How long prompts get, counted with the model's own tokenizer but without transformers.

`prerouter check` and `estimate` have to know this where there is neither torch nor the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import InputError
from prerouter.core.records import Message
from prerouter.training.pieces import PieceTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PromptTokenizer = Callable[[Sequence[Sequence[Message]], bool | None], list[list[int]]]


def prompt_tokenizer(folder: Path) -> PromptTokenizer:
    """A function (prompts, thinking) -> the token ids of each prompt at inference, by the
    tokenizer.json and the chat template in `folder`; prompts that come together share their work.

    Thinking None leaves the switch to the template, as servers do that are told nothing. Raises
    InputError where a file is missing or unreadable.
    """
    from jinja2.exceptions import TemplateError

    pieces = PieceTokenizer(_read_tokenizer(folder))
    template = _read_chat_template(folder)

    def encode(prompts: Sequence[Sequence[Message]], thinking: bool | None) -> list[list[int]]:
        switch = {} if thinking is None else {"enable_thinking": thinking}
        try:
            texts = [
                template.render(
                    messages=[message.model_dump() for message in messages],
                    add_generation_prompt=True,
                    **switch,
                )
                for messages in prompts
            ]
        except TemplateError as error:
            raise InputError(str(folder), f"its chat template fails: {error}") from None
        return pieces.encode(texts)

    return encode


def _read_tokenizer(folder: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(
            str(folder),
            "holds no tokenizer.json",
            "the folder of the model's tokenizer",
            "download it beside the recipe, or leave out --tokenizer",
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 -- the library raises nothing narrower
        raise InputError(str(path), f"is no tokenizer: {error}") from None
    # The file may ask for either, and a count would then be of something else.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer


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
