"""How each kind of figure is drawn, from plain numbers on a canvas of matplotlib's.

Names come from strangers: they are put on one line and cut to a length that leaves room.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prerouter.measures.statistics import Measured
from prerouter.reporting.escaping import one_line
from prerouter.reporting.figures import COLOURS, FOREGROUND, QUIET, look

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Paint = Callable[["Canvas"], None]
Point = tuple[float, float]
SHORT = 26


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to `value`, with an interval where there is one; None where there is no value,
    which is said in the bar's place."""

    value: float | None
    low: float | None = None
    high: float | None = None


def bar_of(measured: Measured) -> Bar:
    found = measured.interval
    return Bar(measured.value, found.low if found else None, found.high if found else None)


@dataclass(frozen=True)
class BarPanel:
    """Bars of one panel, one for each name of the figure."""

    title: str
    bars: Sequence[Bar]


@dataclass(frozen=True)
class Line:
    """A line or single points; `number` gives colour and marker, `band` is its interval."""

    name: str
    points: Sequence[Point]
    number: int = 0
    connected: bool = True
    band: Sequence[Point] = ()
    sizes: Sequence[float] = ()
    dashed: bool = False


@dataclass(frozen=True)
class LinePanel:
    title: str
    lines: Sequence[Line]


def short(name: str, length: int = SHORT) -> str:
    """A name on one line, cut in its middle where it is longer."""
    name = one_line(name) or "(no name)"
    if len(name) <= length:
        return name
    tail = (length - 1) // 2
    return f"{name[: length - 1 - tail]}…{name[-tail:]}"


def shortened(names: Sequence[str]) -> list[str]:
    """The names in their order, short, and no two alike that were not."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in names:
        if name in found:
            continue
        text, number = short(name), 1
        while text in taken:
            number += 1
            mark = f" ({number})"
            text = short(name, SHORT - len(mark)) + mark
        found[name] = text
        taken.add(text)
    return [found[name] for name in names]


def _grid(
    canvas: Canvas, panels: int, across: int, *, share_x: bool = False, share_y: bool = False
) -> list[Axes]:
    down = math.ceil(panels / across)
    grid = canvas.subplots(down, min(across, panels), squeeze=False, sharex=share_x, sharey=share_y)
    flat: list[Axes] = list(grid.flat)
    for spare in flat[panels:]:
        spare.set_visible(False)
    return flat[:panels]


def bar_panels(
    names: Sequence[str], panels: Sequence[BarPanel], label: str, across: int = 4
) -> Paint:
    """A panel for each value, in each a bar for each name, which stand at the left."""

    def paint(canvas: Canvas) -> None:
        axes = _grid(canvas, len(panels), across, share_x=True, share_y=True)
        places = range(len(names))
        titles = shortened([panel.title for panel in panels])
        for ax, panel, title in zip(axes, panels, titles, strict=True):
            ax.grid(visible=False, axis="y")
            ax.set_title(title)
            for place, bar in zip(places, panel.bars, strict=True):
                if bar.value is None:
                    ax.text(0.01, place, "n/a", va="center", fontsize=8, color=QUIET)
                    continue
                ax.barh(place, bar.value, height=0.66, color=look(place)[0], alpha=0.85)
                if bar.low is not None and bar.high is not None:
                    ax.plot([bar.low, bar.high], [place, place], color=FOREGROUND, linewidth=1.1)
            ax.set_yticks(list(places), shortened(names))
        axes[0].invert_yaxis()
        canvas.supxlabel(label, fontsize=9.5)

    return paint


def stacked_bars(
    names: Sequence[str], parts: Sequence[tuple[str, Sequence[float]]], label: str
) -> Paint:
    """One bar for each name, made of parts that differ by colour and by hatching."""

    def paint(canvas: Canvas) -> None:
        ax = canvas.subplots()
        ax.grid(visible=False, axis="y")
        left = [0.0] * len(names)
        looks = ((COLOURS[0], ""), (COLOURS[5], "///"), (COLOURS[6], "xxx"))
        for (name, widths), (colour, hatch) in zip(parts, looks, strict=False):
            ax.barh(
                range(len(names)),
                list(widths),
                left=left,
                height=0.66,
                color=colour,
                hatch=hatch,
                edgecolor="white",
                linewidth=0,
                label=name,
            )
            left = [start + width for start, width in zip(left, widths, strict=True)]
        ax.set_yticks(range(len(names)), shortened(names))
        ax.invert_yaxis()
        ax.set_xlabel(label)
        ax.set_xlim(0, max(*left, 1e-9) * 1.04)
        if len(parts) > 1:
            canvas.legend(loc="outside upper left", ncols=3)

    return paint


def line_panels(
    panels: Sequence[LinePanel],
    x_label: str,
    y_label: str,
    *,
    across: int = 2,
    diagonal: bool = False,
    legend: bool = True,
) -> Paint:
    """Panels of lines and points, with one legend for all of them on the right."""

    def paint(canvas: Canvas) -> None:
        axes = _grid(canvas, len(panels), across)
        titles = shortened([panel.title for panel in panels])
        named: dict[str, Artist] = {}
        for ax, panel, title in zip(axes, panels, titles, strict=True):
            if panel.title:
                ax.set_title(title)
            if diagonal:
                ax.plot([0, 1], [0, 1], color=QUIET, linestyle="--", linewidth=1.1)
                ax.set_xlim(-0.03, 1.03)
                ax.set_ylim(-0.03, 1.03)
                ax.set_aspect("equal")
            for line in panel.lines:
                named.setdefault(line.name, _draw_line(ax, line))
            ax.margins(0.06)
        canvas.supxlabel(x_label, fontsize=9.5)
        canvas.supylabel(y_label, fontsize=9.5)
        if legend:
            canvas.legend(list(named.values()), shortened([*named]), loc="outside right upper")

    return paint


def _draw_line(ax: Axes, line: Line) -> Artist:
    colour, marker = look(line.number)
    x, y = [p[0] for p in line.points], [p[1] for p in line.points]
    if line.dashed:
        return ax.plot(x, y, color=QUIET, linestyle="--", linewidth=1.3)[0]
    if line.band:
        low, high = [b[0] for b in line.band], [b[1] for b in line.band]
        if len(x) > 1:
            ax.fill_between(x, low, high, color=colour, alpha=0.15, linewidth=0)
        else:
            ax.vlines(x, low, high, color=colour, linewidth=1.1)
    if line.sizes:
        ax.plot(x, y, color=colour, linewidth=1.0)
        return ax.scatter(x, y, s=list(line.sizes), color=colour, marker=marker, zorder=3)
    if line.connected:
        # Markers on some points only: a curve over thousands of thresholds has thousands.
        step = max(1, len(x) // 12)
        return ax.plot(x, y, color=colour, marker=marker, markevery=step, markersize=4.5)[0]
    return ax.scatter(x, y, s=14, color=colour, marker=marker, alpha=0.35, linewidths=0)


@dataclass(frozen=True)
class Plane:
    """One panel of the cost-quality plane, where points are (cost, QA).

    Routers have their number; a curve is that of a router's thresholds. `ends` are always RAG and
    always LC, `oracle` the ideal routes.
    """

    title: str
    points: Sequence[tuple[int, str, Point]]
    curves: Sequence[tuple[int, Sequence[Point]]]
    ends: tuple[Point, Point]
    oracle: Point


def planes(panels: Sequence[Plane], x_label: str, y_label: str, across: int = 2) -> Paint:
    """A panel for each plane; the legend names every router once."""

    def paint(canvas: Canvas) -> None:
        axes = _grid(canvas, len(panels), across)
        named: dict[str, Artist] = {}
        titles = shortened([panel.title for panel in panels])
        for ax, panel, title in zip(axes, panels, titles, strict=True):
            if panel.title:
                ax.set_title(title)
            mixed = ax.plot(
                *zip(*panel.ends, strict=True), color=QUIET, linestyle="--", linewidth=1.3
            )[0]
            for number, points in panel.curves:
                colour, _ = look(number)
                ax.plot(*zip(*points, strict=True), color=colour, linewidth=1.3, alpha=0.75)
            for number, name, point in panel.points:
                colour, marker = look(number)
                named[name] = ax.scatter(
                    [point[0]],
                    [point[1]],
                    s=62,
                    color=colour,
                    marker=marker,
                    zorder=3,
                    linewidths=0,
                )
            named["oracle"] = ax.scatter(
                [panel.oracle[0]],
                [panel.oracle[1]],
                s=130,
                facecolors="none",
                edgecolors=FOREGROUND,
                marker="*",
                zorder=4,
            )
            named["random mixture"] = mixed
            ax.margins(0.08)
            ax.locator_params(axis="x", nbins=4)
        canvas.supxlabel(x_label, fontsize=9.5)
        canvas.supylabel(y_label, fontsize=9.5)
        labels = shortened([*named])
        if len(panels) == 1:
            canvas.legend(list(named.values()), labels, loc="outside right upper")
        else:
            canvas.legend(list(named.values()), labels, loc="outside upper left", ncols=4)

    return paint


def radar(spokes: Sequence[str], shapes: Sequence[tuple[int, str, Sequence[float]]]) -> Paint:
    """A closed shape for each router over three spokes or more; all values lie in 0..1."""

    def paint(canvas: Canvas) -> None:
        # The first spoke points up.
        polar = {"projection": "polar", "theta_offset": math.pi / 2}
        ax = canvas.subplots(subplot_kw=polar)
        angles = [2 * math.pi * place / len(spokes) for place in range(len(spokes))]
        names = shortened([name for _, name, _ in shapes])
        for (number, _, values), name in zip(shapes, names, strict=True):
            colour, marker = look(number)
            ax.plot(
                [*angles, angles[0]],
                [*values, values[0]],
                color=colour,
                marker=marker,
                markersize=5,
                label=name,
            )
        ax.set_ylim(0, 1)
        ax.set_yticks([0.25, 0.5, 0.75, 1.0], ["25%", "50%", "75%", "100%"], fontsize=7.5)
        ax.set_xticks(angles, shortened(spokes))
        ax.tick_params(axis="x", pad=12)
        ax.spines["polar"].set_color(QUIET)
        canvas.legend(loc="outside right upper")

    return paint


def forest(names: Sequence[str], panels: Sequence[tuple[str, Sequence[Bar]]], label: str) -> Paint:
    """Differences with their intervals, a row for each name, and a line at no difference."""

    def paint(canvas: Canvas) -> None:
        axes = _grid(canvas, len(panels), len(panels), share_y=True)
        for ax, (title, bars) in zip(axes, panels, strict=True):
            ax.set_title(title)
            ax.axvline(0, color=QUIET, linestyle="--", linewidth=1.1)
            ax.grid(visible=False, axis="y")
            for place, bar in enumerate(bars):
                if bar.value is None:
                    continue
                ax.plot(bar.value, place, "o", color=COLOURS[0], markersize=6)
                if bar.low is not None and bar.high is not None:
                    ax.plot([bar.low, bar.high], [place, place], color=COLOURS[0], linewidth=1.6)
            ax.set_yticks(range(len(names)), shortened(names))
            ax.set_ylim(len(names) - 0.4, -0.6)
        canvas.supxlabel(label, fontsize=9.5)

    return paint
