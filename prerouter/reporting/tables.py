"""The routing table for the terminal, for Markdown and as plain data, from the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from prerouter.measures.routing import ORACLE, POOLED, Measure, RoutingRow
from prerouter.measures.statistics import Interval
from prerouter.reporting.escaping import escape_markdown, one_line

if TYPE_CHECKING:
    from rich.table import Table

# These go one way by design, or as the labels have it; any other router that does has collapsed.
FIXED_ROUTERS = frozenset({"always_rag", "always_long_rag", "always_lc", ORACLE})

HEADINGS: dict[Measure, str] = {
    Measure.QA: "QA",
    Measure.LC_RATE: "LC rate",
    Measure.ACCURACY: "Accuracy",
    Measure.BALANCED_ACCURACY: "Balanced accuracy",
    Measure.LC_RECALL: "LC recall",
    Measure.GAP_RECOVERED: "Gap recovered",
}


UNSEEN = "no router learnt from cases of this answer model"
FEW = "so few cases say little about a router"

# Columns of a terminal from which on all measures stand side by side, and of a router's name.
_WIDE = 100
_ROUTER_WIDTH = 22


@dataclass
class _Notes:
    """Footnotes of one table: each text once, numbered as it comes."""

    texts: list[str] = field(default_factory=list)

    def mark(self, text: str | None) -> str:
        if text is None:
            return ""
        if text not in self.texts:
            self.texts.append(text)
        return f" ({self.texts.index(text) + 1})"

    def lines(self) -> list[str]:
        return [f"({number}) {text}." for number, text in enumerate(self.texts, start=1)]


@dataclass(frozen=True)
class _Part:
    """The rows of one answer model, in words.

    `routers` are (name, verdict), `cells` (value with its mark, interval) by router and measure.
    """

    title: str
    routers: list[tuple[str, str]]
    cells: list[list[tuple[str, str]]]
    undecided: list[str]
    notes: list[str]


def table_json(rows: Sequence[RoutingRow]) -> list[dict[str, Any]]:
    """The rows as plain data, unrounded; `RoutingRow.model_validate` reads one back."""
    return [row.model_dump(mode="json") for row in rows]


def render_markdown(rows: Sequence[RoutingRow]) -> str:
    """A GitHub-flavoured table for each answer model. Names are escaped, ends with a newline."""
    blocks = []
    for part in _parts(rows):
        header = ["Router", *HEADINGS.values(), "Undecided"]
        lines = [
            f"**{escape_markdown(part.title)}**",
            "",
            _markdown_row(header),
            _markdown_row([":---", *["---:"] * (len(header) - 1)]),
        ]
        for (name, verdict), cells, undecided in zip(
            part.routers, part.cells, part.undecided, strict=True
        ):
            router = escape_markdown(name) + (f" **{verdict}**" if verdict else "")
            measures = [f"{value} {interval}".strip() for value, interval in cells]
            lines.append(_markdown_row([router, *measures, undecided]))
        lines += [text for note in part.notes for text in ("", escape_markdown(note))]
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks) + "\n"


def terminal_table(rows: Sequence[RoutingRow], width: int = 120) -> list[Table]:
    """A rich table for each answer model: intervals under their values. Where a terminal has fewer
    than 100 columns, two of them, with half of the measures each, which fit 80.

    Names stand as text, so that markup in them is shown and not obeyed.
    """
    measures = list(HEADINGS)
    if width >= _WIDE:
        return [_table(part, measures) for part in _parts(rows)]
    half = len(measures) // 2
    tables = []
    for part in _parts(rows):
        # What the title and the notes say holds for both.
        tables.append(_table(replace(part, notes=[]), measures[:half]))
        tables.append(_table(replace(part, title=""), measures[half:]))
    return tables


def _table(part: _Part, measures: Sequence[Measure]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD,
        title=Text(part.title) if part.title else None,
        title_justify="left",
        caption=Text("\n".join(part.notes)) if part.notes else None,
        caption_justify="left",
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
    )
    longest = max(len(line) for name, verdict in part.routers for line in (name, *verdict.split()))
    # Of a fixed width, so that a narrow terminal breaks no name: figures are wrapped first.
    table.add_column("Router", overflow="fold", width=min(longest, _ROUTER_WIDTH))
    for measure in measures:
        heading = HEADINGS[measure].replace(" ", "\n")
        table.add_column(heading, justify="right", overflow="fold")
    table.add_column("Unde-\ncided", justify="right", overflow="fold")
    order = list(HEADINGS)
    for (name, verdict), cells, undecided in zip(
        part.routers, part.cells, part.undecided, strict=True
    ):
        router = Text(name)
        if verdict:
            router.append(f"\n{verdict.replace(' ', chr(10), 1)}", style="bold red")
        shown = [cells[order.index(measure)] for measure in measures]
        table.add_row(router, *(Text("\n".join(filter(None, cell))) for cell in shown), undecided)
    return table


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _parts(rows: Sequence[RoutingRow]) -> list[_Part]:
    """A part for each answer model in order; pooled rows say nothing new where there is but one."""
    models = list(dict.fromkeys(row.answer_model for row in rows))
    if len(models) == 2:
        models = [model for model in models if model != POOLED]
    return [_part(model, [row for row in rows if row.answer_model == model]) for model in models]


def _short(name: str) -> str:
    return name if len(name) <= 64 else f"{name[:40]}…{name[-23:]}"


def _part(model: str | None, rows: Sequence[RoutingRow]) -> _Part:
    notes = _Notes()
    first = rows[0]
    name = "All answer models" if model is None else f"Answer model {_short(one_line(model))}"
    if first.unseen:
        name += ", not seen in training"
    few = notes.mark(FEW if first.few_cases else None)
    title = (
        f"{name}: {_count(first.n, 'case')} with a label{few}, {first.unlabelled} without, over "
        f"{_count(first.n_groups, 'document')}"
    )
    cells = [[_cell(row, measure, notes) for measure in HEADINGS] for row in rows]
    return _Part(
        title=title,
        routers=[(one_line(row.router), verdict_of(row)) for row in rows],
        cells=cells,
        undecided=[str(row.undecided) for row in rows],
        notes=[legend(rows), *missing_words(first), *notes.lines()],
    )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def verdict_of(row: RoutingRow) -> str:
    if row.collapsed is None or row.router in FIXED_ROUTERS:
        return ""
    return f"collapsed: always {row.collapsed.value}"


def _cell(row: RoutingRow, measure: Measure, notes: _Notes) -> tuple[str, str]:
    measured = row.measures[measure]
    mark = notes.mark(measured.note)
    if measured.value is None:
        return f"n/a{mark}", ""
    found = measured.interval
    if measure is Measure.QA:
        return fixed(measured.value) + mark, _brackets(found, fixed)
    return f"{percent(measured.value)}%{mark}", _brackets(found, percent)


def _brackets(found: Interval | None, number: Callable[[float], str]) -> str:
    return f"[{number(found.low)}, {number(found.high)}]" if found else ""


def fixed(value: float) -> str:
    # + 0.0 turns a rounded -0.0 into 0.0.
    return f"{round(value, 3) + 0.0:.3f}"


def percent(value: float) -> str:
    return f"{round(100 * value, 1) + 0.0:.1f}"


def missing_words(row: RoutingRow) -> list[str]:
    """What the cases without a label lack, by route and reason: the same in every row of a part."""
    arms = [
        f"{route.value} {', '.join(f'{reason.value} {count}' for reason, count in counts.items())}"
        for route, counts in row.missing_arms.items()
    ]
    return [f"Scores that the cases without a label lack: {'; '.join(arms)}."] if arms else []


def legend(rows: Sequence[RoutingRow]) -> str:
    low, high = rows[0].scale
    sentences = [f"QA lies in {low:g} to {high:g}."]
    found = next((m.interval for row in rows for m in row.measures.values() if m.interval), None)
    if found:
        sentences.append(
            f"In brackets: {100 * found.confidence:g}% intervals from {found.resamples} resamples "
            "of documents."
        )
    sentences.append("Cases without a label are in no measure.")
    if any(row.undecided for row in rows):
        sentences.append("Undecided cases take the fallback route and count as wrong routes.")
    return " ".join(sentences)
