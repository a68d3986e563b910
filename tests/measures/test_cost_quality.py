from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from prerouter.core.errors import StageError
from prerouter.measures.cost_quality import NO_GAP, Plane, cost_quality_plane
from tests.measures.matched import evaluation

# Ranked by p_lc: gains 0.6, then 0.2 and -0.2 together, then -0.2, then 0.4: the gap is 0.8 / 5.
P = [0.9, 0.7, 0.7, 0.4, 0.1]
QA = [(0.2, 0.8), (0.4, 0.6), (0.6, 0.4), (0.5, 0.3), (0.1, 0.5)]
USD = [(0.001, 0.010 * (i + 1)) for i in range(5)]


def plane(
    qa: Sequence[tuple[float, float]] = QA,
    p: Sequence[float] = P,
    groups: str | None = None,
    **given: object,
) -> Plane:
    made = evaluation(qa, {"r": "".join("L" if v > 0.5 else "R" for v in p)}, groups)
    return cost_quality_plane(made.outcomes(), {"r": p}, resamples=200, **given)  # type: ignore[arg-type]


def test_the_points_by_hand() -> None:
    made = plane(costs=USD, route_costs={"r": 0.0002})
    router = made.routers[0]
    assert (router.name, router.lc_rate) == ("r", 0.6)
    assert router.qa == pytest.approx((0.8 + 0.6 + 0.4 + 0.5 + 0.1) / 5)
    assert router.cost == pytest.approx(0.0002 + (0.010 + 0.020 + 0.030 + 0.002) / 5)
    assert router.gap_recovered.value == pytest.approx(0.6 / 0.8)
    assert (made.always_rag.lc_rate, made.always_lc.lc_rate) == (0, 1)
    assert (made.always_rag.qa, made.always_lc.qa) == pytest.approx((1.8 / 5, 2.6 / 5))
    assert (made.always_rag.cost, made.always_lc.cost) == pytest.approx((0.001, 0.030))
    assert made.always_rag.gap_recovered.value == 0
    assert made.always_lc.gap_recovered.value == pytest.approx(1)
    # LC for the gains 0.6, 0.2 and 0.4: 1.2 of a gap of 0.8.
    assert (made.oracle.qa, made.oracle.lc_rate) == pytest.approx((3.0 / 5, 0.6))
    assert made.oracle.cost == pytest.approx((0.010 + 0.020 + 0.050 + 0.002) / 5)
    assert made.oracle.gap_recovered.value == pytest.approx(1.5)
    assert "only 5 cases" in (made.caution or "")


def test_a_router_whose_decisions_have_no_known_cost_has_none_and_the_others_have() -> None:
    made = evaluation(QA, {"r": "LLLRR", "s": "LLLRR"})
    found = cost_quality_plane(
        made.outcomes(),
        {"r": P, "s": P},
        costs=USD,
        route_costs={"r": None, "s": 0.0002},
        resamples=10,
    )
    assert [point.cost is None for point in found.routers] == [True, False]
    unpriced, priced = found.curves
    assert {point.cost for point in unpriced.points} == {None}
    assert priced.points[0].cost == pytest.approx(0.0012)
    assert [point.qa for point in unpriced.points] == [point.qa for point in priced.points]
    assert found.always_rag.cost == pytest.approx(0.001)


def test_the_random_mixture_is_the_line_between_the_ends() -> None:
    made = plane(costs=USD, route_costs={"r": 0.0})
    assert made.mixture(0.25) == pytest.approx((0.36 + 0.25 * 0.16, 0.001 + 0.25 * 0.029))
    qa, cost = plane().mixture(1.0)
    assert (qa, cost) == (pytest.approx(0.52), None)


def test_the_curve_and_its_areas_by_hand() -> None:
    curve = plane(shares=(0.1, 0.2, 0.7), gap_parts=(0.5, 0.75, 0.8, 1.0)).curves[0]
    assert [p.lc_rate for p in curve.points] == pytest.approx([0, 0.2, 0.6, 0.8, 1.0])
    assert [p.qa for p in curve.points] == pytest.approx([0.36, 0.48, 0.48, 0.44, 0.52])
    # PGR at these: 0, 0.75, 0.75, 0.5, 1.
    area = 0.2 * 0.375 + 0.4 * 0.75 + 0.2 * 0.625 + 0.2 * 0.75
    assert curve.average_gap_recovered.value == pytest.approx(area)
    assert [at.measured.value for at in curve.gap_at] == pytest.approx([0.375, 0.75, 0.625])
    assert [at.share for at in curve.calls_for] == [0.5, 0.75, 0.8, 1.0]
    # The first time it gets there, also where it falls again later.
    assert [at.measured.value for at in curve.calls_for] == pytest.approx(
        [0.2 * 0.5 / 0.75, 0.2, 0.8 + 0.2 * 0.3 / 0.5, 1.0]
    )


def test_a_p_lc_that_tells_nothing_is_the_random_mixture() -> None:
    curve = plane(p=[0.3] * 5).curves[0]
    assert curve.average_gap_recovered.value == pytest.approx(0.5)
    assert [at.measured.value for at in curve.calls_for] == pytest.approx([0.5, 0.8])
    assert [at.measured.value for at in curve.gap_at] == pytest.approx([0.25, 0.5, 0.75])


@settings(max_examples=50, deadline=None)
@given(
    cases=st.lists(
        st.tuples(st.sampled_from([0.0, 0.2, 0.5, 0.8, 1.0]), st.booleans()),
        min_size=2,
        max_size=30,
    ).filter(lambda cases: len({better for _, better in cases}) == 2)
)
def test_the_area_is_that_of_the_roc_curve_by_another_way(cases: list[tuple[float, bool]]) -> None:
    # With gains of 0 or 1 the curve is the cumulative gains curve: its area is
    # share / 2 + (1 - share) * AUC, share being that of the cases where LC is better.
    p, better = zip(*cases, strict=True)
    share = sum(better) / len(better)
    made = plane([(0.0, float(b)) for b in better], p, "d" * len(p))
    assert made.curves[0].average_gap_recovered.value == pytest.approx(
        share / 2 + (1 - share) * roc_auc_score(better, p)
    )


@pytest.mark.parametrize(
    "qa", [[(0.5, 0.5)] * 5, [(0.9, 0.1)] * 5, [(0.1, 0.3), (0.3, 0.1)] * 2 + [(0.2, 0.2)]]
)
def test_no_gap_is_said_in_words_and_nothing_is_divided(qa: list[tuple[float, float]]) -> None:
    made = plane(qa)
    curve = made.curves[0]
    every = [point.gap_recovered for point in (*made.routers, made.always_lc, made.oracle)]
    every += [curve.average_gap_recovered]
    every += [at.measured for at in (*curve.gap_at, *curve.calls_for)]
    assert {(measured.value, measured.note) for measured in every} == {(None, NO_GAP)}
    assert len(curve.points) == 5


def test_intervals_resample_documents_and_tell_of_those_without_a_gap() -> None:
    qa = [(0.0, 1.0)] * 4 + [(1.0, 0.5)] * 4
    p = [0.9, 0.8, 0.7, 0.6, 0.4, 0.3, 0.2, 0.1]
    measured = plane(qa, p, "aabbccdd").curves[0].average_gap_recovered
    assert measured.value == pytest.approx(1.25)
    assert measured.interval is not None
    assert measured.interval.n_groups == 4
    assert 0 < measured.interval.left_out < 100
    assert str(measured.interval.left_out) in (measured.note or "")
    # Four, three or two documents of the first kind; with fewer there is no gap.
    assert (measured.interval.low, measured.interval.high) == pytest.approx((0.5, 1.25))
    one = plane(qa, p, "aaaaaaaa").curves[0].average_gap_recovered
    assert one.interval is None
    assert "fewer than two documents" in (one.note or "")


def test_the_interval_is_that_of_resampled_evaluations() -> None:
    rng = np.random.default_rng(11)
    qa = [(float(a), float(b)) for a, b in rng.random((40, 2)) * (0.5, 1.0)]
    p = rng.random(40).round(1).tolist()
    groups = "".join("abcdefgh"[i % 8] for i in range(40))
    interval = plane(qa, p, groups).curves[0].average_gap_recovered.interval
    areas = []
    for drawn in rng.integers(0, 8, (150, 8)):
        rows = [i for g in drawn for i in range(40) if i % 8 == g]
        again = plane([qa[i] for i in rows], [p[i] for i in rows], "d" * len(rows))
        areas.append(again.curves[0].average_gap_recovered.value)
    assert interval is not None
    assert (interval.low, interval.high) == pytest.approx(
        tuple(np.quantile(np.array(areas, dtype=float), (0.025, 0.975))), abs=0.06
    )


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"costs": USD}, "one of both costs"),
        ({"costs": USD, "route_costs": {}}, "router r has no cost of a decision"),
        ({"costs": USD[:4], "route_costs": {"r": 0}}, "costs of answering: the shape (4, 2)"),
        ({"costs": [(None, 1.0)] * 5, "route_costs": {"r": 0}}, "5 of 10 values are missing"),
        ({"costs": USD, "route_costs": {"r": float("nan")}}, "costs of a decision: 1 of 1"),
        ({"shares": (1.5,)}, "a share lies outside"),
        ({"gap_parts": (0.0,)}, "a share lies outside"),
    ],
)
def test_missing_costs_and_impossible_shares_are_refused(
    given_: dict[str, object], words: str
) -> None:
    with pytest.raises(StageError, match="cost-quality plane: ") as caught:
        plane(**given_)  # type: ignore[arg-type]
    assert words in caught.value.line


@pytest.mark.parametrize(
    ("p_lc", "words"),
    [
        ({"x": P}, "p_lc of x"),
        ({"r": P[:4]}, "4 values for 5 cases"),
        ({"r": [*P[:4], None]}, "1 of 5 values are missing"),
        ({"r": [*P[:4], 1.2]}, "is no probability"),
    ],
)
def test_a_p_lc_of_other_cases_is_refused(p_lc: dict[str, list], words: str) -> None:
    outcomes = evaluation(QA, {"r": "LLLRR"}).outcomes()
    with pytest.raises(StageError) as caught:
        cost_quality_plane(outcomes, p_lc)
    assert words in caught.value.line


def test_the_same_seed_gives_the_same_plane() -> None:
    assert plane(seed=4) == plane(seed=4)
    assert Plane.model_validate_json(plane().model_dump_json()) == plane()
