"""The threshold on p_lc: LC where p_lc > threshold, RAG otherwise, so that ties go to RAG.

Chosen on the validation split by a target LC rate, by a cost budget with the cost of Pre-Route,
section 1 (C = C_route + p(LC)·C_LC + (1 - p(LC))·C_RAG; Chen et al., 2026, arXiv 2605.10235), or by
the least expected loss. How a choice between neighbouring thresholds is made is ours.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import ROUTES, Record, Route
from prerouter.measures.checks import MIN_CASES, by_route, caution, probabilities
from prerouter.measures.outcomes import Indices
from prerouter.measures.statistics import Floats
from prerouter.recipe.calibrate import ThresholdRule

PLACE = "threshold"

# No p_lc lies above the one or at the other and below: every case goes one way, seen or unseen.
ALL_RAG, ALL_LC = 1.0, -1.0

_RAG, _LC = ROUTES.index(Route.RAG), ROUTES.index(Route.LC)


class OperatingPoint(Record):
    """What one threshold does: LC rate, mean QA, and USD a query where costs are known."""

    threshold: float
    lc_rate: float
    qa: float
    cost: float | None = None


class ChosenThreshold(Record):
    """A threshold, and what it does on the n cases it was chosen on.

    `target` is the LC rate or the budget (USD a query) that was asked for. `note` tells where the
    target isn't met exactly and where every case goes one way, `caution` warns of few cases.
    """

    rule: ThresholdRule
    target: float | None = None
    point: OperatingPoint
    n: int
    note: str | None = None
    caution: str | None = None


@dataclass(frozen=True)
class Sweep:
    """Every LC rate that a threshold can give on n cases, from none to all, one point for each."""

    points: tuple[OperatingPoint, ...]
    n: int


def sweep_thresholds(
    p_lc: npt.ArrayLike,
    qa: npt.ArrayLike,
    costs: npt.ArrayLike | None = None,
    route_cost: float = 0.0,
) -> Sweep:
    """All operating points of one router on labelled cases.

    `p_lc` is (n,) in 0..1; `qa` is (n, routes) with the columns of ROUTES; `costs` are the USD of
    answering by each route, (routes,) for all cases or (n, routes); `route_cost` are the USD of one
    decision. Cases with one p_lc change sides together. A threshold lies half way to the next lower
    p_lc, so that rounding at decision time changes no side. StageError for anything missing.
    """
    p = probabilities(PLACE, p_lc)
    scores = by_route(PLACE, "QA", qa, p.size)
    usd = None
    if costs is not None:
        one_price = np.shape(costs) == (len(ROUTES),)
        usd = by_route(
            PLACE, "the costs", np.tile(costs, (p.size, 1)) if one_price else costs, p.size
        )
    if not 0 <= route_cost < np.inf or (usd is not None and (usd < 0).any()):
        raise StageError(PLACE, "a cost is negative or not finite", "USD from 0")
    order, ends = rank_cases(p)
    ranked = p[order]
    rates = np.append(0, ends) / p.size
    quality = _means(scores, order, ends)
    prices = None if usd is None else route_cost + _means(usd, order, ends)
    thresholds = (ALL_RAG, *(_between(ranked[e], ranked[e - 1]) for e in ends[:-1]), ALL_LC)
    points = tuple(
        OperatingPoint(
            threshold=threshold,
            lc_rate=float(rates[i]),
            qa=float(quality[i]),
            cost=None if prices is None else float(prices[i]),
        )
        for i, threshold in enumerate(thresholds)
    )
    return Sweep(points, p.size)


def rank_cases(p_lc: Floats) -> tuple[Indices, Indices]:
    """Places of the cases from the highest p_lc to the lowest, and where each run of equals ends.

    The first `ends[i]` cases of the order are what the i-th lower threshold sends to LC.
    """
    order = np.argsort(-p_lc, kind="stable")
    return order, np.append(np.flatnonzero(np.diff(p_lc[order])) + 1, p_lc.size)


def _means(values: Floats, order: Indices, ends: Indices) -> Floats:
    """Mean of the chosen route's values with none, then with the first `ends` cases sent to LC."""
    gained = np.cumsum(values[order, _LC] - values[order, _RAG])[ends - 1]
    return np.asarray(values[:, _RAG].mean() + np.append(0.0, gained) / len(order))


def _between(lower: float, upper: float) -> float:
    middle = float(lower + (upper - lower) / 2)
    return middle if middle < upper else float(lower)


def by_lc_rate(sweep: Sweep, target: float, *, min_cases: int = MIN_CASES) -> ChosenThreshold:
    """The reachable LC rate nearest to `target` (0..1); the lower of two that are as near."""
    if not 0 <= target <= 1:
        raise StageError(PLACE, f"a target LC rate of {target:g}", "0 to 1")
    rates = np.array([point.lc_rate for point in sweep.points])
    # Rounded, so that 0.5 is as far from 0.4 as from 0.6.
    best = int(np.argmin(np.round(np.abs(rates - target), 12)))
    note = None
    if abs(rates[best] - target) > 1e-9:
        above = int(np.searchsorted(rates, target))
        note = (
            f"no threshold gives an LC rate of {target:.2%} on these {sweep.n} cases: "
            f"{rates[best]:.2%} was reached; its neighbours are {rates[above - 1]:.2%} and "
            f"{rates[above]:.2%} (cases with one p_lc go together)"
        )
    return _chosen(ThresholdRule.LC_RATE, sweep, best, min_cases, target, note)


def by_budget(sweep: Sweep, usd: float, *, min_cases: int = MIN_CASES) -> ChosenThreshold:
    """The highest LC rate whose expected cost is within `usd` a query.

    StageError where the sweep has no costs, or where no threshold is so cheap.
    """
    costs = _costs(sweep)
    if not 0 <= usd < np.inf:
        raise StageError(PLACE, f"a budget of {usd:g} USD a query", "a number from 0")
    within = np.flatnonzero(costs <= usd * (1 + 1e-9))
    if not within.size:
        raise StageError(
            PLACE,
            f"no threshold costs {usd:g} USD a query or less",
            f"at least {costs.min():.6g}, the cheapest of these {sweep.n} cases",
            "raise the budget",
        )
    best = int(within[-1])
    note = None
    if costs[best] < usd * (1 - 1e-9):
        note = f"{costs[best]:.6g} of {usd:g} USD a query are spent"
        if best < len(sweep.points) - 1:
            note += ", since one more step, of all cases with the next p_lc, costs more"
    return _chosen(ThresholdRule.BUDGET, sweep, best, min_cases, usd, note)


def by_expected_loss(sweep: Sweep, *, min_cases: int = MIN_CASES) -> ChosenThreshold:
    """The best mean QA of the chosen routes; of equals the cheapest, then the lowest LC rate.

    The loss of a wrong side is its score margin, so this is the sum of U(chosen) at its highest.
    """
    qa = np.array([point.qa for point in sweep.points])
    # Sums in another order differ by rounding: that is no gain.
    equal = np.flatnonzero(qa >= qa.max() - 1e-9 * max(1.0, float(np.abs(qa).max())))
    best = int(equal[0])
    if sweep.points[0].cost is not None:
        best = int(equal[np.argmin(np.round(_costs(sweep)[equal], 12))])
    return _chosen(ThresholdRule.LOSS, sweep, best, min_cases, None, None)


def _costs(sweep: Sweep) -> Floats:
    costs = [point.cost for point in sweep.points]
    if None in costs:
        raise StageError(PLACE, "no costs are known", "the USD of both routes for a budget")
    return np.array(costs, dtype=np.float64)


def _chosen(
    rule: ThresholdRule,
    sweep: Sweep,
    best: int,
    min_cases: int,
    target: float | None,
    note: str | None,
) -> ChosenThreshold:
    point = sweep.points[best]
    one_way = {0: "every case goes to RAG", len(sweep.points) - 1: "every case goes to LC"}
    said = [words for words in (note, one_way.get(best)) if words]
    return ChosenThreshold(
        rule=rule,
        target=target,
        point=point,
        n=sweep.n,
        note="; ".join(said) or None,
        caution=caution(sweep.n, min_cases),
    )
