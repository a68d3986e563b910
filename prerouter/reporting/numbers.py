"""Files of numbers: a table as CSV, safe to open in a spreadsheet."""

from __future__ import annotations

import csv
import io

from prerouter.reporting.contents import Cell, Table, Value
from prerouter.reporting.escaping import one_line

# A spreadsheet takes a cell that begins so for a formula, and runs it.
_FORMULA = ("=", "+", "-", "@")


def table_csv(table: Table) -> str:
    """Unrounded values; an interval has two columns of its own, and so has a note.

    A text stands on one line; one that a spreadsheet would take for a formula has an apostrophe
    before it.
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    cells = list(zip(*table.rows, strict=True)) or [() for _ in table.columns]
    header: list[str] = []
    columns: list[list[Value]] = []
    for column, of_column in zip(table.columns, cells, strict=True):
        for name, values in _columns(column.heading, of_column):
            header.append(name)
            columns.append(values)
    writer.writerow(map(guarded, header))
    for row in zip(*columns, strict=True):
        writer.writerow(map(guarded, row))
    return file.getvalue()


def _columns(heading: str, cells: tuple[Cell, ...]) -> list[tuple[str, list[Value]]]:
    found: list[tuple[str, list[Value]]] = [(heading, [cell.value for cell in cells])]
    if any(cell.low is not None for cell in cells):
        found.append((f"{heading}, low", [cell.low for cell in cells]))
        found.append((f"{heading}, high", [cell.high for cell in cells]))
    if any(cell.note for cell in cells):
        found.append((f"{heading}, note", [cell.note for cell in cells]))
    return found


def guarded(value: object) -> object:
    """A text on one line that no spreadsheet takes for a formula; anything else as it is."""
    if not isinstance(value, str):
        return value
    text = one_line(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
