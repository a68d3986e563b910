"""The cost-quality plane: what each router costs and what it brings, and the area under a curve.

PGR, APGR and CPT as RouteLLM defines them (Ong et al., 2024, arXiv 2406.18665, Metrics): with RAG
as the weak and LC as the strong model, the performance gap recovered is (QA - QA of always RAG) /
(QA of always LC - QA of always RAG), its average over the share of LC calls from 0 to 1 is APGR,
and CPT(x) is the least share of LC calls that recovers x of the gap. RouteLLM takes ten points of
the curve; here it is exact. This gap ends at always LC: the routing table's ends at the oracle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import ROUTES, Record, Route
from prerouter.measures.checks import MIN_CASES, by_route, caution, finite, probabilities
from prerouter.measures.outcomes import Indices, Outcomes
from prerouter.measures.routing import ORACLE
from prerouter.measures.statistics import (
    Floats,
    Measured,
    group_sums,
    percentile_interval,
    resampled_weights,
    with_interval,
)
from prerouter.measures.thresholds import OperatingPoint, rank_cases, sweep_thresholds

PLACE = "cost-quality plane"
NO_GAP = "n/a: LC is no better than RAG on these cases, so there is no gap to recover"

_RAG, _LC = ROUTES.index(Route.RAG), ROUTES.index(Route.LC)


class PlanePoint(Record):
    """One way to route all n cases: LC rate in 0..1, mean QA, USD a query where costs are known.

    `gap_recovered` is PGR: below 0 for worse than always RAG, above 1 for better than always LC.
    """

    name: str
    lc_rate: float
    qa: float
    cost: float | None = None
    gap_recovered: Measured


class AtShare(Record):
    share: float
    measured: Measured


class Curve(Record):
    """A router with a p_lc, swept over its thresholds, from all RAG to all LC.

    Between two points lies the line of sending the cases with one p_lc either way at random.
    `gap_at` holds PGR at shares of LC calls, `calls_for` the shares of LC calls for parts of the
    gap (CPT); random mixing has an APGR of 1/2 and CPT(x) = x.
    """

    router: str
    points: tuple[OperatingPoint, ...]
    average_gap_recovered: Measured
    gap_at: tuple[AtShare, ...]
    calls_for: tuple[AtShare, ...]


class Plane(Record):
    """Points, curves and references of one set of n labelled cases.

    `always_rag` and `always_lc` pay for no decision and are the ends of the line of random
    mixtures; the oracle pays for none either. `caution` warns of few cases.
    """

    n: int
    n_groups: int
    routers: tuple[PlanePoint, ...]
    curves: tuple[Curve, ...]
    always_rag: PlanePoint
    always_lc: PlanePoint
    oracle: PlanePoint
    caution: str | None = None

    def mixture(self, lc_rate: float) -> tuple[float, float | None]:
        """Expected QA and USD a query of sending a random `lc_rate` (0..1) of all cases to LC."""
        rag, lc = self.always_rag, self.always_lc
        qa = (1 - lc_rate) * rag.qa + lc_rate * lc.qa
        if rag.cost is None or lc.cost is None:
            return qa, None
        return qa, (1 - lc_rate) * rag.cost + lc_rate * lc.cost


@dataclass(frozen=True)
class _Ranked:
    """Cases from the highest p_lc to the lowest; `ends` are where runs of one p_lc end."""

    groups: Indices
    gains: Floats
    ends: Indices


def cost_quality_plane(
    outcomes: Outcomes,
    p_lc: Mapping[str, npt.ArrayLike],
    *,
    costs: npt.ArrayLike | None = None,
    route_costs: Mapping[str, float | None] | None = None,
    shares: Sequence[float] = (0.25, 0.5, 0.75),
    gap_parts: Sequence[float] = (0.5, 0.8),
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> Plane:
    """Every router of `outcomes` as a point, and those in `p_lc`, (n,) each, as curves too.

    `costs` are the USD of answering each case by each route, (n, routes) with the columns of
    ROUTES, `route_costs` those of one decision of each router, None where that isn't known (the
    router has no cost then): both or neither. Intervals resample documents. StageError for a router
    that is unknown or has no entry there, and for anything missing.
    """
    usd = _check_costs(outcomes, costs, route_costs)
    n_groups = outcomes.n_groups
    unknown = sorted(p_lc.keys() - outcomes.chosen.keys())
    if unknown:
        raise StageError(PLACE, f"p_lc of {unknown[0]}", f"one of {', '.join(outcomes.chosen)}")
    if not all(0 <= s <= 1 for s in shares) or not all(0 < s <= 1 for s in gap_parts):
        raise StageError(PLACE, "a share lies outside its range", "shares in 0..1, parts above 0")

    def intervals(statistic: Callable[[Floats], list[float]]) -> list[Measured]:
        return _with_intervals(statistic, n_groups, resamples, confidence, seed)

    def point(name: str, chosen: Indices, route_cost: float | None) -> PlanePoint:
        rows = np.arange(outcomes.n)
        rag, lc, qa = (outcomes.qa[rows, c] for c in (_RAG, _LC, chosen))
        per_case = np.column_stack((np.ones(outcomes.n), qa - rag, lc - rag))
        sums = group_sums(outcomes.groups, per_case)
        return PlanePoint(
            name=name,
            lc_rate=float((chosen == _LC).mean()),
            qa=float(qa.mean()),
            cost=None
            if usd is None or route_cost is None
            else route_cost + float(usd[rows, chosen].mean()),
            gap_recovered=intervals(lambda weights: [_gap_share(*(weights @ sums))])[0],
        )

    def curve(router: str) -> Curve:
        p = probabilities(f"{PLACE}: router {router}", p_lc[router], outcomes.n)
        route_cost = (route_costs or {}).get(router)
        order, ends = rank_cases(p)
        gains = outcomes.qa[:, _LC] - outcomes.qa[:, _RAG]
        ranked = _Ranked(outcomes.groups[order], gains[order], ends)
        area, *rest = intervals(lambda weights: _areas(ranked, weights, shares, gap_parts))
        named = [
            AtShare(share=share, measured=measured)
            for share, measured in zip((*shares, *gap_parts), rest, strict=True)
        ]
        return Curve(
            router=router,
            points=sweep_thresholds(
                p, outcomes.qa, None if route_cost is None else usd, route_cost or 0.0
            ).points,
            average_gap_recovered=area,
            gap_at=tuple(named[: len(shares)]),
            calls_for=tuple(named[len(shares) :]),
        )

    return Plane(
        n=outcomes.n,
        n_groups=n_groups,
        routers=tuple(
            point(name, chosen, (route_costs or {}).get(name))
            for name, chosen in outcomes.chosen.items()
            if name != ORACLE
        ),
        curves=tuple(curve(router) for router in outcomes.chosen if router in p_lc),
        always_rag=point("always RAG", np.full(outcomes.n, _RAG), 0.0),
        always_lc=point("always LC", np.full(outcomes.n, _LC), 0.0),
        oracle=point(ORACLE, outcomes.ideal, 0.0),
        caution=caution(outcomes.n, min_cases),
    )


def _check_costs(
    outcomes: Outcomes,
    costs: npt.ArrayLike | None,
    route_costs: Mapping[str, float | None] | None,
) -> Floats | None:
    if (costs is None) != (route_costs is None):
        raise StageError(PLACE, "one of both costs is given", "answering and routing, or neither")
    if costs is None or route_costs is None:
        return None
    usd = by_route(PLACE, "the costs of answering", costs, outcomes.n)
    routers = [name for name in outcomes.chosen if name != ORACLE]
    absent = [name for name in routers if name not in route_costs]
    if absent:
        raise StageError(PLACE, f"router {absent[0]} has no cost of a decision", "USD, 0 if free")
    known = [cost for name in routers if (cost := route_costs[name]) is not None]
    if known:
        finite(PLACE, "the costs of a decision", known)
    return usd


def _gap_share(n: float, gained: float, gap: float) -> float:
    # Sums of the same scores in another order differ by rounding: that is no gap.
    return float(gained / gap) if gap > 1e-9 * n else np.nan


def _areas(
    ranked: _Ranked, weights: Floats, shares: Sequence[float], gap_parts: Sequence[float]
) -> list[float]:
    """APGR, PGR at each share, CPT of each part, with documents counted `weights` times."""
    counted = weights[ranked.groups]
    calls = np.append(0.0, np.cumsum(counted)[ranked.ends - 1])
    gained = np.append(0.0, np.cumsum(counted * ranked.gains)[ranked.ends - 1])
    if np.isnan(_gap_share(calls[-1], 0.0, gained[-1])):
        return [np.nan] * (1 + len(shares) + len(gap_parts))
    calls, recovered = calls / calls[-1], gained / gained[-1]
    return [
        float(np.trapezoid(recovered, calls)),
        *(float(np.interp(share, calls, recovered)) for share in shares),
        *(_first_reach(calls, recovered, part) for part in gap_parts),
    ]


def _first_reach(calls: Floats, recovered: Floats, part: float) -> float:
    # The curve may rise and fall: the least share is where it first gets there. It ends at 1.
    i = int(np.argmax(recovered >= part * (1 - 1e-12)))
    rise = (part - recovered[i - 1]) / (recovered[i] - recovered[i - 1])
    return float(calls[i - 1] + min(rise, 1.0) * (calls[i] - calls[i - 1]))


def _with_intervals(
    statistic: Callable[[Floats], list[float]],
    n_groups: int,
    resamples: int,
    confidence: float,
    seed: int,
) -> list[Measured]:
    values = statistic(np.ones(n_groups))
    draws = np.empty((0, len(values)))
    if n_groups > 1:
        blocks = resampled_weights(n_groups, resamples, seed)
        draws = np.array([statistic(weights) for block in blocks for weights in block])
    return [
        Measured(note=NO_GAP)
        if np.isnan(value)
        else with_interval(value, percentile_interval(draws[:, i], confidence, n_groups))
        for i, value in enumerate(values)
    ]
