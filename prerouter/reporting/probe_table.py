"""The probes' table for the terminal, Markdown and CSV, and the curve over layers, from one kind of
row."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING

from prerouter.measures.probes import ProbeMeasure, ProbeResult
from prerouter.measures.statistics import Measured
from prerouter.reporting.escaping import escape_markdown, one_line
from prerouter.reporting.numbers import guarded

if TYPE_CHECKING:
    from rich.table import Table

_HEADINGS: dict[ProbeMeasure, str] = {
    ProbeMeasure.ACCURACY: "Accuracy",
    ProbeMeasure.BALANCED_ACCURACY: "Balanced accuracy",
    ProbeMeasure.AUC: "AUC",
    ProbeMeasure.MAJORITY: "Majority",
    ProbeMeasure.CONTROL: "Control",
    ProbeMeasure.SELECTIVITY: "Selectivity",
}

_FACTS = ("row", "model", "prompt", "distilled", "target", "layer", "layers")
_OTHERS = ("balanced_accuracy", "auc", "majority", "control", "selectivity")
CURVE_COLUMNS = (*_FACTS, "accuracy", "low", "high", *_OTHERS, "test_cases", "notes")
"""`layer` 0 is the embedding, `layers` the model's last; `low` and `high` are the accuracy's."""


def penultimate_only(results: Sequence[ProbeResult]) -> list[ProbeResult]:
    """One row for each probe: of a curve, its penultimate layer."""
    layers: dict[tuple[str, str], set[int]] = {}
    for result in results:
        layers.setdefault((result.row, result.target), set()).add(result.layer)
    return [
        result
        for result in results
        if len(layers[result.row, result.target]) == 1 or result.layer == result.layers - 1
    ]


def probe_markdown(results: Sequence[ProbeResult], confidence: float) -> str:
    """A GitHub-flavoured table for each target. Names are escaped, ends with a newline."""
    blocks = []
    for target, rows in _by_target(penultimate_only(results)).items():
        header = ["Row", "Layer", *_HEADINGS.values(), "Train", "Test"]
        lines = [f"**{_title(target)}**", "", _line(header)]
        lines.append(_line([":---", *["---:"] * (len(header) - 1)]))
        for row in rows:
            cells = [" ".join(_cell(row.measures[measure])) for measure in _HEADINGS]
            name = escape_markdown(one_line(row.row)) + (" (distilled)" if row.distilled else "")
            counts = [str(row.train_cases), str(row.test_cases)]
            lines.append(_line([name, str(row.layer), *(cell.strip() for cell in cells), *counts]))
        for note in _notes(rows):
            lines += ["", escape_markdown(note)]
        blocks.append("\n".join(lines))
    return "\n\n".join([*blocks, _legend(results, confidence)]) + "\n"


def probe_terminal(results: Sequence[ProbeResult]) -> list[Table]:
    """A rich table for each target, intervals under their values; notes stand below."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    tables = []
    for target, rows in _by_target(penultimate_only(results)).items():
        notes = _notes(rows)
        table = Table(
            box=box.SIMPLE_HEAD,
            title=Text(_title(target)),
            title_justify="left",
            caption=Text("\n".join(notes)) if notes else None,
            caption_justify="left",
            padding=(0, 1, 0, 0),
            pad_edge=False,
            show_edge=False,
        )
        table.add_column("Row", overflow="fold")
        for heading in ("Layer", *_HEADINGS.values(), "Test"):
            table.add_column(heading.replace(" ", "\n"), justify="right", overflow="fold")
        for row in rows:
            name = one_line(row.row) + ("\n(distilled)" if row.distilled else "")
            cells = ["\n".join(filter(None, _cell(row.measures[each]))) for each in _HEADINGS]
            shown = [str(row.layer), *cells, str(row.test_cases)]
            table.add_row(Text(name), *map(Text, shown))
        tables.append(table)
    return tables


def probe_csv(results: Sequence[ProbeResult]) -> str:
    """Every row and layer, each measure with the ends of its interval, unrounded."""
    measures = [
        name for each in ProbeMeasure for name in (each.value, f"{each}_low", f"{each}_high")
    ]
    counts = ("train_cases", "test_cases", "test_documents", "c", "control_c", "memorised")
    lines: list[Sequence[object]] = [(*_FACTS, *counts, *measures, "notes")]
    for result in results:
        known = result.model_dump()
        values = [
            value for each in ProbeMeasure for value in _value_and_ends(result.measures[each])
        ]
        notes = "; ".join(_own_notes(result))
        lines.append([*(known[name] for name in (*_FACTS, *counts)), *values, notes])
    return _csv(lines)


def curve_csv(results: Sequence[ProbeResult]) -> str:
    """One line for each probe and layer: CURVE_COLUMNS. One without an accuracy says why."""
    lines: list[Sequence[object]] = [CURVE_COLUMNS]
    for result in results:
        known = result.model_dump()
        accuracy = _value_and_ends(result.measures[ProbeMeasure.ACCURACY])
        others = [result.measures[ProbeMeasure(name)].value for name in _OTHERS]
        notes = "; ".join(_own_notes(result))
        facts = (known[name] for name in _FACTS)
        lines.append([*facts, *accuracy, *others, result.test_cases, notes])
    return _csv(lines)


def _csv(lines: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(guarded, line) for line in lines)
    return text.getvalue()


def _value_and_ends(measured: Measured) -> tuple[float | None, float | None, float | None]:
    found = measured.interval
    return measured.value, found.low if found else None, found.high if found else None


def _by_target(results: Sequence[ProbeResult]) -> dict[str, list[ProbeResult]]:
    rows: dict[str, list[ProbeResult]] = {}
    for result in results:
        rows.setdefault(result.target, []).append(result)
    return rows


def _title(target: str) -> str:
    return f"Probes for {target.replace('_', ' ')}"


def _cell(measured: Measured) -> tuple[str, str]:
    if measured.value is None:
        return "n/a", ""
    found = measured.interval
    return _fixed(measured.value), f"[{_fixed(found.low)}, {_fixed(found.high)}]" if found else ""


def _fixed(value: float) -> str:
    # + 0.0 turns a rounded -0.0 into 0.0.
    return f"{round(value, 3) + 0.0:.3f}"


def _notes(rows: Sequence[ProbeResult]) -> list[str]:
    """What the rows say in words, each text once with the rows it is said of."""
    said: dict[str, list[str]] = {}
    for row in rows:
        for note in _own_notes(row):
            said.setdefault(note, []).append(one_line(row.row))
    return [
        f"{'All rows' if len(names) == len(rows) else ', '.join(names)}: {note}."
        for note, names in said.items()
    ]


def _own_notes(row: ProbeResult) -> list[str]:
    notes = [*row.notes]
    notes += [
        f"{count} cases left out: {reason.replace('_', ' ')}"
        for reason, count in row.left_out.items()
    ]
    notes += [each.note for each in row.measures.values() if each.note]
    return list(dict.fromkeys(notes))


def _legend(results: Sequence[ProbeResult], confidence: float) -> str:
    return (
        f"In brackets: {100 * confidence:g}% intervals from resampled documents of the test split. "
        "Majority says the most frequent class of the training split. Control is the same probe on "
        "labels shuffled over the documents: what knowing documents by heart is worth where "
        "they stand in both splits. Selectivity is accuracy less control. A layer counts from 0, "
        "the embedding."
    )


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
