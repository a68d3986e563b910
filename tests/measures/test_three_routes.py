"""LONG_RAG as a route: labels by cost, a table with its column, and nothing else moved."""

from __future__ import annotations

import pytest

from prerouter.core.errors import StageError
from prerouter.core.records import (
    ArmScore,
    Decision,
    Label,
    MissingReason,
    PairedScore,
    Route,
    RoutingCase,
)
from prerouter.measures.outcomes import join_outcomes
from prerouter.measures.right import RightCounts
from prerouter.measures.routing import Measure, RoutingRow, routing_table

from .test_routing import make_case

RAG, LONG, LC = Route.RAG, Route.LONG_RAG, Route.LC
# QA by RAG, LONG_RAG and LC; the last column is the ideal route of the first and third alone.
SCORES = [(1, 1, 0, RAG), (0, 1, 1, LC), (0, 0, 1, LC), (0, 1, 0, RAG), (0.5, 0.5, 1, LC)]
CASES = [make_case(number) for number in range(len(SCORES))]


def scored(case: RoutingCase, rag: float, long: float | None, lc: float) -> PairedScore:
    arms = {RAG: ArmScore(score=rag), LC: ArmScore(score=lc)}
    if long is not None:
        arms[LONG] = ArmScore(score=long)
    return PairedScore(case_id=case.case_id, arms=arms, judge="token_f1")


PAIRS = [scored(case, *row[:3]) for case, row in zip(CASES, SCORES, strict=True)]
TWO_WAY = [
    Label(case_id=case.case_id, route=row[3], margin=row[2] - row[0])
    for case, row in zip(CASES, SCORES, strict=True)
]


def decide(routes: list[Route]) -> list[Decision]:
    return [
        Decision(case_id=case.case_id, router="r", route=route)
        for case, route in zip(CASES, routes, strict=True)
    ]


def row_of(routes: list[Route], labels: list[Label], pairs: list[PairedScore]) -> RoutingRow:
    rows = routing_table({"r": decide(routes)}, labels, pairs, CASES, resamples=100)
    return next(row for row in rows if row.router == "r")


def test_the_third_route_has_its_own_score_and_is_no_lc() -> None:
    row = row_of([LONG] * 5, TWO_WAY, PAIRS)
    assert row.measures[Measure.QA].value == pytest.approx((1 + 1 + 0 + 1 + 0.5) / 5)
    assert row.measures[Measure.LC_RATE].value == 0.0
    assert row.measures[Measure.ACCURACY].value == 0.0
    assert row.collapsed is LONG


def test_what_chooses_between_two_is_measured_as_without_the_third() -> None:
    two = [scored(case, row[0], None, row[2]) for case, row in zip(CASES, SCORES, strict=True)]
    routes = [RAG, LC, RAG, LC, LC]
    with_it, without = row_of(routes, TWO_WAY, PAIRS), row_of(routes, TWO_WAY, two)
    assert with_it.measures == without.measures
    assert with_it.measures[Measure.BALANCED_ACCURACY].value == pytest.approx((1 / 2 + 2 / 3) / 2)


def test_labels_of_three_routes_count_three_recalls() -> None:
    ideal = [RAG, LONG, LC, LONG, LC]
    labels = [
        Label(case_id=case.case_id, route=route, margin=row[2] - row[0])
        for case, route, row in zip(CASES, ideal, SCORES, strict=True)
    ]
    row = row_of([RAG, LONG, LC, RAG, RAG], labels, PAIRS)
    assert row.measures[Measure.ACCURACY].value == pytest.approx(3 / 5)
    assert row.measures[Measure.BALANCED_ACCURACY].value == pytest.approx((1 + 1 / 2 + 1 / 2) / 3)


def test_a_route_nobody_answered_is_refused() -> None:
    two = [scored(case, row[0], None, row[2]) for case, row in zip(CASES, SCORES, strict=True)]
    with pytest.raises(StageError, match=r"router r: sends 5 cases to LONG_RAG.*answer.routes"):
        row_of([LONG] * 5, TWO_WAY, two)


def test_outcomes_name_their_columns() -> None:
    outcomes = join_outcomes({"r": decide([LONG] * 5)}, TWO_WAY, PAIRS, CASES)
    assert outcomes.routes == (RAG, LC, LONG)
    assert outcomes.qa[1].tolist() == [0, 1, 1]
    assert outcomes.qa_of("r").tolist() == [1, 1, 0, 1, 0.5]


def test_questions_that_some_routes_get_right() -> None:
    counts = RightCounts()
    for pair in PAIRS:
        counts.add(pair)
    assert counts.report() == {
        "cases": 5,
        "all": 0,
        "only RAG": 0,
        "only LONG_RAG": 1,
        "only LC": 2,
        "only LONG_RAG and LC": 1,
        "only RAG and LONG_RAG": 1,
        "none": 0,
    }


def test_a_failed_third_arm_is_missing() -> None:
    arms = {**PAIRS[0].arms, LONG: ArmScore(missing=MissingReason.CUT_OFF)}
    pair = PAIRS[0].model_copy(update={"arms": arms})
    with pytest.raises(StageError, match="not a score of every route"):
        row_of([RAG] * 5, TWO_WAY, [pair, *PAIRS[1:]])
