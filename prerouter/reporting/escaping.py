"""Names that strangers chose, made harmless in a line of Markdown."""

from __future__ import annotations

import html
import re
import unicodedata

_MARKDOWN = re.compile(r"([\\`*\[\]|~$]|(?<![^\W_])_|_(?![^\W_]))")


_INVISIBLE = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def one_line(text: str) -> str:
    """`text` on one line, without control and invisible format characters (terminal escapes), and
    without what is no character (U+FFFE), which XML refuses."""
    visible = (" " if _invisible(c) else c for c in text)
    return " ".join("".join(visible).split())


def _invisible(character: str) -> bool:
    # The last two code points of each plane, and 32 more, are no characters for good.
    number = ord(character)
    none = number & 0xFFFE == 0xFFFE or 0xFDD0 <= number <= 0xFDEF
    return none or unicodedata.category(character) in _INVISIBLE


def escape_markdown(text: str) -> str:
    """`text` on one line that Markdown shows as it is: no HTML, no table border, no link."""
    escaped = _MARKDOWN.sub(r"\\\1", html.escape(one_line(text), quote=False))
    return escaped.replace("://", "&#58;//")
