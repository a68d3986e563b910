from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.records import Decision, DecisionFailure, Route, Split
from prerouter.measures.tuning import calibrate, tune
from prerouter.recipe.calibrate import CalibrateSection

from .matched import Evaluation, evaluation

ROUTER = "student_decide"


def section(**changes: Any) -> CalibrateSection:
    return CalibrateSection.model_validate({"min_cases": 4, **changes})


def bold(n: int, seed: int) -> Evaluation:
    """A router that knows the route's odds and overstates them threefold."""
    rng = np.random.default_rng(seed)
    odds = rng.normal(size=n)
    is_lc = rng.random(n) < 1 / (1 + np.exp(-odds))
    p_lc = 1 / (1 + np.exp(-3 * odds))
    return evaluation(
        [(0.0, 1.0) if lc else (1.0, 0.0) for lc in is_lc],
        {ROUTER: "".join("L" if p > 0.5 else "R" for p in p_lc)},
        p_lc={ROUTER: p_lc.tolist()},
    )


def halves(given: Evaluation) -> dict[Split, list[Any]]:
    half = len(given.cases) // 2
    return {Split.VALIDATION: given.cases[:half], Split.TEST: given.cases[half:]}


def fit(given: Evaluation, **changes: Any) -> Any:
    return calibrate(
        section(**changes),
        ROUTER,
        given.decisions[ROUTER],
        given.labels,
        given.scores,
        halves(given),
    )


def test_a_bold_router_is_softened_and_is_right_on_cases_it_was_not_fitted_on() -> None:
    done = fit(bold(4_000, seed=1))
    assert done.temperature.temperature == pytest.approx(3, rel=0.1)
    assert [point.split for point in done.measured] == [Split.VALIDATION, Split.TEST]
    for point in done.measured:
        assert point.before.n == 2_000
        assert point.after.brier < point.before.brier
        assert point.after.ece_equal_mass < 0.04 < 0.1 < point.before.ece_equal_mass
    # The margins are even, so the best cut is where the odds are.
    assert done.threshold.point.threshold == pytest.approx(0.5, abs=0.1)


def test_the_threshold_meets_an_lc_rate_on_the_calibrated_p_lc() -> None:
    given = bold(400, seed=2)
    done = fit(given, rule="lc_rate", target=0.25)
    assert done.threshold.point.lc_rate == pytest.approx(0.25)
    tuned = tune(
        given.decisions[ROUTER],
        "tuned",
        done.temperature.temperature,
        done.threshold.point.threshold,
    )
    assert sum(decision.route is Route.LC for decision in tuned[:200]) == 50


def test_a_budget_is_kept() -> None:
    done = fit(
        bold(400, seed=3), rule="budget", target=0.4, costs={"rag": 0.1, "lc": 1.0, "route": 0.03}
    )
    point = done.threshold.point
    assert point.cost is not None
    assert point.cost == pytest.approx(0.03 + 0.1 + 0.9 * point.lc_rate)
    assert 0.39 < point.cost <= 0.4


def test_undecided_cases_are_left_out_and_counted() -> None:
    given = bold(400, seed=4)
    lost = [
        Decision(case_id=d.case_id, router=ROUTER, failure=DecisionFailure.TOO_LONG)
        if number in (3, 5, 399)
        else d
        for number, d in enumerate(given.decisions[ROUTER])
    ]
    given.decisions[ROUTER] = lost
    validation, test = fit(given).measured
    assert (validation.undecided, validation.before.n) == (2, 198)
    assert (test.undecided, test.before.n) == (1, 199)
    tuned = tune(lost, "tuned", 2.0, 0.5)
    assert tuned[3].failure is DecisionFailure.TOO_LONG
    assert tuned[3].route is None


def test_tuning_keeps_all_but_the_name_the_probability_and_the_route() -> None:
    decision = Decision(
        case_id="c", router=ROUTER, route=Route.LC, p_lc=0.9, prompt_tokens=7, seconds=0.5
    )
    (tuned,) = tune([decision], "tuned", 2.0, 0.8)
    assert tuned.p_lc == pytest.approx(0.75)
    assert tuned.model_copy(update={"p_lc": 0.9}) == Decision(
        case_id="c", router="tuned", route=Route.RAG, p_lc=0.9, prompt_tokens=7, seconds=0.5
    )


def test_a_router_without_a_p_lc_and_a_case_without_a_decision_are_refused() -> None:
    given = evaluation([(0, 1), (1, 0)] * 4, {ROUTER: "LR" * 4})
    with pytest.raises(StageError, match="no p_lc"):
        fit(given)
    given = bold(40, seed=5)
    del given.decisions[ROUTER][0]
    with pytest.raises(CombinedError, match="no decision for 1"):
        fit(given)


@pytest.mark.parametrize("lacks", ["labels", "decisions"])
def test_a_split_without_a_label_or_a_decision_is_named(lacks: str) -> None:
    given = bold(40, seed=5)
    test = {case.case_id for case in halves(given)[Split.TEST]}
    if lacks == "labels":
        given.labels[:] = [each for each in given.labels if each.case_id not in test]
        given.scores[:] = [each for each in given.scores if each.case_id not in test]
    else:
        given.decisions[ROUTER] = [
            Decision(case_id=d.case_id, router=ROUTER, failure=DecisionFailure.TOO_LONG)
            if d.case_id in test
            else d
            for d in given.decisions[ROUTER]
        ]
    with pytest.raises(StageError, match=r"calibrate: no case of the test split \(20 cases\)"):
        fit(given)


def test_too_few_cases_to_fit_on_are_refused() -> None:
    with pytest.raises(StageError, match="means little"):
        fit(bold(40, seed=6), min_cases=30)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rule": "lc_rate"}, "belongs to rule"),
        ({"target": 0.3}, "belongs to rule"),
        ({"rule": "lc_rate", "target": 3}, "lies in 0 to 1"),
        ({"rule": "budget", "target": 3}, "needs `costs`"),
    ],
)
def test_a_rule_without_what_it_needs_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        section(**changes)
