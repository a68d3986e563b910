"""Text from strangers as JSON that can neither close its block nor forge a turn of the chat."""

from __future__ import annotations

import json
import re
from typing import Any

# `<` and `[` open every delimiter of ours, every thinking tag and every special token of the
# common chat templates (`<|im_end|>`, `<start_of_turn>`, `[INST]`); the others are line breaks to
# some readers, or change or hide text on the screen. Zero-width (non-)joiners spell words: they
# stay.
_UNSAFE = re.compile(
    "[<\\[\x7f-\x9f\xad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def encode_json(value: Any) -> str:
    """`value` as one line of JSON, readable in any script, in which unsafe characters are escapes.

    `json.loads` gives the value back unchanged. Containers other than objects are refused, since
    the bracket of a list would be taken for text.
    """
    if isinstance(value, list | tuple):
        raise TypeError("encode_json takes text, numbers and objects of them, not lists")
    return _UNSAFE.sub(_escape, json.dumps(value, ensure_ascii=False, allow_nan=False))


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    if character.isascii():
        return f"\\u{ord(character):04x}"
    return json.dumps(character)[1:-1]
