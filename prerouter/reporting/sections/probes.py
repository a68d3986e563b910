"""Linear probes by layer, from the files of numbers that probe studies left."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import Field, ValidationError

from prerouter.core.errors import InputError, PrerouterError, first_mistake
from prerouter.core.records import Record
from prerouter.measures.checks import caution
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    number_cell,
    text_cell,
)
from prerouter.reporting.sections.routing import share
from prerouter.reporting.tables import fixed, percent

_COLUMNS = ("layer", "target", "prompt", "model", "accuracy", "low", "high")
_Text = Annotated[str, Field(max_length=2_000)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Difference = Annotated[float, Field(ge=-1, le=1)]
_NOT_TOLD = "the file doesn't tell"


class ProbePoint(Record):
    """Test accuracy of one probe (0..1) with its interval, where there is one; `notes` say why
    there is no accuracy, or what to know about it. Of the fields from `row` on, a file may leave
    out any. Its other columns are passed over."""

    layer: Annotated[int, Field(ge=0)]
    target: _Text
    prompt: _Text
    model: _Text
    accuracy: _Share | None = None
    low: _Share | None = None
    high: _Share | None = None
    row: _Text | None = None
    distilled: bool | None = None
    auc: _Share | None = None
    majority: _Share | None = None
    control: _Share | None = None
    selectivity: _Difference | None = None
    test_cases: Annotated[int, Field(ge=0)] | None = None
    notes: _Text | None = None


class _Probe(NamedTuple):
    """What a line of the figure is of: rows of two files, or with two prompts, are two."""

    file: Path
    row: str
    model: str
    prompt: str
    distilled: bool


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
        point = ProbePoint.model_validate(
            {name: row.get(name) or None for name in ProbePoint.model_fields}
        )
    except ValidationError as error:
        raise InputError(f"{path}:{line}", first_mistake(error), "a probe's row") from None
    if point.accuracy is None and not point.notes:
        raise InputError(f"{path}:{line}", "accuracy: blank", "a share, or notes that say why none")
    return point


def probes(paths: Sequence[Path], min_cases: int) -> Section:
    """A panel for each target, in it a line for each row of a study, or a bar of one layer each."""
    title = "Probes"
    points = [(_probe_of(path, point), point) for path in paths for point in read_probes(path)]
    if not points:
        return Section("probes", title, ["No probe study was given (evaluate.probes)."])
    names = _names([probe for probe, _ in points])
    drawn = [(names[probe], point) for probe, point in points if point.accuracy is not None]
    refused: dict[str, None] = {}
    for probe, point in points:
        if point.accuracy is None:
            refused[f"{names[probe]}, {point.target}: no probe, {point.notes}."] = None
    words = [
        "Accuracy on the test split of a linear probe on frozen states, by layer: what a state "
        "holds in a form that a line can part. Majority says the most frequent class of the "
        "training split. Control is the same probe on labels shuffled over the documents; "
        "selectivity is accuracy less control.",
        *refused,
    ]
    parts = [_table(points, names, min_cases)]
    return Section("probes", title, words, [_figure(drawn), *parts] if drawn else parts)


def _probe_of(path: Path, point: ProbePoint) -> _Probe:
    return _Probe(path, point.row or "", point.model, point.prompt, bool(point.distilled))


def _names(found: Sequence[_Probe]) -> Mapping[_Probe, str]:
    """What each is called: by its row, with more where two would be called alike."""
    each = list(dict.fromkeys(found))
    names: dict[_Probe, str] = {}
    for more in range(3):
        names = {probe: _name(probe, more) for probe in each}
        if len(set(names.values())) == len(each):
            break
    return names


def _name(probe: _Probe, more: int) -> str:
    model = () if probe.row and not more else (probe.model, probe.prompt)
    name = ", ".join(filter(None, (probe.row, *model, str(probe.file) if more > 1 else "")))
    return f"{name} (distilled)" if probe.distilled else name


def _figure(points: Sequence[tuple[str, ProbePoint]]) -> Figure:
    targets = list(dict.fromkeys(point.target for _, point in points))
    named = list(dict.fromkeys(name for name, _ in points))
    found: dict[tuple[str, str], list[ProbePoint]] = {}
    for name, point in sorted(points, key=lambda pair: pair[1].layer):
        found.setdefault((point.target, name), []).append(point)
    curves = any(len(own) > 1 for own in found.values())
    name, best = max(points, key=lambda pair: pair[1].accuracy or 0.0)
    down, across = math.ceil(len(targets) / 2), min(2, len(targets))
    if curves:
        panels = [
            charts.LinePanel(
                target,
                [
                    _line(name, number, found[target, name])
                    for number, name in enumerate(named)
                    if (target, name) in found
                ],
            )
            for target in targets
        ]
        height, paint = 2.7, charts.line_panels(panels, "Layer", "Accuracy", across=across)
    else:
        bars = [
            charts.BarPanel(target, [_bar(found.get((target, name), ())) for name in named])
            for target in targets
        ]
        height = 0.5 + 0.26 * len(named)
        paint = charts.bar_panels(named, bars, "Accuracy", across)
    return Figure(
        name="probes",
        title="Accuracy of probes by layer" if curves else "Accuracy of probes",
        alternative=f"A panel for each target ({', '.join(targets)}), a "
        f"{'line' if curves else 'bar'} for each of {len(named)} rows. The highest accuracy is "
        f"{percent(best.accuracy or 0.0)}%, for {best.target} by {name} at layer {best.layer}.",
        size=(8.2, 0.7 + height * down),
        paint=paint,
    )


def _bar(own: Sequence[ProbePoint]) -> charts.Bar:
    return charts.Bar(own[0].accuracy, own[0].low, own[0].high) if own else charts.Bar(None)


def _line(name: str, number: int, own: Sequence[ProbePoint]) -> charts.Line:
    band = [(p.low, p.high) for p in own if p.low is not None and p.high is not None]
    return charts.Line(
        name=name,
        points=[(float(p.layer), p.accuracy) for p in own if p.accuracy is not None],
        number=number,
        band=band if len(band) == len(own) else (),
    )


def _table(
    points: Sequence[tuple[_Probe, ProbePoint]], names: Mapping[_Probe, str], min_cases: int
) -> Table:
    return Table(
        name="probes",
        caption="Each probe beside the majority class and its control",
        columns=[
            *(Column(name, numeric=False) for name in ("Row", "Model", "Prompt", "Target")),
            *(Column(name) for name in ("Layer", "Accuracy", "Majority", "Control")),
            *(Column(name) for name in ("Selectivity", "AUC", "Test cases")),
        ],
        rows=[
            [
                text_cell(names[probe]),
                text_cell(f"{point.model} (distilled)" if point.distilled else point.model),
                text_cell(point.prompt),
                text_cell(point.target),
                count_cell(point.layer),
                _accuracy(point),
                number_cell(point.majority, share, _why(point)),
                number_cell(point.control, share, _why(point)),
                number_cell(point.selectivity, share, _why(point)),
                number_cell(point.auc, fixed, _why(point)),
                _cases(point, min_cases),
            ]
            for probe, point in points
        ],
        filters=("Row", "Target"),
        folded=True,
    )


def _accuracy(point: ProbePoint) -> Cell:
    if point.accuracy is None:
        return Cell("n/a", None, note=point.notes)
    interval = ""
    if point.low is not None and point.high is not None:
        interval = f"[{percent(point.low)}, {percent(point.high)}]"
    shown = share(point.accuracy)
    return Cell(shown, point.accuracy, point.low, point.high, interval, point.notes)


def _why(point: ProbePoint) -> str:
    return point.notes or _NOT_TOLD


def _cases(point: ProbePoint, min_cases: int) -> Cell:
    if point.test_cases is None:
        return Cell("n/a", None, note=_NOT_TOLD)
    return count_cell(point.test_cases, caution(point.test_cases, min_cases))
