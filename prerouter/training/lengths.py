"""How long prompts get, counted with the model's own tokenizer but without transformers.

`prerouter check` and `estimate` have to know this where there is neither torch nor the model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from prerouter.core.errors import InputError
from prerouter.core.records import Message
from prerouter.prompts.system_turn import check_system_turn
from prerouter.training.pieces import PieceTokenizer

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PromptTokenizer = Callable[[Sequence[Sequence[Message]], bool | None], list[list[int]]]


def prompt_tokenizer(folder: Path) -> PromptTokenizer:
    """A function (prompts, thinking) -> the token ids of each prompt at inference, by the
    tokenizer.json and the chat template in `folder`; prompts that come together share their work.

    Thinking None leaves the switch to the template, as servers do that are told nothing. Raises
    InputError where a file is missing or unreadable, or the template takes no system turn.
    """
    from jinja2.exceptions import TemplateError

    pieces = PieceTokenizer(_read_tokenizer(folder))
    source = _template_source(folder)
    if source is None:
        raise InputError(
            str(folder),
            "holds no chat template",
            "chat_template.jinja, or the key in tokenizer_config.json",
        )
    template = _compile(source, folder)
    _check_turns(str(folder), folder, template)

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


def check_chat_template(place: str, folder: Path) -> None:
    """Raises InputError, in the name of `place`, where a chat template lies in `folder` and takes
    no system turn."""
    source = _template_source(folder)
    if source is not None:
        _check_turns(place, folder, _compile(source, folder))


def _check_turns(place: str, folder: Path, template: Any) -> None:
    check_system_turn(place, str(folder), lambda chat: str(template.render(messages=chat)))


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


def _template_source(folder: Path) -> str | None:
    beside, config = folder / "chat_template.jinja", folder / "tokenizer_config.json"
    if beside.is_file():
        return beside.read_text("utf-8")
    try:
        data = json.loads(config.read_text("utf-8")) if config.is_file() else {}
    except ValueError as error:
        raise InputError(str(config), f"is no JSON: {error}") from None
    source = data.get("chat_template") if isinstance(data, dict) else None
    return source if source and isinstance(source, str) else None


def _compile(source: str, folder: Path) -> Any:
    from jinja2.exceptions import TemplateSyntaxError
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Where a template marks the assistant's words: they stand as they are."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    # The template comes from a stranger: it runs in a sandbox, as it does in transformers.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation]
    )
    # What templates call to refuse a chat.
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    try:
        return environment.from_string(source)
    except TemplateSyntaxError as error:
        raise InputError(str(folder), f"its chat template is broken: {error}") from None


def _refuse(message: str) -> NoReturn:
    from jinja2.exceptions import TemplateError

    raise TemplateError(message)
