"""Curves of linear probes over layers, from the files of numbers that a probe study left."""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationError

from prerouter.core.errors import InputError, PrerouterError
from prerouter.core.records import Record
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    text_cell,
)
from prerouter.reporting.tables import percent

_COLUMNS = ("layer", "target", "prompt", "model", "accuracy", "low", "high")
_Share = Annotated[float, Field(ge=0, le=1)]


class ProbePoint(Record):
    """Test accuracy of one probe (0..1) with its interval, where there is one; a file may leave out
    `distilled`. Its other columns are passed over."""

    layer: int
    target: str
    prompt: str
    model: str
    accuracy: _Share
    low: _Share | None = None
    high: _Share | None = None
    distilled: bool | None = None


def missing_probes(paths: Sequence[Path]) -> list[PrerouterError]:
    """An error for each file that isn't there."""
    return [
        InputError(str(path), "no such file", next_step="mend evaluate.probes")
        for path in paths
        if not path.is_file()
    ]


def read_probes(path: Path) -> list[ProbePoint]:
    """The points of one CSV file; InputError with the line of a bad one."""
    try:
        with path.open(newline="", encoding="utf-8-sig") as lines:
            reader = csv.DictReader(lines)
            absent = [name for name in _COLUMNS if name not in (reader.fieldnames or ())]
            if absent:
                raise InputError(
                    str(path),
                    f"has no column {', '.join(absent)}",
                    f"the columns {', '.join(_COLUMNS)}",
                    "mend evaluate.probes",
                )
            return [_point(path, reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(
            str(path), f"can't be read as CSV: {error}", next_step="mend evaluate.probes"
        ) from None


def _point(path: Path, line: int, row: dict[str, str]) -> ProbePoint:
    try:
        return ProbePoint.model_validate(
            {name: row.get(name) or None for name in ProbePoint.model_fields}
        )
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise InputError(f"{path}:{line}", f"{where}: {first['msg']}", "a probe's row") from None


def probes(paths: Sequence[Path]) -> Section:
    """A panel for each target, a line for each model and prompt."""
    title = "Probe curves"
    points = [point for path in paths for point in read_probes(path)]
    if not points:
        return Section("probes", title, ["No probe study was given (evaluate.probes)."])
    words = [
        "Accuracy on the test split of a linear probe on frozen states, by layer: what a state "
        "holds in a form that a line can part."
    ]
    return Section("probes", title, words, [_figure(points), _table(points)])


def _figure(points: Sequence[ProbePoint]) -> Figure:
    targets = list(dict.fromkeys(point.target for point in points))
    named = list(dict.fromkeys(_name(point) for point in points))
    panels = []
    for target in targets:
        lines = []
        for number, name in enumerate(named):
            own = [point for point in points if (point.target, _name(point)) == (target, name)]
            own.sort(key=lambda point: point.layer)
            if own:
                lines.append(_line(name, number, own))
        panels.append(charts.LinePanel(target, lines))
    best = max(points, key=lambda point: point.accuracy)
    return Figure(
        name="probes",
        title="Accuracy of probes by layer",
        alternative=f"A panel for each target ({', '.join(targets)}), a line for each of "
        f"{len(named)} models and prompts. The highest accuracy is {percent(best.accuracy)}%, for "
        f"{best.target} by {_name(best)} at layer {best.layer}.",
        size=(8.2, 0.6 + 2.7 * math.ceil(len(panels) / 2)),
        paint=charts.line_panels(panels, "Layer", "Accuracy", across=min(2, len(panels))),
    )


def _line(name: str, number: int, own: Sequence[ProbePoint]) -> charts.Line:
    band = [(p.low, p.high) for p in own if p.low is not None and p.high is not None]
    return charts.Line(
        name=name,
        points=[(float(point.layer), point.accuracy) for point in own],
        number=number,
        band=band if len(band) == len(own) else (),
    )


def _name(point: ProbePoint) -> str:
    return f"{_model(point)}, {point.prompt}"


def _model(point: ProbePoint) -> str:
    return f"{point.model} (distilled)" if point.distilled else point.model


def _table(points: Sequence[ProbePoint]) -> Table:
    return Table(
        name="probes",
        caption="Accuracy of each probe",
        columns=[
            Column("Model", numeric=False),
            Column("Prompt", numeric=False),
            Column("Target", numeric=False),
            Column("Layer"),
            Column("Accuracy"),
        ],
        rows=[
            [
                text_cell(_model(point)),
                text_cell(point.prompt),
                text_cell(point.target),
                count_cell(point.layer),
                Cell(
                    f"{percent(point.accuracy)}%",
                    point.accuracy,
                    low=point.low,
                    high=point.high,
                    interval=""
                    if point.low is None or point.high is None
                    else f"[{percent(point.low)}, {percent(point.high)}]",
                ),
            ]
            for point in points
        ],
        filters=("Model", "Prompt", "Target"),
        folded=True,
    )
