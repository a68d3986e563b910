from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.core.errors import StageError
from prerouter.measures.entropy_routing import (
    NEVER,
    TAUS,
    TauPoint,
    TauSweep,
    by_elbow,
    by_least_cost,
    choose_tau,
    mean_entropy,
    sweep_tau,
)
from prerouter.recipe.checks import TauRule

# The last goes straight to LC; of the others LC mends the two of highest entropy and harms the one
# of the lowest.
ENTROPY = [0.4, 1.0, 1.6, 2.2, None]
RAG = [1.0, 1.0, 0.0, 0.0, 0.0]
LC = [0.0, 1.0, 1.0, 1.0, 1.0]
COST_RAG, COST_LC = [1.0] * 5, [10.0] * 5
STRAIGHT = [0, 0, 0, 0, 1]


def swept() -> TauSweep:
    return sweep_tau(ENTROPY, RAG, LC, COST_RAG, COST_LC, STRAIGHT)


def points_of(*rows: tuple[float, float]) -> TauSweep:
    """QA and cost of no escalation, then of τ = 2.5, 2.45, ..."""
    taus = (NEVER, *reversed(TAUS))
    points = tuple(
        TauPoint(tau=tau, escalation_rate=at / len(rows), lc_rate=at / len(rows), qa=qa, cost=cost)
        for at, (tau, (qa, cost)) in enumerate(zip(taus, rows, strict=False))
    )
    return TauSweep(points=points, qa_always_lc=0.8, n=100)


def test_the_mean_is_of_the_first_tokens_or_of_those_there_are() -> None:
    assert mean_entropy([1.0, 2.0, 9.0], 2) == 1.5
    assert mean_entropy([1.0, 2.0]) == 1.5
    assert mean_entropy([1.0] * 30 + [100.0]) == 1.0
    assert mean_entropy([]) is None
    with pytest.raises(StageError, match="not finite"):
        mean_entropy([1.0, float("nan")])
    with pytest.raises(StageError, match="0 tokens"):
        mean_entropy([1.0], 0)


def test_the_papers_thresholds() -> None:
    assert TAUS[0] == 0.5
    assert TAUS[-1] == 2.5
    assert 1.2 in TAUS
    assert np.allclose(np.diff(TAUS), 0.05)


def test_the_points_by_hand() -> None:
    points = {point.tau: point for point in swept().points}
    assert len(points) == 42
    assert swept().points[0].tau == NEVER
    assert swept().qa_always_lc == pytest.approx(0.8)
    # Four pay RAG; the straight one pays LC, and what is escalated pays both.
    for tau, escalated, qa in ((NEVER, 0, 3), (2.5, 0, 3), (2.2, 0, 3), (1.6, 1, 4), (0.5, 3, 5)):
        point = points[tau]
        assert point.escalation_rate == pytest.approx(escalated / 5)
        assert point.lc_rate == pytest.approx((escalated + 1) / 5)
        assert point.qa == pytest.approx(qa / 5)
        assert point.cost == pytest.approx((4 + 10 * (escalated + 1)) / 5)


@given(
    cases=st.lists(
        st.tuples(
            st.floats(0, 4), st.integers(0, 4), st.integers(0, 4), st.integers(0, 9), st.booleans()
        ),
        min_size=1,
        max_size=30,
    )
)
def test_a_lower_threshold_never_escalates_less_or_costs_less(
    cases: list[tuple[float, int, int, int, bool]],
) -> None:
    entropy, rag, lc, cost, straight = (np.array(column) for column in zip(*cases, strict=True))
    sweep = sweep_tau(entropy, rag, lc, cost, 2 * cost, straight)
    for name in ("tau", "escalation_rate", "lc_rate", "cost"):
        steps = np.diff([getattr(point, name) for point in sweep.points])
        assert ((-steps if name == "tau" else steps) >= -1e-12).all()
    elbow, cheapest = by_elbow(sweep), by_least_cost(sweep, sweep.points[0].qa)
    assert elbow.point in sweep.points
    assert cheapest.met
    assert cheapest.point.cost == pytest.approx(sweep.points[0].cost)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"entropy": [0.4, None, 1.6, 2.2, None]}, "missing or not finite, the first at place 1"),
        ({"entropy": [0.4, -1.0, 1.6, 2.2, None]}, "-1 bits"),
        ({"entropy": [0.4]}, "1 values for 5 cases"),
        ({"entropy": ["high"] * 5}, "could not convert"),
        ({"qa_rag": [float("nan")] * 5}, "QA of RAG: 5 of 5"),
        ({"cost_lc": [-1.0] * 5}, "negative"),
        ({"straight_to_lc": [2] * 5}, "other than 0 and 1"),
        ({"taus": [64.0]}, "64 bits"),
    ],
)
def test_what_is_missing_or_wrong_is_refused(changes: dict[str, object], problem: str) -> None:
    given = {
        "entropy": ENTROPY,
        "qa_rag": RAG,
        "qa_lc": LC,
        "cost_rag": COST_RAG,
        "cost_lc": COST_LC,
        "straight_to_lc": STRAIGHT,
    }
    with pytest.raises(StageError, match=problem):
        sweep_tau(**{**given, **changes})  # type: ignore[arg-type]


def test_least_cost_keeps_to_the_accuracy_that_is_asked() -> None:
    chosen = by_least_cost(swept(), 0.8)
    # 1.6 to 2.15 do the same: the highest of them.
    assert chosen.point.tau == 2.15
    assert chosen.met
    assert chosen.note is None
    assert "only 5 cases" in (chosen.caution or "")
    nothing = by_least_cost(swept(), 0.0)
    assert nothing.point.tau == NEVER
    assert nothing.note == "nothing is escalated at this threshold"


def test_an_accuracy_out_of_reach_is_said_with_the_best_there_is() -> None:
    chosen = by_least_cost(points_of((0.2, 1), (0.6, 2), (0.6, 3), (0.5, 4)), 0.9)
    assert not chosen.met
    assert (chosen.point.qa, chosen.point.cost) == (0.6, 2)
    assert "no threshold reaches a mean QA of 0.9" in (chosen.note or "")
    assert "the best is 0.6" in (chosen.note or "")


def test_of_equal_costs_the_better_accuracy() -> None:
    assert by_least_cost(points_of((0.5, 1), (0.7, 1), (0.9, 2)), 0.5).point.qa == 0.7


def test_the_elbow_of_a_concave_curve_is_where_a_step_gains_less_than_it_costs() -> None:
    # Steps of one fifth of the cost gain 0.4, 0.3, 0.2, 0.1 and 0 of the accuracy.
    sweep = points_of((0.5, 1), (0.7, 3), (0.85, 5), (0.95, 7), (1.0, 9), (1.0, 11))
    chosen = by_elbow(sweep)
    # The third step gains its share and no more: the highest of equals comes before it.
    assert chosen.point.qa == 0.85
    assert chosen.note is None


def test_a_flat_step_on_the_way_is_no_elbow() -> None:
    assert by_elbow(points_of((0.5, 1), (0.5, 2), (0.9, 3), (1.0, 11))).point.qa == 0.9


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        (((0.5, 1), (0.5, 2), (0.4, 3)), "no threshold gains accuracy"),
        (((0.5, 1), (0.5, 1)), "no threshold gains accuracy"),
        (((0.5, 1), (0.6, 6), (1.0, 11)), "no threshold gains a larger share"),
    ],
)
def test_nothing_is_escalated_where_that_gains_nothing(
    rows: tuple[tuple[float, float], ...], why: str
) -> None:
    chosen = by_elbow(points_of(*rows))
    assert chosen.point.tau == NEVER
    assert why in (chosen.note or "")


def test_the_recipes_rule_chooses() -> None:
    sweep = points_of((0.5, 1), (0.7, 3), (0.85, 5), (0.95, 7))
    assert choose_tau(sweep, TauRule.ELBOW, 1.0) == by_elbow(sweep)
    # Half of Always-LC's 0.8 is had without an escalation, all of it at the third point.
    assert choose_tau(sweep, TauRule.LEAST_COST, 0.5).tau == NEVER
    assert choose_tau(sweep, TauRule.LEAST_COST, 1.0) == by_least_cost(sweep, 0.8)
    assert choose_tau(sweep, TauRule.LEAST_COST, 1.0).point.qa == 0.85


def test_an_escalation_that_costs_nothing_takes_all_the_accuracy() -> None:
    assert by_elbow(points_of((0.5, 1), (0.7, 1), (0.6, 1))).point.qa == 0.7
