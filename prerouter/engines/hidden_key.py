"""The key taken out of what a server sends, so that no trace, reject or error holds it."""

from __future__ import annotations

import dataclasses
import json
import re

from prerouter.core.protocols import Completion
from prerouter.engines.retries import ServerError

_MAX_DETAIL = 200
_SHORTEST_SECRET = 12
"""A placeholder such as "dummy" is no secret, and taking it out would spoil a reply."""

_ESCAPED = re.compile(r"\\u([0-9a-fA-F]{4})")


def without_key(text: str, key: str) -> str:
    return text.replace(key, "[key]") if len(key) >= _SHORTEST_SECRET else text


def hide_key(completion: Completion, key: str) -> Completion:
    """`completion` with the key taken out. The body may have held it in another spelling of JSON;
    a text that is JSON itself and spells it so is refused with a ServerError."""
    reasoning = completion.reasoning
    text = without_key(completion.text, key)
    reasoning = None if reasoning is None else without_key(reasoning, key)
    for shown in (text, reasoning or ""):
        plain = _ESCAPED.sub(lambda found: chr(int(found[1], 16)), shown).replace("\\/", "/")
        if without_key(plain, key) != plain:
            raise ServerError("the reply spells out the key", passing=False)
    return dataclasses.replace(completion, text=text, reasoning=reasoning)


def short_detail(body: object, key: str) -> str:
    """A server's message, of the body of its error, as one short printable line."""
    if isinstance(body, dict) and isinstance(body.get("message"), str):
        body = body["message"]
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False) if body else ""
    shown = "".join(sign if sign.isprintable() else " " for sign in without_key(text, key))
    return " ".join(shown.split())[:_MAX_DETAIL]
