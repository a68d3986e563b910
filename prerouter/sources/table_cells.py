"""What stands in one row's cells, checked and typed; every mistake is kept with its column."""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from prerouter.core.errors import CombinedError, InputError
from prerouter.recipe.base import Section
from prerouter.recipe.cases import LONGEST_ID, Scale
from prerouter.sources.problems import Problem, RejectReason
from prerouter.sources.table_files import Table, TableRow
from prerouter.sources.text_files import HIGHEST_COUNT

_SCALE = "mend it, or write `cases.scale: {low: LOWEST, high: HIGHEST}`"
_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def find_columns(
    table: Table, names: Section, required: Iterable[str], place: str
) -> dict[str, str]:
    """The columns that are there, by field of `names`.

    A required column and one that the user named must be there; a column under its default name
    may be absent. Raises a CombinedError with every one that is missing and the nearest there is.
    """
    missing = []
    found: dict[str, str] = {}
    required = frozenset(required)
    for key, column in names:
        if not isinstance(column, str):
            continue
        if column in table.columns:
            found[key] = column
        elif key in required or key in names.model_fields_set:
            folded = {name.casefold(): name for name in table.columns}
            near = difflib.get_close_matches(column.casefold(), list(folded), n=1, cutoff=0.4)
            hint = f"{folded[near[0]]!r}" if near else "NAME"
            missing.append(
                InputError(
                    str(table.path),
                    f"has no column {column!r}",
                    f"it has {', '.join(repr(name) for name in table.columns)}",
                    f"write `{place}: {{{key}: {hint}}}`",
                )
            )
    if missing:
        raise CombinedError(missing)
    return found


@dataclass
class Cells:
    """Typed access to one row. A mistake is added to `found` and the value is None."""

    row: TableRow
    columns: Mapping[str, str]
    found: list[Problem] = field(default_factory=list)

    def refuse(
        self, key: str, reason: RejectReason, what: str, accepted: str = "", next_step: str = ""
    ) -> None:
        column = self.columns.get(key)
        place = self.row.place if column is None else self.row.cell(column)
        self.found.append(Problem(reason, place, what, accepted, next_step))

    def value(self, key: str) -> Any:
        column = self.columns.get(key)
        return None if column is None else self.row.values.get(column)

    def text(self, key: str) -> str | None:
        """The text as it stands, blank or not; a whole number is taken for its digits."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        what = f"is {shown(value)}, not a text"
        advice = "write it in quotes; in Parquet, make it a column of strings"
        self.refuse(key, RejectReason.NOT_TEXT, what, "a text", advice)
        return None

    def filled(self, key: str) -> str | None:
        """A text that says something, without outer white space; else None."""
        return (self.text(key) or "").strip() or None

    def texts(self, key: str) -> tuple[str, ...]:
        """The texts of a list, or the one that stands in its place, without outer white space.

        A text that is itself a JSON list of texts is that list, since CSV has no lists.
        """
        value = self.value(key)
        if _blank(value):
            return ()
        items = _json_list(value) if isinstance(value, str) else value
        if not isinstance(items, list) or not all(isinstance(item, str) for item in items):
            what = f"is {shown(value)}"
            self.refuse(key, RejectReason.NOT_TEXT, what, "a text, a list of texts, or nothing")
            return ()
        if not all(item.strip() for item in items):
            self.refuse(key, RejectReason.NOT_TEXT, "lists a blank text", "texts of words")
        return tuple(item.strip() for item in items)

    def identifier(self, key: str) -> str | None:
        value = self.filled(key)
        # What a case's id spells with three characters.
        thrice = "/%" if key == "question_id" else "%"
        length = len(value or "") + 2 * sum((value or "").count(mark) for mark in thrice)
        if length > LONGEST_ID:
            what = f"has {length} characters, each of {thrice} counted as three"
            self.refuse(key, RejectReason.TOO_LONG, what, f"at most {LONGEST_ID}")
            return None
        return value

    def count(self, key: str, *, least: int = 0) -> int | None:
        """A whole number; 1200.0 is one, as spreadsheets write it."""
        value = self.value(key)
        if _blank(value):
            return None
        number = _number(value)
        if number is None or not least <= number <= HIGHEST_COUNT or number != int(number):
            what = f"is {shown(value)}"
            accepted = f"a whole number from {least} to {HIGHEST_COUNT:,}, or nothing"
            advice = "write it in digits: 12000"
            self.refuse(key, RejectReason.BAD_COUNT, what, accepted, advice)
            return None
        return int(number)

    def boolean(self, key: str) -> bool | None:
        value = self.value(key)
        if _blank(value):
            return None
        known = value if isinstance(value, bool) else _BOOLEANS.get(str(value).strip().casefold())
        if known is None:
            what = f"is {shown(value)}"
            self.refuse(
                key, RejectReason.BAD_BOOLEAN, what, "true, false, yes, no, 1, 0 or nothing"
            )
        return known

    def score(self, key: str, scale: Scale, advice: str = _SCALE) -> float | None:
        value = self.value(key)
        if _blank(value):
            return None
        number = _number(value)
        accepted = f"a number from {scale.low:g} to {scale.high:g}, or nothing if there is no score"
        what = f"is {shown(value)}"
        if number is None:
            self.refuse(key, RejectReason.NOT_A_NUMBER, what, accepted)
        elif not math.isfinite(number):
            self.refuse(key, RejectReason.NOT_FINITE, what, accepted, "a failed arm has no score")
        elif not scale.low <= number <= scale.high:
            self.refuse(key, RejectReason.OFF_SCALE, f"{what}, off the scale", accepted, advice)
        else:
            return number
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    try:
        # Python reads 1_000 as a number; nobody's spreadsheet does.
        return None if isinstance(value, str) and "_" in value else float(value)
    except (ValueError, OverflowError):
        return None


def _json_list(text: str) -> list[Any]:
    """The texts of a JSON list, or `text` itself, which may begin with a bracket as well."""
    if text.lstrip().startswith("["):
        try:
            items = json.loads(text)
        except (ValueError, RecursionError):
            items = None
        if isinstance(items, list) and all(isinstance(item, str) for item in items):
            return items
    return [text]


def _blank(value: Any) -> bool:
    return value is None or (isinstance(value, str) and not value.strip())


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
