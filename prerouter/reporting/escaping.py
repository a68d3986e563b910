"""Names that strangers chose, made harmless in a line of Markdown."""

from __future__ import annotations

import html
import re
import unicodedata

_MARKDOWN = re.compile(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_]))")


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def one_line(text: str) -> str:
    """`text` on one line, without control and invisible format characters (terminal escapes)."""
    visible = (" " if unicodedata.category(c) in _INVISIBLE else c for c in text)
    return " ".join("".join(visible).split())


def escape_markdown(text: str) -> str:
    """`text` on one line that Markdown shows as it is: no HTML, no table border, no link."""
    escaped = _MARKDOWN.sub(r"\\\1", html.escape(one_line(text), quote=False))
    return escaped.replace("://", "&#58;//")
