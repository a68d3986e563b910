"""Files of numbers: whole values, intervals, reasons, and nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import pytest

from prerouter.measures.statistics import Interval, Measured
from prerouter.reporting.contents import Cell, Column, Table, measured_cell, text_cell
from prerouter.reporting.numbers import table_csv


def rows_of(*rows: list[Cell], headings: tuple[str, ...] = ("Router", "QA")) -> list[list[str]]:
    columns = [Column(heading) for heading in headings]
    return list(csv.reader(io.StringIO(table_csv(Table("t", "T", columns, rows)))))


def test_values_are_unrounded_and_intervals_have_columns() -> None:
    found = Interval(low=0.1 / 3, high=2 / 3, confidence=0.95, n_groups=9, resamples=100)
    cell = measured_cell(Measured(value=1 / 3, interval=found), lambda v: f"{v:.2f}")
    assert cell.interval == "[0.03, 0.67]"
    assert rows_of([text_cell("student"), cell]) == [
        ["Router", "QA", "QA, low", "QA, high"],
        ["student", repr(1 / 3), repr(0.1 / 3), repr(2 / 3)],
    ]


def test_what_is_missing_is_empty_with_its_reason() -> None:
    none = measured_cell(Measured(note="n/a: no error"), str)
    assert rows_of([text_cell("a"), none], [text_cell("b"), Cell("1", 1)]) == [
        ["Router", "QA", "QA, note"],
        ["a", "", "n/a: no error"],
        ["b", "1", ""],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "=1+1",
        "+1",
        "-1",
        "@SUM(A1)",
        "\t=1",
        "\r=1",
        " =cmd|'/c calc'!A1",
        '=HYPERLINK("x")',
        "\n=1",
    ],
)
def test_no_text_begins_a_formula(text: str) -> None:
    header, row = rows_of([text_cell(text), Cell("-1", -1.0)], headings=(text, "QA"))
    assert header[0] == row[0] == f"'{text.strip()}"
    # A number stays one, negative or not.
    assert row[1] == "-1.0"


def test_a_table_without_rows_has_its_head() -> None:
    assert rows_of() == [["Router", "QA"]]
