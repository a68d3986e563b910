"""The tables of a prompt study: variants by measures, and best of N."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prerouter.measures.best_of_n import BestOfN
from prerouter.measures.routing import Measure, RoutingRow
from prerouter.reporting.contents import (
    Cell,
    Column,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.escaping import escape_markdown
from prerouter.reporting.material import ALL_MODELS
from prerouter.reporting.tables import fixed

BEST_OF_NOTE = (
    "Accuracy against the ideal route. Best: at least one of N samples is right (an oracle "
    "chooses). Vote: the route that most of N samples name is right. Estimated without bias from "
    "all samples of a case; in brackets, intervals from resampled documents."
)


def study_table(rows: Sequence[RoutingRow]) -> Table:
    """A row for each answer model and each pair of model and variant, with every measure."""
    headings = [measure.value.replace("_", " ") for measure in Measure]
    return Table(
        name="table",
        caption="Models and variants of the prompt",
        columns=[
            Column("router", numeric=False),
            Column("answer model", numeric=False),
            *map(Column, ("cases", "undecided", *headings)),
        ],
        rows=[
            [
                text_cell(row.router),
                text_cell(row.answer_model or ALL_MODELS),
                count_cell(row.n),
                count_cell(row.undecided),
                *(measured_cell(row.measures[measure], fixed) for measure in Measure),
            ]
            for row in rows
        ],
    )


def best_of_table(best: Mapping[str, Sequence[BestOfN]]) -> Table:
    """A row for each pair of model and variant and each N."""
    return Table(
        name="best_of",
        caption="Best of N samples",
        columns=[
            Column("router", numeric=False),
            *map(Column, ("N", "cases", "best of N", "vote of N")),
        ],
        rows=[
            [
                text_cell(name),
                count_cell(row.samples),
                count_cell(row.n),
                measured_cell(row.oracle, fixed),
                measured_cell(row.majority, fixed),
            ]
            for name, rows in best.items()
            for row in rows
        ],
    )


def table_markdown(table: Table, note: str) -> str:
    """A GitHub-flavoured table with its note, ending in a newline."""
    ends = [":---" if not column.numeric else "---:" for column in table.columns]
    lines = [[column.heading for column in table.columns], ends]
    lines += [[_shown(cell) for cell in row] for row in table.rows]
    rows = [f"| {' | '.join(line)} |" for line in lines]
    return "\n".join([*rows, "", note]) + "\n"


def _shown(cell: Cell) -> str:
    return escape_markdown(f"{cell.text} {cell.interval}".strip())
