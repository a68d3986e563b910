"""What a page shows of tables and cases that are too many for it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TypeVar

from markupsafe import escape

from prerouter.reporting.contents import Cell, Listing, RegretCase, RegretCases, Section, Table

# Of the markup around a text.
_AROUND = 100
_Shown = TypeVar("_Shown")


def cut_to(section: Section, room: int) -> Section:
    """The section with the first rows of each table and the first cases of each router that take
    about `room` bytes of HTML."""
    return replace(section, parts=[_cut(part, room) for part in section.parts])


def cut_listings(section: Section, characters: int) -> Section:
    """The section with so many characters of each listing at most."""
    return replace(
        section,
        parts=[
            replace(part, text=part.text[:characters], left_out=len(part.text) - characters)
            if isinstance(part, Listing) and len(part.text) > characters
            else part
            for part in section.parts
        ],
    )


def _cut(part: _Shown, room: int) -> _Shown:
    if isinstance(part, Table) and part.shown:
        rows = _first(part.rows, map(_row_bytes, part.rows), room)
        return replace(part, rows=rows, left_out=len(part.rows) - len(rows))
    if isinstance(part, RegretCases):
        cases = _first(part.cases, map(_case_bytes, part.cases), room)
        return replace(part, cases=cases, left_out=len(part.cases) - len(cases))
    return part


def _first(items: Sequence[_Shown], sizes: Iterable[int], room: int) -> Sequence[_Shown]:
    taken = 0
    for count, size in enumerate(sizes):
        taken += size
        if taken > room:
            return items[:count]
    return items


def _row_bytes(row: Sequence[Cell]) -> int:
    return sum(_bytes(cell.text, str(cell.value), cell.interval, cell.note or "") for cell in row)


def _case_bytes(case: RegretCase) -> int:
    texts = (case.title, case.head, case.question, case.case_id, case.answer_model, case.otherwise)
    grounds = (text for pair in case.grounds for text in pair)
    return _bytes(*texts, *grounds) + _AROUND * (8 + len(case.scores))


def _bytes(*texts: str) -> int:
    return sum(len(escape(text).encode()) for text in texts) + _AROUND
