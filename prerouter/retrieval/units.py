"""Long retrieval units: about 4,000 tokens of a document, by size or by its own structure.

LongRAG (Jiang, Ma and Chen, 2024, arXiv 2406.15319).
"""

from __future__ import annotations

import re

import numpy as np

from prerouter.recipe.retrieval import Grouping
from prerouter.retrieval.chunking import TokenisedText

_NUMERAL = r"(?:\d{1,4}[A-Za-z]?|[IVXLCDM]{1,8}|one|two|three|four|five|six|seven|eight|nine|ten)"
_HEADING = re.compile(
    rf"""^[ \t\u3000]*+(?:
        \#{{1,6}}[ \t]+\S.{{0,150}}                                   # Markdown
      | (?:chapter|part|book|section|stave|appendix|article|item)[ \t]+
        (?:{_NUMERAL}|[A-Z])\b.{{0,150}}                              # Chapter 12, Item 7A
      | (?P<number>\d{{1,3}}(?:\.\d{{1,3}}){{0,4}}\.?[ \t]+)[^\W\d_].{{0,100}}  # 2.1 Data
      | (?-i:[IVXLC]{{1,8}})\.?                                      # a numeral alone
      | 第[〇零一二三四五六七八九十百千\d]{{1,8}}[章节節回部卷篇].{{0,100}}
    )$""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_CLOSED = re.compile(r"[.,;:!?][\"'”’)]*\s*$")  # noqa: RUF001


def heading_places(document: str) -> list[int]:
    """Where heading lines begin: Markdown, `Chapter 3`, `Item 7A`, `IV.`, `2.1 Data`, 第三章.

    A numbered line counts only where its title neither begins with a small letter nor ends with a
    punctuation mark: others are list items and wrapped sentences. Linear in the length.
    """
    return [match.start() for match in _HEADING.finditer(document) if not _is_item(match)]


def _is_item(match: re.Match[str]) -> bool:
    if match["number"] is None:
        return False
    title = match.string[match.end("number") : match.end()]
    return title[0].islower() or _CLOSED.search(title) is not None


def long_units(text: TokenisedText, unit_tokens: int, group_by: Grouping) -> list[tuple[int, int]]:
    """Cut a document into units of at most `unit_tokens`: (first, last) tokens, last exclusive.

    By `size`, units are as long as sentences allow. By `structure`, a unit is as many whole
    sections in a row as fit; a longer section is cut by size, and a document without headings too.
    The ranges follow each other without a gap or an overlap.
    """
    total = len(text.starts)
    if group_by == "size":
        return list(text.ranges(unit_tokens, 0))
    places = np.searchsorted(text.starts, heading_places(text.text))
    borders = [int(place) for place in np.unique(places) if 0 < place < total]
    units: list[tuple[int, int]] = []
    first = previous = 0
    for border in [*borders, total]:
        if border - first > unit_tokens and previous > first:
            units.append((first, previous))
            first = previous
        if border - first > unit_tokens:
            units += text.ranges(unit_tokens, 0, first, border)
            first = border
        previous = border
    if first < total:
        units.append((first, total))
    return units
