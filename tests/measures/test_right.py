from __future__ import annotations

import pytest

from prerouter.core.records import ArmScore, MissingReason, PairedScore, Route
from prerouter.measures.right import RightCounts, right_by_model

FAILED = ArmScore(missing=MissingReason.CALL_FAILED)


def pair(rag: float | None, lc: float | None, high: float = 1.0) -> PairedScore:
    arms = {
        route: FAILED if score is None else ArmScore(score=score)
        for route, score in ((Route.RAG, rag), (Route.LC, lc))
    }
    return PairedScore(case_id="case", arms=arms, high=high, judge="choice")


def counts(*pairs: PairedScore) -> RightCounts:
    found = RightCounts()
    for scored in pairs:
        found.add(scored)
    return found


def test_each_case_is_counted_once_under_the_routes_that_got_it_right() -> None:
    found = counts(pair(1, 1), pair(1, 0), pair(0, 1), pair(0, 1), *[pair(0, 0)] * 3)
    assert found.report() == {"cases": 7, "all": 1, "only RAG": 1, "only LC": 2, "none": 3}


def test_a_missing_arm_is_no_wrong_answer() -> None:
    found = counts(pair(None, 1), pair(1, None), pair(None, None), pair(1, 0))
    assert found.report() == {"cases": 1, "all": 0, "only RAG": 1, "only LC": 0, "none": 0}


@pytest.mark.parametrize(("lc", "name"), [(4, "only LC"), (3.9, "none"), (4 - 1e-12, "only LC")])
def test_right_is_the_best_score_of_the_scale(lc: float, name: str) -> None:
    assert counts(pair(3, lc, high=4)).report()[name] == 1


def test_models_stand_in_the_order_of_their_names() -> None:
    found = right_by_model({"b": counts(pair(1, 1)), "a": counts()})
    assert list(found) == ["a", "b"]
    assert (found["a"]["cases"], found["b"]["all"]) == (0, 1)
