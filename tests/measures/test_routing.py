from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, balanced_accuracy_score, recall_score

from prerouter.core.errors import CombinedError, PrerouterError
from prerouter.core.records import (
    AnswerModel,
    ArmScore,
    Decision,
    DecisionFailure,
    DocumentProfile,
    Label,
    MissingReason,
    PairedScore,
    Route,
    RoutingCase,
)
from prerouter.measures.routing import POOLED, Measure, RoutingRow, routing_table

RAG, LC = Route.RAG, Route.LC


def make_case(number: int, model: str = "m", group: str | None = None) -> RoutingCase:
    return RoutingCase(
        case_id=f"c{number}",
        question_id=f"q{number}",
        group_id=group or f"d{number}",
        question="Who?",
        document=DocumentProfile(document_id="d"),
        answer_model=AnswerModel(name=model),
    )


def pair(case: RoutingCase, rag: float | None, lc: float | None, **fields: object) -> PairedScore:
    arms = {
        route: ArmScore(score=score)
        if score is not None
        else ArmScore(missing=MissingReason.CALL_FAILED)
        for route, score in ((RAG, rag), (LC, lc))
    }
    return PairedScore.model_validate(
        {"case_id": case.case_id, "arms": arms, "judge": "token_f1"} | fields
    )


def label(case: RoutingCase, rag: float, lc: float) -> Label:
    return Label(case_id=case.case_id, route=LC if lc > rag else RAG, margin=lc - rag)


def decide(cases: Sequence[RoutingCase], routes: Sequence[Route | None]) -> list[Decision]:
    return [
        Decision(case_id=case.case_id, router="r", route=route)
        if route
        else Decision(case_id=case.case_id, router="r", failure=DecisionFailure.UNPARSABLE)
        for case, route in zip(cases, routes, strict=True)
    ]


# Five labelled cases and one whose LC arm is missing.
QA = [(0.2, 0.8), (0.5, 0.5), (0.9, 0.1), (0.0, 1.0), (0.6, 0.4)]
CASES = [make_case(number) for number in range(6)]
SCORES = [pair(case, *qa) for case, qa in zip(CASES, QA, strict=False)] + [
    pair(CASES[5], 0.5, None)
]
LABELS = [label(case, *qa) for case, qa in zip(CASES, QA, strict=False)]


def rows_of(decisions: dict[str, list[Decision]], **settings: object) -> dict[str, RoutingRow]:
    table = routing_table(decisions, LABELS, SCORES, CASES, resamples=200, **settings)  # type: ignore[arg-type]
    return {row.router: row for row in table if row.answer_model == POOLED}


def values(row: RoutingRow) -> dict[str, float | None]:
    return {measure.value: measured.value for measure, measured in row.measures.items()}


def test_the_measures_by_hand() -> None:
    # Labels are LC, RAG, RAG, LC, RAG; the case without a label goes to LC and counts nowhere.
    rows = rows_of({"r": decide(CASES, [LC, LC, RAG, RAG, RAG, LC])})
    always_rag, oracle = 2.2 / 5, 3.8 / 5
    qa = (0.8 + 0.5 + 0.9 + 0.0 + 0.6) / 5
    assert values(rows["r"]) == pytest.approx(
        {
            "qa": qa,
            "lc_rate": 2 / 5,
            "accuracy": 3 / 5,
            "balanced_accuracy": (1 / 2 + 2 / 3) / 2,
            "lc_recall": 1 / 2,
            "gap_recovered": (qa - always_rag) / (oracle - always_rag),
        }
    )
    row = rows["r"]
    assert (row.n, row.unlabelled, row.undecided, row.n_groups) == (5, 1, 0, 5)
    assert (row.collapsed, row.few_cases, row.scale) == (None, True, (0.0, 1.0))
    assert values(rows["oracle"]) == pytest.approx(
        {
            "qa": oracle,
            "lc_rate": 0.4,
            "accuracy": 1,
            "balanced_accuracy": 1,
            "lc_recall": 1,
            "gap_recovered": 1,
        }
    )


@pytest.mark.parametrize(("fallback", "qa", "lc_rate"), [(RAG, 2.8 / 5, 0.2), (LC, 3.8 / 5, 0.4)])
def test_an_undecided_case_takes_the_fallback_and_is_wrong(
    fallback: Route, qa: float, lc_rate: float
) -> None:
    routes = [LC, RAG, RAG, None, RAG, None]
    row = rows_of({"r": decide(CASES, routes)}, fallback=fallback)["r"]
    assert row.measures[Measure.QA].value == pytest.approx(qa)
    assert row.measures[Measure.LC_RATE].value == pytest.approx(lc_rate)
    assert row.measures[Measure.ACCURACY].value == pytest.approx(4 / 5)
    assert row.measures[Measure.LC_RECALL].value == pytest.approx(1 / 2)
    assert row.undecided == 1


def test_a_router_that_goes_one_way_is_named_as_collapsed() -> None:
    rows = rows_of(
        {
            "rag": decide(CASES, [RAG, RAG, None, RAG, RAG, LC]),
            "lc": decide(CASES, [LC] * 6),
            "both": decide(CASES, [LC, RAG, LC, LC, LC, LC]),
            "silent": decide(CASES, [None] * 6),
        }
    )
    assert [rows[name].collapsed for name in ("rag", "lc", "both", "silent")] == [
        RAG,
        LC,
        None,
        None,
    ]
    assert rows["silent"].measures[Measure.ACCURACY].value == 0.0
    assert rows["lc"].measures[Measure.BALANCED_ACCURACY].value == 0.5


def test_one_class_and_no_gap_are_none_in_words() -> None:
    easy = [label(CASES[0], 0.5, 0.5), label(CASES[1], 0.9, 0.1)]
    scores = [pair(CASES[0], 0.5, 0.5), pair(CASES[1], 0.9, 0.1)]
    table = routing_table({"r": decide(CASES[:2], [LC, LC])}, easy, scores, CASES[:2])
    row = table[-2]
    for measure in (Measure.BALANCED_ACCURACY, Measure.LC_RECALL):
        assert row.measures[measure].value is None
        assert row.measures[measure].note == "no case has LC as its ideal route"
    assert row.measures[Measure.GAP_RECOVERED].value is None
    assert "no better than always RAG" in (row.measures[Measure.GAP_RECOVERED].note or "")
    assert row.measures[Measure.QA].value == pytest.approx(0.3)


def test_no_label_at_all_is_none_and_not_zero() -> None:
    table = routing_table({"r": decide(CASES, [LC] * 6)}, [], SCORES, CASES)
    row = table[0]
    assert (row.n, row.unlabelled, row.collapsed) == (0, 6, None)
    assert {measured.note for measured in row.measures.values()} == {"no case has a label"}


def test_one_document_gives_values_and_no_interval() -> None:
    cases = [make_case(number, group="one") for number in range(5)]
    table = routing_table({"r": decide(cases, [LC] * 5)}, LABELS, SCORES[:5], cases)
    measured = table[-2].measures[Measure.QA]
    assert measured.value == pytest.approx(2.8 / 5)
    assert measured.interval is None
    assert "fewer than two" in (measured.note or "")


def test_resamples_without_an_lc_case_are_left_out_and_said() -> None:
    measured = rows_of({"r": decide(CASES, [LC, LC, RAG, RAG, RAG, LC])})["r"].measures
    recall = measured[Measure.LC_RECALL]
    assert recall.interval is not None
    assert recall.interval.left_out > 0
    assert str(recall.interval.left_out) in (recall.note or "")
    assert measured[Measure.QA].note is None


def random_table(n: int = 400) -> tuple[list[RoutingCase], list[PairedScore], list[Label]]:
    draw = random.Random(0)
    cases = [make_case(i, model=f"m{i % 2}", group=f"d{i % 23}") for i in range(n)]
    qa = [(draw.choice((0, 1, 2, 3, 4)), draw.choice((0, 1, 2, 3, 4))) for _ in cases]
    scores = [pair(case, *two, high=4.0) for case, two in zip(cases, qa, strict=True)]
    return cases, scores, [label(case, *two) for case, two in zip(cases, qa, strict=True)]


def test_against_scikit_learn_and_per_answer_model() -> None:
    cases, scores, labels = random_table()
    draw = random.Random(1)
    routes = [draw.choice((RAG, LC)) for _ in cases]
    table = routing_table({"r": decide(cases, routes)}, labels, scores, cases, seed=1)
    assert [(row.answer_model, row.router) for row in table] == [
        (model, router) for model in ("m0", "m1", POOLED) for router in ("r", "oracle")
    ]
    for row in table[::2]:
        inside = [
            i
            for i, case in enumerate(cases)
            if row.answer_model in (POOLED, case.answer_model.name)
        ]
        truth = [labels[i].route.value for i in inside]
        guess = [routes[i].value for i in inside]
        got = values(row)
        assert row.n == len(inside)
        assert got["accuracy"] == pytest.approx(accuracy_score(truth, guess))
        assert got["balanced_accuracy"] == pytest.approx(balanced_accuracy_score(truth, guess))
        assert got["lc_recall"] == pytest.approx(recall_score(truth, guess, pos_label="LC"))
        chosen = [scores[i].arms[routes[i]].score for i in inside]
        assert got["qa"] == pytest.approx(np.mean([score for score in chosen if score is not None]))
        for measured in row.measures.values():
            assert measured.interval is not None
            assert measured.value is not None
            assert measured.interval.low < measured.value < measured.interval.high


def test_the_seed_decides_and_the_order_of_files_does_not() -> None:
    cases, scores, labels = random_table()
    decisions = decide(cases, [RAG, LC] * 200)
    one = routing_table({"r": decisions}, labels, scores, cases, seed=4)
    shuffled = routing_table({"r": decisions[::-1]}, labels[::-1], scores[::-1], cases, seed=4)
    assert one == shuffled
    assert one != routing_table({"r": decisions}, labels, scores, cases, seed=5)


def test_routers_over_other_cases_are_an_error_in_words() -> None:
    full = decide(CASES, [LC] * 6)
    foreign = [*full, Decision(case_id="else", router="r", route=LC)]
    twice = [*full, full[0]]
    with pytest.raises(CombinedError) as caught:
        routing_table(
            {"short": full[1:], "foreign": foreign, "twice": twice, "oracle": full, "good": full},
            LABELS,
            SCORES,
            CASES,
        )
    lines = caught.value.lines
    assert len(lines) == 4
    assert "router short: has no decision for 1 (of 6 asked), c0 among them" in lines[0]
    assert "router foreign: has decisions for cases that are not asked for: 1" in lines[1]
    assert "router twice: has several decisions" in lines[2]
    assert "router oracle" in lines[3]


def test_a_label_without_scores_is_an_error() -> None:
    wrong = [*LABELS, Label(case_id="c5", route=LC, margin=0.1)]
    with pytest.raises(PrerouterError, match="1 cases have a label but not a score"):
        routing_table({"r": decide(CASES, [LC] * 6)}, wrong, SCORES, CASES)


def test_two_scales_or_judges_are_an_error() -> None:
    mixed = [*SCORES[:5], pair(CASES[5], 0.5, None, high=4.0)]
    with pytest.raises(PrerouterError, match="several judges or scales"):
        routing_table({"r": decide(CASES, [LC] * 6)}, LABELS, mixed, CASES)


@pytest.mark.parametrize("name", ["all", "None", "pooled"])
def test_no_answer_model_is_taken_for_the_pooled_rows(name: str) -> None:
    cases = [make_case(0, model=name), make_case(1, model="m")]
    table = routing_table({"r": decide(cases, [LC, LC])}, LABELS[:2], SCORES[:2], cases)
    assert [(row.answer_model, row.n) for row in table if row.router == "r"] == [
        (name, 1),
        ("m", 1),
        (POOLED, 2),
    ]


def test_what_the_cases_without_a_label_lack_is_counted_by_route_and_reason() -> None:
    cases = [make_case(number, model=f"m{number % 2}") for number in range(6)]
    failed, not_given = MissingReason.CALL_FAILED, MissingReason.NOT_GIVEN
    scores = [
        pair(cases[0], 0.2, 0.8),
        pair(cases[1], 0.5, 0.5),
        pair(cases[2], None, 0.5),
        pair(cases[3], None, None),
        pair(cases[4], 0.5, None),
    ]
    table = routing_table({"r": decide(cases, [LC] * 6)}, LABELS[:2], scores, cases)
    assert {row.answer_model: row.missing_arms for row in table if row.router == "r"} == {
        "m0": {RAG: {failed: 1}, LC: {failed: 1}},
        # Nobody scored the last case.
        "m1": {RAG: {failed: 1, not_given: 1}, LC: {failed: 1, not_given: 1}},
        POOLED: {RAG: {failed: 2, not_given: 1}, LC: {failed: 2, not_given: 1}},
    }
    assert [RoutingRow.model_validate_json(row.model_dump_json()) for row in table] == table


@pytest.mark.parametrize("bound", [1.7e308, 1e307])
def test_a_scale_whose_scores_add_up_to_no_number_is_an_error(bound: float) -> None:
    scores = [pair(case, -bound, bound, low=-bound, high=bound) for case in CASES]
    labels = [Label(case_id=case.case_id, route=LC, margin=1) for case in CASES]
    with pytest.raises(PrerouterError, match=r"scores on a scale of -1.* add up to no number"):
        routing_table({"r": decide(CASES, [LC] * 6)}, labels, scores, CASES)


def test_a_wide_scale_that_can_be_added_is_measured() -> None:
    scores = [pair(case, -1e300, 1e300, low=-1e300, high=1e300) for case in CASES]
    labels = [Label(case_id=case.case_id, route=LC, margin=2e300) for case in CASES]
    table = routing_table({"r": decide(CASES, [LC] * 6)}, labels, scores, CASES)
    assert {row.measures[Measure.QA].value for row in table} == {1e300}
    assert {row.measures[Measure.GAP_RECOVERED].value for row in table} == {1.0}


def test_few_cases_are_flagged() -> None:
    decisions = {"r": decide(CASES, [LC] * 6)}
    assert rows_of(decisions, min_cases=6)["r"].few_cases
    assert not rows_of(decisions, min_cases=5)["r"].few_cases
