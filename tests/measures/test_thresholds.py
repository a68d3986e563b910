from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.core.errors import StageError
from prerouter.measures.thresholds import (
    ALL_LC,
    ALL_RAG,
    Sweep,
    by_budget,
    by_expected_loss,
    by_lc_rate,
    sweep_thresholds,
)

# From the highest p_lc: 0.9 gains 0.6, the two 0.7 gain 0.2 and lose 0.1, 0.2 loses 0.8, 0 gains 0.
P = [0.7, 0.9, 0.2, 0.7, 0.0]
QA = [(0.4, 0.6), (0.2, 0.8), (0.9, 0.1), (0.5, 0.4), (0.5, 0.5)]
COSTS = (0.001, 0.011)


def swept() -> Sweep:
    return sweep_thresholds(P, QA, COSTS, route_cost=0.0005)


def test_the_operating_points_by_hand() -> None:
    points = swept().points
    assert [p.threshold for p in points] == pytest.approx([ALL_RAG, 0.8, 0.45, 0.1, ALL_LC])
    assert [p.lc_rate for p in points] == pytest.approx([0, 0.2, 0.6, 0.8, 1])
    assert [p.qa for p in points] == pytest.approx([0.5, 0.62, 0.64, 0.48, 0.48])
    assert [p.cost for p in points] == pytest.approx([0.0015, 0.0035, 0.0075, 0.0095, 0.0115])


@given(
    cases=st.lists(
        st.tuples(
            st.one_of(st.floats(0, 1), st.sampled_from([0.0, 0.25, 0.5, 1.0])),
            st.integers(0, 4),
            st.integers(0, 4),
            st.integers(0, 100),
            st.integers(0, 100),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_every_point_is_what_its_threshold_does(cases: list[tuple[float, ...]]) -> None:
    p, rag, lc, usd_rag, usd_lc = (np.array(column) for column in zip(*cases, strict=True))
    sweep = sweep_thresholds(p, np.column_stack((rag, lc)), np.column_stack((usd_rag, usd_lc)), 2)
    for point in sweep.points:
        to_lc = p > point.threshold
        assert point.lc_rate == pytest.approx(to_lc.mean())
        assert point.qa == pytest.approx(np.where(to_lc, lc, rag).mean())
        assert point.cost == pytest.approx(2 + np.where(to_lc, usd_lc, usd_rag).mean())
    assert len(sweep.points) == len(set(p.tolist())) + 1
    assert (sweep.points[0].lc_rate, sweep.points[-1].lc_rate) == (0, 1)
    best = by_expected_loss(sweep).point
    assert best.qa == pytest.approx(max(np.where(p > t, lc, rag).mean() for t in (-1, 1, *p)))


# Half way between the second and its upper neighbour rounds up, onto that neighbour.
@pytest.mark.parametrize("low", [0.5, float(np.nextafter(0.5, 1))])
def test_neighbouring_floats_stay_apart(low: float) -> None:
    high = float(np.nextafter(low, 1))
    threshold = sweep_thresholds([low, high], [(0, 1), (0, 1)]).points[1].threshold
    assert (low > threshold, high > threshold) == (False, True)


@pytest.mark.parametrize(
    ("target", "rate", "words"),
    [
        (0.0, 0.0, "every case goes to RAG"),
        (0.2, 0.2, None),
        (0.6, 0.6, None),
        (0.5, 0.6, "no threshold gives an LC rate of 50.00% on these 5 cases: 60.00% was reached"),
        (0.4, 0.2, "its neighbours are 20.00% and 60.00%"),
        (1.0, 1.0, "every case goes to LC"),
    ],
)
def test_a_target_rate_is_met_or_what_was_reached_is_said(
    target: float, rate: float, words: str | None
) -> None:
    chosen = by_lc_rate(swept(), target)
    assert chosen.point.lc_rate == pytest.approx(rate)
    assert (np.array(P) > chosen.point.threshold).mean() == pytest.approx(rate)
    assert (chosen.target, chosen.n) == (target, 5)
    assert "only 5 cases" in (chosen.caution or "")
    assert chosen.note is None if words is None else words in (chosen.note or "")


@pytest.mark.parametrize(
    ("usd", "rate", "words"),
    [
        (0.0015, 0.0, "every case goes to RAG"),
        (0.0075, 0.6, None),
        (0.0074, 0.2, "0.0035 of 0.0074 USD a query are spent"),
        (1.0, 1.0, "every case goes to LC"),
    ],
)
def test_a_budget_buys_the_highest_rate_it_can(usd: float, rate: float, words: str | None) -> None:
    chosen = by_budget(swept(), usd)
    assert chosen.point.lc_rate == pytest.approx(rate)
    assert chosen.point.cost is not None
    assert chosen.point.cost <= usd + 1e-12
    assert chosen.note is None if words is None else words in (chosen.note or "")


def test_a_budget_below_always_rag_is_refused_with_the_least_cost() -> None:
    with pytest.raises(StageError, match=r"no threshold costs 0.001 USD .* at least 0.0015"):
        by_budget(swept(), 0.001)


def test_a_budget_without_costs_is_refused() -> None:
    with pytest.raises(StageError, match="no costs are known"):
        by_budget(sweep_thresholds(P, QA), 1.0)


def test_the_least_loss_takes_the_best_sum_of_scores() -> None:
    chosen = by_expected_loss(swept())
    assert chosen.point.threshold == pytest.approx(0.45)
    assert (chosen.point.lc_rate, chosen.point.qa) == pytest.approx((0.6, 0.64))
    assert chosen.note is None


def test_of_equal_scores_the_cheapest_wins() -> None:
    # 0.1 + 0.2 - 0.3 is not 0 in floats: the gain of going on is none.
    qa = [(0.0, 0.1), (0.0, 0.2), (0.3, 0.0)]
    assert by_expected_loss(sweep_thresholds([0.9, 0.9, 0.9], qa)).point.lc_rate == 0
    equal = [(0.5, 0.5)] * 2
    assert by_expected_loss(sweep_thresholds([0.9, 0.1], equal)).point.lc_rate == 0
    lc_is_cheaper = [(0.010, 0.001), (0.001, 0.010)]
    chosen = by_expected_loss(sweep_thresholds([0.9, 0.1], equal, lc_is_cheaper))
    assert (chosen.point.lc_rate, chosen.point.cost) == pytest.approx((0.5, 0.001))


def test_one_p_lc_for_all_leaves_the_two_ends() -> None:
    sweep = sweep_thresholds([0.0, 0.0], [(0, 1), (0, 1)])
    assert [point.lc_rate for point in sweep.points] == [0, 1]
    assert by_lc_rate(sweep, 0.5).point.lc_rate == 0
    assert by_expected_loss(sweep).point.threshold == ALL_LC


@pytest.mark.parametrize(
    ("p", "qa", "costs", "words"),
    [
        ([0.5, None], [(0, 1)] * 2, None, "p_lc: 1 of 2 values are missing"),
        ([0.5, 1.5], [(0, 1)] * 2, None, "is no probability"),
        ([0.5, 0.5], [(0, 1), (float("nan"), 1)], None, "QA: 1 of 4"),
        ([0.5, 0.5], [0, 1], None, "QA: the shape (2,)"),
        ([0.5, 0.5], [(0, 1)] * 2, (-0.1, 1.0), "a cost is negative"),
        ([0.5, 0.5, 0.1], [(0, 1)] * 3, [(0, 1)] * 2, "the costs: the shape (2, 2)"),
    ],
)
def test_missing_and_impossible_numbers_are_refused(
    p: list, qa: list, costs: list | None, words: str
) -> None:
    with pytest.raises(StageError, match="threshold: ") as caught:
        sweep_thresholds(p, qa, costs)
    assert words in caught.value.line


@pytest.mark.parametrize("target", [-0.1, 1.1, float("nan")])
def test_an_impossible_target_is_refused(target: float) -> None:
    with pytest.raises(StageError, match="a target LC rate"):
        by_lc_rate(swept(), target)
    with pytest.raises(StageError, match="a budget of"):
        by_budget(swept(), -target if target > 1 else target)
