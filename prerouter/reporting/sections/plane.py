"""The cost-quality plane, and the areas under the curves of routers that have a threshold."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from prerouter.core.records import Route, RoutingCase
from prerouter.measures.cost import Tokens, usd
from prerouter.measures.cost_quality import Curve, Plane, PlanePoint, cost_quality_plane
from prerouter.measures.outcomes import lc_probabilities
from prerouter.measures.query_cost import CostRow, Spend, cost_rows, estimate_answer
from prerouter.measures.statistics import Floats
from prerouter.measures.thresholds import OperatingPoint
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    measured_cell,
    number_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.cost import three_digits
from prerouter.reporting.sections.routing import models_to_choose, share
from prerouter.reporting.tables import FEW, fixed

_ROUTER_AND_MODEL = (Column("Router", numeric=False), Column("Answer model", numeric=False))
_MANY_POINTS = 300
_ALL_POINTS = "all points of"
_NO_COST = "what an answer or a decision costs isn't known"


class _Part(NamedTuple):
    """`unpriced` says what has no USD, with the reason: routers, or all points of the part."""

    name: str
    plane: Plane
    unpriced: dict[str, str]

    @property
    def priced(self) -> bool:
        return any(point.cost is not None for point in self.plane.routers)


def plane(parts: Sequence[tuple[str, Material]]) -> Section:
    """Every router as a point, those with a p_lc as curves, and what the curves come to."""
    material = parts[0][1]
    made = [_plane(name, part) for name, part in parts if part.outcomes]
    if not made:
        return Section("plane", "Cost and quality", ["No case has a label: nothing to show."])
    curves, why_none = _p_lc(material)
    words = [
        "Up is better, left is cheaper. The dashed line mixes RAG and LC at random: a router under "
        "it is worth less than a coin. The oracle takes the ideal route of every case.",
        f"Curves: {', '.join(_drawn(curves, material))}, swept over all thresholds."
        if curves
        else "",
        *why_none,
        *_left_out(made),
    ]
    figures = [_figure(material, made, by_usd=False)]
    if any(part.priced for part in made):
        figures.append(_figure(material, [part for part in made if part.priced], by_usd=True))
    tables = [_points_table(made)]
    if any(part.plane.curves for part in made):
        tables += [_areas_table(made), _curves_table(made)]
    return Section("plane", "Cost and quality", [w for w in words if w], [*figures, *tables])


def _p_lc(material: Material) -> tuple[dict[str, Floats], list[str]]:
    """p_lc of the labelled cases by router, and of which routers there is no curve, in words."""
    outcomes = material.outcomes
    assert outcomes is not None
    wanted = set(outcomes.case_ids)
    found, words = {}, []
    for router, decisions in material.decisions.items():
        given = sum(d.p_lc is not None for d in decisions if d.case_id in wanted)
        if given == outcomes.n:
            found[router] = lc_probabilities(router, decisions, outcomes.case_ids)
        elif given:
            words.append(
                f"{router} gives a p_lc for {given:,} of {outcomes.n:,} cases only: no curve."
            )
    return found, words


def _drawn(routers: Iterable[str], material: Material) -> list[str]:
    """A temperature keeps the order of the cases, and so the curve, which isn't drawn twice."""
    return [router for router in routers if router not in material.tuned.values()]


def _plane(name: str, material: Material) -> _Part:
    outcomes = material.outcomes
    assert outcomes is not None
    curves, _ = _p_lc(material)
    costs = _answer_costs(material, outcomes.routes)
    rows = _labelled_spending(material)
    known = costs is not None and not rows[0].unknown
    beside: dict[str, float | None] = {}
    unpriced: dict[str, str] = {}
    if not known:
        of_all = f"{_ALL_POINTS} {name}"
        unpriced[of_all] = _why_unpriced(material, material.answer_models, "some answers")
    elif costs is not None:
        index = np.arange(outcomes.n)
        for row in rows:
            total = row.measures[Spend.USD].value
            if total is None:
                decisions = material.labelled_decisions[row.router]
                called = [d.model for d in decisions if d.model and d.calls]
                unpriced[row.router] = _why_unpriced(material, called, "some decisions")
                beside[row.router] = None
                continue
            # What a query costs beside the answer that stands: the decision, and vain answers.
            answering = float(costs[index, outcomes.chosen[row.router]].mean())
            beside[row.router] = max(0.0, total - answering)
    return _Part(
        name,
        cost_quality_plane(
            outcomes,
            curves,
            costs=costs if known else None,
            route_costs=beside if known else None,
            min_cases=material.section.min_cases,
            **material.resampling,
        ),
        unpriced,
    )


def _why_unpriced(material: Material, called: Sequence[str], whose: str) -> str:
    lacking = [name for name in dict.fromkeys(called) if name not in material.prices.models]
    if lacking:
        return f"the price table has no price of {', '.join(lacking)} (add it by `prices`)"
    return f"the tokens of {whose} aren't known"


def _left_out(made: Sequence[_Part]) -> list[str]:
    """What has no USD, in a sentence for each reason."""
    names: dict[str, dict[str, None]] = {}
    for part in made:
        for name, why in part.unpriced.items():
            whole = len(made) == 1 or name.startswith(_ALL_POINTS)
            names.setdefault(why, {})[name if whole else f"{name} ({part.name})"] = None
    return [f"Without USD: {', '.join(of)}, since {why}." for why, of in names.items()]


def _labelled_spending(material: Material) -> list[CostRow]:
    return cost_rows(
        material.labelled_decisions,
        material.answers,
        material.labelled,
        material.prices.models,
        output_tokens=material.section.assumed_output_tokens,
        fallback=material.section.fallback,
        # Only the means are read.
        resamples=1,
    )


def _answer_costs(material: Material, routes: Sequence[Route]) -> Floats | None:
    """USD of answering each labelled case by each route; None where one isn't known."""
    rows = [[_answer_cost(material, case, route) for route in routes] for case in material.labelled]
    if any(value is None for row in rows for value in row):
        return None
    return np.array(rows, dtype=np.float64)


def _answer_cost(material: Material, case: RoutingCase, route: Route) -> float | None:
    price = material.prices.models.get(case.answer_model.name)
    answer = material.answers.get((case.case_id, route))
    if answer is None or answer.prompt_tokens is None or answer.completion_tokens is None:
        answer = estimate_answer(case, route, material.section.assumed_output_tokens)
    if price is None or answer is None:
        return None
    assert answer.prompt_tokens is not None
    assert answer.completion_tokens is not None
    return usd(Tokens(answer.prompt_tokens, answer.completion_tokens), price)


def _figure(material: Material, made: Sequence[_Part], by_usd: bool) -> Figure:
    def at(point: PlanePoint | OperatingPoint) -> charts.Point:
        return (point.cost or 0.0) if by_usd else point.lc_rate, point.qa

    def placed(plane_: Plane) -> list[PlanePoint]:
        return [p for p in plane_.routers if not (by_usd and p.cost is None)]

    numbers = {router: number for number, router in enumerate(material.routers)}
    # A router that has answers written before it decides pays another price at every threshold.
    drawn = _drawn(material.routers, material)
    vain = {r for r, some in material.decisions.items() if any(d.wrote for d in some)}
    panels = [
        charts.Plane(
            title=part.name if len(made) > 1 else "",
            points=[(numbers[p.name], p.name, at(p)) for p in placed(part.plane)],
            curves=[
                (numbers[curve.router], _thinned([at(point) for point in curve.points]))
                for curve in part.plane.curves
                if curve.router in drawn
                and not (by_usd and (curve.router in vain or curve.points[0].cost is None))
            ],
            ends=(at(part.plane.always_rag), at(part.plane.always_lc)),
            oracle=at(part.plane.oracle),
        )
        for part in made
    ]
    across = min(3, len(panels))
    x_label = "USD a query" if by_usd else "Share of cases sent to LC"
    whole = made[0].plane
    places = "; ".join(f"{p.name} {share(p.lc_rate)} LC, QA {p.qa:.3f}" for p in placed(whole))
    return Figure(
        name="plane-usd" if by_usd else "plane",
        title=f"QA score against {'USD a query' if by_usd else 'the share of LC'}",
        alternative=f"Each router as a point. {made[0].name}: {places}; oracle "
        f"{share(whole.oracle.lc_rate)} LC, QA {whole.oracle.qa:.3f}. All in the table below.",
        size=(8.2, 4.2) if len(panels) == 1 else (9.2, 1.0 + 2.7 * math.ceil(len(panels) / across)),
        paint=charts.planes(panels, x_label, "QA score", across),
    )


def _thinned(points: Sequence[charts.Point]) -> list[charts.Point]:
    """Enough points for a picture; the file of numbers holds them all."""
    step = max(1, math.ceil(len(points) / _MANY_POINTS))
    return [*points[:-1:step], points[-1]]


def _points_table(made: Sequence[_Part]) -> Table:
    rows = []
    for name, plane_, _ in made:
        for point in (*plane_.routers, plane_.always_rag, plane_.always_lc, plane_.oracle):
            reference = point not in plane_.routers
            rows.append(
                [
                    text_cell(f"{point.name} (reference)" if reference else point.name),
                    text_cell(name),
                    Cell(share(point.lc_rate), point.lc_rate),
                    Cell(fixed(point.qa), point.qa),
                    number_cell(point.cost, three_digits, _NO_COST),
                    measured_cell(point.gap_recovered, share),
                    _cases(plane_),
                ]
            )
    return Table(
        name="plane-points",
        caption="The points of the plane; the gap recovered runs from always RAG to always LC",
        columns=[
            *_ROUTER_AND_MODEL,
            *map(Column, ("LC rate", "QA", "USD", "Gap to LC recovered", "Cases")),
        ],
        rows=rows,
        **models_to_choose(len(made)),
        folded=True,
    )


def _areas_table(made: Sequence[_Part]) -> Table:
    example = next(part.plane.curves[0] for part in made if part.plane.curves)
    rows = [
        [text_cell(curve.router), text_cell(part.name), *_areas(curve), _cases(part.plane)]
        for part in made
        for curve in part.plane.curves
    ]
    return Table(
        name="plane-areas",
        caption="Areas of the curves: APGR is the average of the gap between always RAG and always "
        "LC that is recovered (random mixing has 50%), CPT the share of LC calls it takes to "
        "recover a part of it",
        columns=[
            *_ROUTER_AND_MODEL,
            Column("APGR"),
            *(Column(f"Recovered at {100 * at.share:g}% LC") for at in example.gap_at),
            *(Column(f"CPT({100 * at.share:g}%)") for at in example.calls_for),
            Column("Cases"),
        ],
        rows=rows,
        **models_to_choose(len(made)),
    )


def _cases(plane_: Plane) -> Cell:
    return count_cell(plane_.n, FEW if plane_.caution else None)


def _areas(curve: Curve) -> list[Cell]:
    measured = [curve.average_gap_recovered, *(a.measured for a in curve.gap_at + curve.calls_for)]
    return [measured_cell(each, share) for each in measured]


def _curves_table(made: Sequence[_Part]) -> Table:
    return Table(
        name="plane-curves",
        caption="Every threshold of the curves",
        columns=[
            *_ROUTER_AND_MODEL,
            *map(Column, ("Threshold on p_lc", "LC rate", "QA", "USD")),
        ],
        rows=[
            [
                text_cell(curve.router),
                text_cell(part.name),
                Cell(f"{point.threshold:.4g}", point.threshold),
                Cell(share(point.lc_rate), point.lc_rate),
                Cell(fixed(point.qa), point.qa),
                number_cell(point.cost, three_digits, _NO_COST),
            ]
            for part in made
            for curve in part.plane.curves
            for point in curve.points
        ],
        shown=False,
    )
