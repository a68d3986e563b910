"""What a query costs in all, by hand."""

from __future__ import annotations

import datetime

import pytest

from prerouter.core.records import (
    Answer,
    AnswerModel,
    Decision,
    DecisionFailure,
    DocumentProfile,
    RagConfig,
    Route,
    RoutingCase,
)
from prerouter.measures.query_cost import (
    Answers,
    CostRow,
    Spend,
    cost_rows,
    estimate_answer,
    query_spend,
)
from prerouter.recipe.prices import Price

from .test_routing import make_case

RAG, LC = Route.RAG, Route.LC
DAY = datetime.date(2026, 1, 1)
# USD for a million tokens: 1 and 2 for the reader, 10 and 20 for the student.
PRICES = {
    "m": Price(input=1, output=2, source="test", date=DAY),
    "student": Price(input=10, output=20, source="test", date=DAY),
}


def answer(case_id: str, route: Route, given: int | None, got: int = 10) -> Answer:
    return Answer(
        case_id=case_id,
        route=route,
        text="May.",
        prompt_tokens=given,
        completion_tokens=got,
        seconds=0.5 if route is RAG else 2.0,
    )


PAIR = {RAG: answer("c0", RAG, 1_000), LC: answer("c0", LC, 100_000)}


def spend(decision: Decision) -> dict[Spend, float | None]:
    return query_spend(decision, PAIR, PRICES, "m", RAG)


def test_a_router_that_calls_nobody_pays_the_answer_alone() -> None:
    assert spend(Decision(case_id="c0", router="r", route=LC)) == {
        Spend.CALLS: 1,
        Spend.INPUT: 100_000,
        Spend.OUTPUT: 10,
        Spend.SECONDS: 2.0,
        Spend.USD: pytest.approx(0.1 + 20e-6),
    }


def test_an_answer_that_stands_is_paid_once_and_one_that_is_dropped_too() -> None:
    kept = spend(Decision(case_id="c0", router="r", route=RAG, wrote=RAG))
    dropped = spend(Decision(case_id="c0", router="r", route=LC, wrote=RAG))
    assert (kept[Spend.CALLS], kept[Spend.INPUT]) == (1, 1_000)
    assert (dropped[Spend.CALLS], dropped[Spend.INPUT]) == (2, 101_000)
    assert dropped[Spend.SECONDS] == 2.5


def test_a_students_decision_has_the_students_price() -> None:
    decision = Decision(
        case_id="c0",
        router="r",
        route=RAG,
        model="student",
        calls=1,
        prompt_tokens=1_000,
        completion_tokens=500,
        seconds=0.25,
    )
    found = spend(decision)
    assert found[Spend.CALLS] == 2
    assert found[Spend.USD] == pytest.approx((1_000 * 10 + 500 * 20 + 1_000 * 1 + 10 * 2) / 1e6)
    assert found[Spend.SECONDS] == 0.75
    unpriced = spend(decision.model_copy(update={"model": "another"}))
    assert unpriced[Spend.USD] is None
    assert unpriced[Spend.INPUT] == found[Spend.INPUT]


def test_an_undecided_case_pays_the_fallback() -> None:
    undecided = Decision(
        case_id="c0",
        router="r",
        failure=DecisionFailure.UNPARSABLE,
        model="student",
        calls=1,
        prompt_tokens=200,
    )
    assert spend(undecided)[Spend.INPUT] == 1_200
    assert spend(undecided)[Spend.CALLS] == 2


def test_a_server_that_does_not_tell_its_tokens_costs_nothing_known() -> None:
    untold = Decision(case_id="c0", router="r", route=RAG, model="student", calls=1, seconds=0.25)
    found = spend(untold)
    assert (found[Spend.INPUT], found[Spend.OUTPUT], found[Spend.USD]) == (None, None, None)
    assert (found[Spend.CALLS], found[Spend.SECONDS]) == (2, 0.75)
    # One untold case of two is enough: a mean over the other would be that of other cases.
    cases = [make_case(0), make_case(1)]
    answers = {(f"c{i}", r): answer(f"c{i}", r, 1_000) for i in range(2) for r in (RAG, LC)}
    told = untold.model_copy(update={"case_id": "c1", "prompt_tokens": 500})
    (row,) = cost_rows({"r": [untold, told]}, answers, cases, PRICES, output_tokens=1, resamples=1)
    for each in (Spend.INPUT, Spend.OUTPUT, Spend.USD):
        assert row.measures[each].value is None
        assert "did not tell the tokens" in (row.measures[each].note or "")
    assert row.measures[Spend.CALLS].value == 2


@pytest.mark.parametrize("failure", [DecisionFailure.CALL_FAILED, DecisionFailure.TOO_LONG])
def test_a_call_that_gave_no_reply_takes_no_tokens(failure: DecisionFailure) -> None:
    found = spend(Decision(case_id="c0", router="r", failure=failure, model="student", calls=1))
    assert found[Spend.INPUT] == 1_000
    assert found[Spend.USD] == pytest.approx(1_000e-6 + 20e-6)


def rows(
    answers: Answers, routes: list[Route], cases: list[RoutingCase], **options: float
) -> CostRow:
    decisions = [
        Decision(case_id=case.case_id, router="r", route=route)
        for case, route in zip(cases, routes, strict=True)
    ]
    (row,) = cost_rows(
        {"r": decisions}, answers, cases, PRICES, output_tokens=100, resamples=200, **options
    )
    return row


def test_means_are_over_the_cases_whose_tokens_are_known() -> None:
    cases = [make_case(number) for number in range(3)]
    answers = {
        (a.case_id, a.route): a
        for a in (
            answer("c0", RAG, 1_000),
            answer("c0", LC, 5_000),
            answer("c1", RAG, 3_000),
            answer("c1", LC, 9_000),
            # Nobody counted these, and the document's length isn't known either.
            answer("c2", RAG, None),
            answer("c2", LC, None),
        )
    }
    row = rows(answers, [RAG, LC, LC], cases)
    assert (row.n, row.unknown, row.estimated) == (2, 1, 0)
    measured = row.measures[Spend.INPUT]
    assert measured.value == 5_000
    assert measured.interval is not None
    assert (measured.interval.low, measured.interval.high) == (1_000, 9_000)


def test_what_nobody_counted_is_estimated_and_told() -> None:
    document = DocumentProfile(document_id="d", tokens=50_000)
    case = make_case(0).model_copy(
        update={
            "document": document,
            "answer_model": AnswerModel(name="m", context_window=32_000),
            "rag": RagConfig(chunk_tokens=600, overlap_tokens=100, top_k=5),
        }
    )
    row = rows({}, [LC], [case])
    assert (row.n, row.unknown, row.estimated) == (1, 0, 1)
    # The window, less the reply.
    assert row.measures[Spend.INPUT].value == 31_900
    assert row.measures[Spend.OUTPUT].value == 100
    assert row.measures[Spend.SECONDS].value is None
    assert "timed" in (row.measures[Spend.SECONDS].note or "")
    rag = estimate_answer(case, RAG, 100)
    assert rag is not None
    assert rag.prompt_tokens == 3_000
    assert estimate_answer(case, Route.LONG_RAG, 100) is None


def test_where_nothing_is_known_nothing_is_told() -> None:
    row = rows({}, [LC], [make_case(0)])
    assert (row.n, row.unknown) == (0, 1)
    for measured in row.measures.values():
        assert measured.value is None
        assert measured.note
