from __future__ import annotations

import pytest

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.records import AnswerModel, DocumentProfile, Rationale, Reference, Route
from prerouter.measures.breakdowns import (
    BreakdownKey,
    breakdown,
    key_values,
    largest_regrets,
    routing_errors,
)
from prerouter.measures.outcomes import join_outcomes
from prerouter.measures.routing import Measure, routing_table
from tests.measures.matched import evaluation

# Ideal routes: L R R L R R. Errors of r: c1 and c2 needlessly to LC, c3 to RAG; c5 is undecided.
MADE = evaluation(
    [(0.2, 0.8), (0.5, 0.5), (0.9, 0.1), (0.0, 1.0), (0.6, 0.4), (0.3, 0.2)],
    {"r": "LLLRR?", "all": "LLLLLL"},
    "aabbcc",
    types=["novel", None, "paper", "novel", "paper", None],
)
LEVELS = ["easy", "easy", "hard", "hard", "easy", ""]
REFERENCES = [
    Reference(question_id=f"q{i}", level=level, context_length="32k" if i < 3 else None)
    for i, level in enumerate(LEVELS)
]


def test_the_values_of_a_key_by_case() -> None:
    def values(key: BreakdownKey) -> list[str | None]:
        return list(key_values(key, MADE.cases, REFERENCES[:5]).values())

    assert values(BreakdownKey.DOCUMENT_TYPE) == ["novel", None, "paper", "novel", "paper", None]
    assert values(BreakdownKey.LEVEL) == [*LEVELS[:5], None]
    assert values(BreakdownKey.CONTEXT_LENGTH) == ["32k"] * 3 + [None] * 3
    assert values(BreakdownKey.ANSWER_MODEL) == ["m"] * 6
    assert values(BreakdownKey.TASK_TYPE) == [None] * 6


def test_without_context_lengths_documents_stand_in_bands_of_their_tokens() -> None:
    lengths = [0, 2_048, 2_049, 16_384, 100_000, None]
    cases = [
        case.model_copy(update={"document": DocumentProfile(document_id="d", tokens=tokens)})
        for case, tokens in zip(MADE.cases, lengths, strict=True)
    ]

    def values(references: list[Reference]) -> list[str | None]:
        return list(key_values(BreakdownKey.CONTEXT_LENGTH, cases, references).values())

    bands = ["2k", "2k", "4k", "16k", "128k", None]
    other = Reference(question_id="of another split", context_length="32k")
    assert values([]) == values([*REFERENCES[3:], other]) == bands
    # A source's own strata stand alone, where it has any.
    assert values(REFERENCES) == ["32k"] * 3 + [None] * 3


def test_a_breakdown_is_the_routing_table_of_each_value() -> None:
    rows = breakdown(
        BreakdownKey.DOCUMENT_TYPE,
        MADE.decisions,
        MADE.labels,
        MADE.scores,
        MADE.cases,
        REFERENCES,
        resamples=100,
    )
    assert [(row.value, row.row.router, row.row.n) for row in rows] == [
        (value, router, 2)
        for value in ("novel", "paper", None)
        for router in ("r", "all", "oracle")
    ]
    by = {(row.value, row.row.router): row.row.measures for row in rows}
    assert by["novel", "r"][Measure.ACCURACY].value == pytest.approx(1 / 2)
    assert by["paper", "r"][Measure.QA].value == pytest.approx((0.1 + 0.6) / 2)
    assert by[None, "r"][Measure.LC_RATE].value == pytest.approx(1 / 2)
    assert by["paper", "all"][Measure.LC_RECALL].note == "no case has LC as its ideal route"
    assert "only 2 cases" in (rows[0].caution or "")


def test_one_value_for_all_gives_the_pooled_table() -> None:
    table = routing_table(MADE.decisions, MADE.labels, MADE.scores, MADE.cases, resamples=100)
    rows = breakdown(
        BreakdownKey.ANSWER_MODEL,
        MADE.decisions,
        MADE.labels,
        MADE.scores,
        MADE.cases,
        REFERENCES,
        resamples=100,
    )
    assert [row.row for row in rows] == table[3:]


def test_a_breakdown_over_other_cases_is_refused() -> None:
    decisions = {"r": MADE.decisions["r"], "short": MADE.decisions["all"][1:]}
    with pytest.raises(CombinedError, match="router short: has no decision for 1"):
        breakdown(BreakdownKey.LEVEL, decisions, MADE.labels, MADE.scores, MADE.cases, REFERENCES)


def test_over_conservative_errors_overall_and_by_level() -> None:
    levels = key_values(BreakdownKey.LEVEL, MADE.cases, REFERENCES)
    overall, easy, hard, unknown = routing_errors(MADE.outcomes(), "r", levels, resamples=100)
    assert (overall.overall, overall.n, overall.errors, overall.over_conservative) == (
        True,
        6,
        3,
        2,
    )
    assert overall.share.value == pytest.approx(2 / 3)
    assert overall.undecided == 1
    assert (easy.value, easy.n, easy.errors, easy.share.value) == ("easy", 3, 1, 1.0)
    assert (hard.value, hard.n, hard.errors, hard.share.value) == ("hard", 2, 2, 0.5)
    assert (unknown.value, unknown.overall, unknown.undecided) == (None, False, 1)
    assert (unknown.errors, unknown.share.value, unknown.share.note) == (0, None, "n/a: no error")
    assert "only 3 errors" in (overall.caution or "")


def test_resamples_without_an_error_are_left_out_and_said() -> None:
    share = routing_errors(
        MADE.outcomes(), "r", dict.fromkeys(("c0", "c1", "c2", "c3", "c4", "c5"))
    )[0].share
    assert share.interval is not None
    assert share.interval.left_out > 0
    assert str(share.interval.left_out) in (share.note or "")


def test_an_undecided_case_is_no_error_of_either_kind() -> None:
    outcomes = evaluation([(0.0, 1.0), (1.0, 0.0)], {"r": "?L"}).outcomes()
    overall = routing_errors(outcomes, "r", {"c0": None, "c1": None}, resamples=100)[0]
    assert (overall.undecided, overall.errors, overall.over_conservative) == (1, 1, 1)


def test_a_router_that_sends_all_to_lc_errs_on_one_side_only() -> None:
    rows = routing_errors(MADE.outcomes(), "all", {f"c{i}": "x" for i in range(6)}, resamples=100)
    assert [(row.errors, row.over_conservative) for row in rows] == [(4, 4), (4, 4)]


def test_of_three_routes_the_dearer_one_is_over_conservative() -> None:
    ideal = [Route.RAG, Route.LONG_RAG, Route.LC, Route.LONG_RAG]
    chosen = [Route.LONG_RAG, Route.LC, Route.LONG_RAG, Route.RAG]
    made = evaluation([(0.5, 0.5)] * 4, {"r": "RRRR"})
    scores = [
        score.model_copy(update={"arms": score.arms | {Route.LONG_RAG: score.arms[Route.RAG]}})
        for score in made.scores
    ]
    labels = [
        label.model_copy(update={"route": route})
        for label, route in zip(made.labels, ideal, strict=True)
    ]
    decisions = [
        each.model_copy(update={"route": route})
        for each, route in zip(made.decisions["r"], chosen, strict=True)
    ]
    outcomes = join_outcomes({"r": decisions}, labels, scores, made.cases)
    row = routing_errors(outcomes, "r", dict.fromkeys(outcomes.case_ids), resamples=100)[0]
    assert (row.errors, row.over_conservative) == (4, 2)


def test_rows_of_an_answer_model_that_nobody_learnt_from_are_flagged() -> None:
    cases = [
        case.model_copy(update={"answer_model": AnswerModel(name=f"m{i % 2}")})
        for i, case in enumerate(MADE.cases)
    ]
    rows = breakdown(
        BreakdownKey.ANSWER_MODEL,
        MADE.decisions,
        MADE.labels,
        MADE.scores,
        cases,
        REFERENCES,
        resamples=100,
        unseen_models=["m1"],
    )
    assert {(row.value, row.row.unseen) for row in rows} == {("m0", False), ("m1", True)}


def test_the_largest_regrets_carry_their_decision() -> None:
    rationale = Rationale(free_text="It fits.")
    decisions = [
        decision.model_copy(update={"rationale": rationale}) for decision in MADE.decisions["r"]
    ]
    worst = largest_regrets(MADE.outcomes(), "r", decisions, 5)
    assert [(r.case_id, r.chosen, r.ideal) for r in worst] == [
        ("c3", Route.RAG, Route.LC),
        ("c2", Route.LC, Route.RAG),
    ]
    assert [r.regret for r in worst] == pytest.approx([1.0, 0.8])
    assert worst[0].decision.rationale == rationale
    assert [r.case_id for r in largest_regrets(MADE.outcomes(), "r", decisions, 1)] == ["c3"]


def test_equal_regrets_stand_by_case_id_and_a_failure_counts_with_its_fallback() -> None:
    made = evaluation([(0.0, 1.0)] * 3, {"r": "R?R"})
    worst = largest_regrets(made.outcomes(), "r", made.decisions["r"][::-1], 3)
    assert [r.case_id for r in worst] == ["c0", "c1", "c2"]
    assert worst[1].decision.failure is not None
    assert worst[1].chosen is Route.RAG


def test_an_unknown_router_and_a_case_without_a_value_are_refused() -> None:
    with pytest.raises(StageError, match="no router x; one of r, all, oracle"):
        largest_regrets(MADE.outcomes(), "x", [], 1)
    with pytest.raises(StageError, match="no value is given for c0"):
        routing_errors(MADE.outcomes(), "r", {})
