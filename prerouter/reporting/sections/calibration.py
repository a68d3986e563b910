"""How far p_lc can be taken at its word, before and after the temperature."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from prerouter.core.records import ROUTES, Route
from prerouter.measures.calibration import Calibration, ReliabilityBin, calibration
from prerouter.measures.tuning import Calibrated
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
from prerouter.reporting.material import Material
from prerouter.reporting.tables import fixed

_LC = ROUTES.index(Route.LC)
_LARGEST_MARK = 240.0
_BEFORE, _AFTER = "as the router gives it", "calibrated"


def calibration_of(material: Material) -> Section:
    """A reliability diagram of every router that gives a p_lc, in equally full bins, before and
    after its calibration where it was calibrated."""
    title, outcomes = "Calibration of p_lc", material.outcomes
    if outcomes is None:
        return Section("calibration", title, ["No case has a label: nothing to show."])
    ideal = dict(zip(outcomes.case_ids, outcomes.ideal == _LC, strict=True))
    found: list[tuple[str, Calibration]] = []
    words = []
    for router, decisions in material.decisions.items():
        given = [(d.p_lc, ideal[d.case_id]) for d in decisions if d.case_id in ideal]
        known = [(p, is_lc) for p, is_lc in given if p is not None]
        if not known:
            continue
        p_lc, is_lc = zip(*known, strict=True)
        found.append((router, calibration(p_lc, is_lc, min_cases=material.section.min_cases)))
        if len(known) < len(given):
            words.append(
                f"{router} gives no p_lc for {len(given) - len(known):,} of {len(given):,} cases: "
                "they are left out."
            )
    if not found:
        return Section("calibration", title, ["No router here gives a p_lc: nothing to show."])
    return Section(
        "calibration",
        title,
        [
            "A p_lc of 0.3 is right where LC is the ideal route of 30% of the cases that get it: "
            "points on the dashed line. Bins hold about equally many cases; the larger a mark, the "
            "more. The calibration error (ECE) is biased upwards over few cases.",
            *_tuned(material),
            *words,
        ],
        [_figure(found, material.tuned), _scores(found), _bins(found)],
    )


def _tuned(material: Material) -> list[str]:
    if material.recipe.calibrate is None:
        return ["No router was calibrated: the recipe has no `calibrate`."]
    return [
        *(_about(done, material.tuned[done.router]) for done in material.calibrated),
        *(f"Not calibrated: {reject.detail}." for reject in material.uncalibrated),
    ]


def _about(done: Calibrated, name: str) -> str:
    temperature = done.temperature
    said = f"; {temperature.note}" if temperature.note else ""
    cut = f"; there, {done.threshold.note}" if done.threshold.note else ""
    return (
        f"{name} is {done.router} after its log-odds were divided by "
        f"{temperature.temperature:.3g}, fitted on {temperature.n:,} cases of the "
        f"{done.split.value} split{said}. It decides for LC where p_lc is above "
        f"{done.threshold.point.threshold:.3g}{cut}."
    )


def _figure(found: Sequence[tuple[str, Calibration]], tuned: Mapping[str, str]) -> Figure:
    most = max(bin_.n for _, each in found for bin_ in each.equal_mass)
    bins = {router: each.equal_mass for router, each in found}
    after = {router: bins.pop(name) for router, name in tuned.items() if name in bins}
    panels = [
        charts.LinePanel(
            router,
            [
                _line(_BEFORE, 0, before, most),
                *([_line(_AFTER, 1, after[router], most)] if router in after else []),
            ],
        )
        for router, before in bins.items()
    ]
    across = min(3, len(panels))
    said = "; ".join(f"{router} ECE {fixed(each.ece_equal_mass)}" for router, each in found)
    return Figure(
        name="calibration",
        title="Reliability: share of LC labels against p_lc",
        alternative=f"A panel for each router, with a point for each bin, before and after the "
        f"temperature where one was fitted. {said}. "
        "The bins are in a table below.",
        size=(8.2, 0.6 + (2.3 if after else 2.7) * -(-len(panels) // across)),
        paint=charts.line_panels(
            panels,
            "Mean p_lc of the bin",
            "Share of LC labels",
            across=across,
            diagonal=True,
            legend=bool(after),
        ),
    )


def _line(name: str, number: int, bins: Sequence[ReliabilityBin], most: int) -> charts.Line:
    return charts.Line(
        name=name,
        points=[(bin_.mean_p_lc, bin_.lc_share) for bin_ in bins],
        number=number,
        sizes=[20 + _LARGEST_MARK * bin_.n / most / 4 for bin_ in bins],
    )


def _scores(found: Sequence[tuple[str, Calibration]]) -> Table:
    return Table(
        name="calibration",
        caption="Brier score and calibration errors, better when lower",
        columns=[
            Column("Router", numeric=False),
            *map(Column, ("Brier score", "ECE, equally full", "ECE, equally wide")),
            *map(Column, ("Cases", "With LC label")),
        ],
        rows=[
            [
                text_cell(router),
                Cell(fixed(each.brier), each.brier),
                Cell(fixed(each.ece_equal_mass), each.ece_equal_mass),
                Cell(fixed(each.ece_equal_width), each.ece_equal_width),
                count_cell(each.n, each.caution),
                count_cell(each.n_lc),
            ]
            for router, each in found
        ],
    )


def _bins(found: Sequence[tuple[str, Calibration]]) -> Table:
    return Table(
        name="calibration-bins",
        caption="The bins of the reliability diagram",
        columns=[
            Column("Router", numeric=False),
            *map(Column, ("p_lc above", "p_lc up to", "Mean p_lc", "LC share", "Cases")),
        ],
        rows=[
            [
                text_cell(router),
                *(
                    Cell(fixed(value), value)
                    for value in (bin_.low, bin_.high, bin_.mean_p_lc, bin_.lc_share)
                ),
                count_cell(bin_.n),
            ]
            for router, each in found
            for bin_ in each.equal_mass
        ],
        folded=True,
    )
