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
from prerouter.reporting.tables import FEW, UNSEEN, fixed, verdict_of

BEST_OF_NOTE = (
    "Accuracy against the ideal route. Best: at least one of N samples is right (an oracle "
    "chooses). Vote: the route that most of N samples name is right. Estimated without bias from "
    "all samples of a case; in brackets, intervals from resampled documents."
)


def study_table(
    rows: Sequence[RoutingRow],
    name: str = "table",
    caption: str = "Models and variants of the prompt",
) -> Table:
    """A row for each answer model and each pair of model and variant, with every measure."""
    headings = [measure.value.replace("_", " ") for measure in Measure]
    return Table(
        name=name,
        caption=caption,
        columns=[
            Column("router", numeric=False),
            Column("answer model", numeric=False),
            *map(Column, ("cases", "unlabelled", "undecided", *headings)),
            Column("few cases", numeric=False),
            Column("collapsed", numeric=False),
        ],
        rows=[
            [
                text_cell(row.router),
                text_cell(row.answer_model or ALL_MODELS, UNSEEN if row.unseen else None),
                count_cell(row.n, FEW if row.few_cases else None),
                count_cell(row.unlabelled),
                count_cell(row.undecided),
                *(measured_cell(row.measures[measure], fixed) for measure in Measure),
                text_cell("yes" if row.few_cases else "no"),
                text_cell(row.collapsed.value if row.collapsed else "", verdict_of(row) or None),
            ]
            for row in rows
        ],
    )


def best_of_table(
    best: Mapping[str, Sequence[BestOfN]],
    name: str = "best_of",
    caption: str = "Best of N samples",
) -> Table:
    """A row for each pair of model and variant and each N."""
    return Table(
        name=name,
        caption=caption,
        columns=[
            Column("router", numeric=False),
            *map(
                Column,
                ("N", "cases", "too few samples", "unlabelled", "best of N", "vote of N"),
            ),
        ],
        rows=[
            [
                text_cell(router),
                count_cell(row.samples),
                count_cell(row.n, row.caution),
                count_cell(row.too_few_samples),
                count_cell(row.unlabelled),
                measured_cell(row.oracle, fixed),
                measured_cell(row.majority, fixed),
            ]
            for router, rows in best.items()
            for row in rows
        ],
    )


def table_markdown(table: Table, note: str) -> str:
    """A GitHub-flavoured table with its note and those of its cells, ending in a newline."""
    ends = [":---" if not column.numeric else "---:" for column in table.columns]
    lines = [[column.heading for column in table.columns], ends]
    lines += [[_shown(cell, table.notes) for cell in row] for row in table.rows]
    rows = [f"| {' | '.join(line)} |" for line in lines]
    notes = [
        escape_markdown(f"({number}) {text}.") for number, text in enumerate(table.notes, start=1)
    ]
    ends_with = [line for each in (note, *notes) for line in ("", each)]
    return "\n".join([*rows, *ends_with]) + "\n"


def _shown(cell: Cell, notes: Sequence[str]) -> str:
    mark = f"({notes.index(cell.note) + 1})" if cell.note else ""
    return escape_markdown(" ".join(filter(None, (cell.text, mark, cell.interval))))
