"""How training went: its losses and, where the student was watched, what it decided meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.reporting import charts
from prerouter.reporting.contents import Cell, Column, Figure, Table

LOSSES = "losses"
WATCHED = "watched"
LOSS_AXIS = "Nats a completion token"


def losses(points: Sequence[tuple[int, float, float | None]]) -> tuple[Figure, Table]:
    """(step, mean training loss in nats a completion token, share of these tokens that were held
    for the likeliest) at each step logged; a point or more. The shares may be unknown."""
    first, last = points[0], points[-1]
    panels = [
        charts.LinePanel(LOSS_AXIS, [charts.Line("loss", [point[:2] for point in points])]),
    ]
    told = ""
    known = [(step, share) for step, _, share in points if share is not None]
    if known:
        panels.append(charts.LinePanel("Token accuracy", [charts.Line("accuracy", known, 1)]))
        told = f" The token accuracy goes from {known[0][1]:.0%} to {known[-1][1]:.0%}."
    figure = Figure(
        name=LOSSES,
        title="Training loss",
        alternative=f"The training loss goes from {first[1]:.4g} at step {first[0]} to "
        f"{last[1]:.4g} at step {last[0]}.{told}",
        size=(3.5 + 3.5 * len(panels), 3.2),
        paint=charts.line_panels(panels, "Step", "", legend=False),
    )
    headings = ("Step", "Loss", "Token accuracy")[: 3 if known else 2]
    return figure, _table(LOSSES, figure.title, headings, [p[: len(headings)] for p in points])


def watched(points: Sequence[tuple[int, float, float, float]]) -> tuple[Figure, Table]:
    """(step, route accuracy, LC rate, parse rate), shares of the watched cases; a point or more."""
    names = ("route accuracy", "LC rate", "parse rate")
    figure = Figure(
        name=WATCHED,
        title="What the student decided while it learnt",
        alternative="; ".join(
            f"{name} goes from {points[0][place]:.0%} to {points[-1][place]:.0%}"
            for place, name in enumerate(names, start=1)
        ),
        size=(7.8, 3.2),
        paint=charts.line_panels(
            [
                charts.LinePanel(
                    "",
                    [
                        charts.Line(name, [(row[0], row[place]) for row in points], place - 1)
                        for place, name in enumerate(names, start=1)
                    ],
                )
            ],
            "Step",
            "Share of the watched cases",
            across=1,
        ),
    )
    headings = ("Step", *(f"{name[0].upper()}{name[1:]}" for name in names))
    return figure, _table(WATCHED, figure.title, headings, points)


def _table(
    name: str, caption: str, headings: Sequence[str], rows: Sequence[Sequence[float | None]]
) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=[Column(heading) for heading in headings],
        rows=[[_cell(value) for value in row] for row in rows],
    )


def _cell(value: float | None) -> Cell:
    return Cell("n/a", None) if value is None else Cell(f"{value:.4g}", value)
