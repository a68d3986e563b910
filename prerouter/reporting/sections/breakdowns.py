"""Routers by document type, task type, level, context length and answer model."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from prerouter.measures.breakdowns import (
    BreakdownKey,
    BreakdownRow,
    breakdown,
    key_values,
    lengths_are_bands,
)
from prerouter.measures.routing import Measure
from prerouter.measures.statistics import Measured
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    NOT_KNOWN,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import SHOWN
from prerouter.reporting.tables import FEW, HEADINGS, UNSEEN

_NAMES = {
    BreakdownKey.DOCUMENT_TYPE: "document type",
    BreakdownKey.TASK_TYPE: "task type",
    BreakdownKey.LEVEL: "level",
    BreakdownKey.CONTEXT_LENGTH: "context length",
    BreakdownKey.ANSWER_MODEL: "answer model",
}
_FEWEST_SPOKES = 3
# More panels than these don't fit a page: the table has every value.
_MOST_PANELS = 8


def breakdowns(material: Material) -> Section:
    """Bars and a table for each key with more than one value, and the radar of task types."""
    words = [
        "Accuracy is agreement with the ideal route. The lines on the bars are "
        f"{100 * material.section.confidence:g}% intervals from resampled documents."
    ]
    if material.outcomes is None:
        return Section("breakdowns", "Breakdowns", ["No case has a label: nothing to show."])
    parts: list[Table | Figure] = []
    for key, name in _NAMES.items():
        values = key_values(key, material.labelled, material.references)
        known = {value for value in values.values() if value is not None}
        if not known:
            words.append(f"The {name} isn't known of any case.")
            continue
        by_tokens = lengths_are_bands(material.labelled, material.references)
        if key is BreakdownKey.CONTEXT_LENGTH and by_tokens:
            words.append(
                "The source tells no context length: shown are bands of the document's own tokens, "
                "up to 2,048 (2k), 4,096 (4k) and so on."
            )
        if len(set(values.values())) == 1:
            (value,) = known
            words.append(f"All cases have the same {name}: {value}.")
            continue
        rows = breakdown(
            key,
            material.labelled_decisions,
            material.labels,
            material.scores,
            material.labelled,
            material.references,
            fallback=material.section.fallback,
            min_cases=material.section.min_cases,
            unseen_models=material.recipe.split.unseen_models,
            **material.resampling,
        )
        cases = Counter(values.values())
        largest = sorted(cases, key=lambda value: -cases[value])[:_MOST_PANELS]
        shown = sorted(largest, key=_in_order)
        if len(shown) < len(cases):
            words.append(
                f"The figure by {name} shows the {len(shown)} values with the most cases of "
                f"{len(cases)}; the table shows all."
            )
        parts.append(_bars(material, key, name, rows, shown))
        if key is BreakdownKey.TASK_TYPE:
            parts += _radar(material, rows, shown, words)
        parts.append(_table(key, name, rows))
    return Section("breakdowns", "Breakdowns", words, parts)


def _in_order(value: str | None) -> tuple[bool, float, str]:
    """By name, 8k before 16k, and what isn't known last."""
    number = re.match(r"\d{1,9}", value or "")
    return value is None, float(number.group()) if number else 0.0, value or ""


def _shown(value: str | None) -> str:
    return NOT_KNOWN if value is None else value


def _measure(
    rows: Sequence[BreakdownRow], value: str | None, router: str, measure: Measure
) -> Measured:
    (found,) = (row.row for row in rows if row.value == value and row.row.router == router)
    return found.measures[measure]


def _bars(
    material: Material,
    key: BreakdownKey,
    name: str,
    rows: Sequence[BreakdownRow],
    values: Sequence[str | None],
) -> Figure:
    routers = material.routers
    panels = [
        charts.BarPanel(
            _shown(value),
            [charts.bar_of(_measure(rows, value, router, Measure.ACCURACY)) for router in routers],
        )
        for value in values
    ]
    across = min(4, len(panels))
    down = -(-len(panels) // across)
    return Figure(
        name=f"by-{key.value.replace('_', '-')}",
        title=f"Accuracy by {name}",
        alternative=f"Bars of each router's accuracy for each {name}: "
        f"{', '.join(map(_shown, values))}. The numbers are in the table that follows.",
        size=(8.2, 0.7 + down * (0.5 + 0.24 * len(routers))),
        paint=charts.bar_panels(routers, panels, "Accuracy", across),
    )


def _radar(
    material: Material,
    rows: Sequence[BreakdownRow],
    values: Sequence[str | None],
    words: list[str],
) -> list[Figure]:
    """Accuracy of each router that has one for every task type. What is missing goes to `words`."""
    if len(values) < _FEWEST_SPOKES:
        words.append(f"A radar takes {_FEWEST_SPOKES} task types: there are {len(values)}.")
        return []
    shapes = []
    for number, router in enumerate(material.routers):
        found = [_measure(rows, value, router, Measure.ACCURACY).value for value in values]
        complete = [value for value in found if value is not None]
        if len(complete) == len(values):
            shapes.append((number, router, complete))
    if not shapes:
        return []
    said = "; ".join(
        f"{router} " + ", ".join(f"{value:.0%}" for value in found) for _, router, found in shapes
    )
    return [
        Figure(
            name="radar-task-type",
            title="Accuracy by task type, as a radar",
            alternative=f"A spoke for each task type ({', '.join(map(_shown, values))}) and a "
            f"closed line for each router: {said}.",
            size=(8.2, 4.6),
            paint=charts.radar([_shown(value) for value in values], shapes),
        )
    ]


def _table(key: BreakdownKey, name: str, rows: Sequence[BreakdownRow]) -> Table:
    return Table(
        name=f"by-{key.value.replace('_', '-')}",
        caption=f"All measures by {name}",
        columns=[
            Column("Router", numeric=False),
            Column(name.capitalize(), numeric=False),
            *(Column(heading) for heading in HEADINGS.values()),
            Column("Cases"),
        ],
        rows=[
            [
                text_cell(each.row.router),
                text_cell(_shown(each.value), UNSEEN if each.row.unseen else None),
                *(
                    measured_cell(each.row.measures[measure], SHOWN[measure])
                    for measure in HEADINGS
                ),
                count_cell(each.row.n, FEW if each.row.few_cases else None),
            ]
            for each in rows
        ],
        filters=("Router", name.capitalize()),
        folded=True,
    )
