"""How training went: its losses and, where the student was watched, what it decided meanwhile."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.reporting import charts
from prerouter.reporting.contents import Cell, Column, Figure, Table

LOSSES = "losses"
WATCHED = "watched"


def losses(points: Sequence[tuple[int, float]]) -> tuple[Figure, Table]:
    """Mean training loss (nats a completion token) at each step logged; a point or more."""
    first, last = points[0], points[-1]
    figure = Figure(
        name=LOSSES,
        title="Training loss",
        alternative=f"The training loss goes from {first[1]:.4g} at step {first[0]} to "
        f"{last[1]:.4g} at step {last[0]}.",
        size=(7.0, 3.2),
        paint=charts.line_panels(
            [charts.LinePanel("", [charts.Line("training loss", points)])],
            "Step",
            "Nats a completion token",
            across=1,
            legend=False,
        ),
    )
    return figure, _table(LOSSES, figure.title, ("Step", "Loss"), points)


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
    name: str, caption: str, headings: Sequence[str], rows: Sequence[Sequence[float]]
) -> Table:
    return Table(
        name=name,
        caption=caption,
        columns=[Column(heading) for heading in headings],
        rows=[[Cell(f"{value:.4g}", value) for value in row] for row in rows],
    )
