from __future__ import annotations

import json
from collections import Counter
from typing import Any

from prerouter.core.records import Rationale, Route, Split, Step, Trace
from prerouter.recipe.recipe import Recipe
from prerouter.stages.filter import STAGE, FilterReason, Sieve, balance

LABELS = {"a": Route.RAG, "b": Route.LC, "held": Route.RAG}
SIDES = {"a": Split.TRAIN, "b": Split.VALIDATION, "held": Split.TEST, "c": Split.TRAIN}


def trace(case: str, decision: Route, sample: int = 0, text: str = "local") -> Trace:
    return Trace(
        case_id=case,
        teacher="teacher",
        sample=sample,
        rationale=Rationale(steps={Step.DISTRIBUTION: text}),
        decision=decision,
        prompt_hash="0",
    )


def reasons(traces: list[Trace], per_case: int = 1) -> list[FilterReason | None]:
    sieve = Sieve(LABELS, SIDES, per_case)
    return [sieve.reason(trace) for trace in traces]


def test_kept_are_the_traces_that_end_in_the_ideal_route() -> None:
    traces = [trace("a", Route.RAG), trace("b", Route.RAG), trace("b", Route.LC, 1)]
    assert reasons(traces) == [None, FilterReason.DISAGREES, None]


def test_test_cases_unlabelled_and_unknown_cases_are_refused() -> None:
    traces = [trace("held", Route.RAG), trace("c", Route.RAG), trace("z", Route.RAG)]
    assert reasons(traces) == [
        FilterReason.TEST_CASE,
        FilterReason.NO_LABEL,
        FilterReason.UNKNOWN_CASE,
    ]


def test_of_a_case_at_most_k_distinct_traces_are_kept() -> None:
    traces = [
        trace("a", Route.RAG, 0, "one"),
        trace("a", Route.RAG, 1, "one"),
        trace("a", Route.LC, 2, "two"),
        trace("a", Route.RAG, 3, "two"),
        trace("a", Route.RAG, 4, "three"),
    ]
    assert reasons(traces, per_case=2) == [
        None,
        FilterReason.SAME_TRACE,
        FilterReason.DISAGREES,
        None,
        FilterReason.ENOUGH_FOR_CASE,
    ]


def test_balance_leaves_out_a_seeded_choice_of_the_larger_route() -> None:
    kept = {f"rag-{n}": Route.RAG for n in range(30)} | {f"lc-{n}": Route.LC for n in range(10)}
    left_out = balance(kept, seed=3)
    rest = Counter(route for key, route in kept.items() if key not in left_out)
    assert rest == {Route.RAG: 10, Route.LC: 10}
    assert left_out == balance(dict(reversed(kept.items())), seed=3)
    assert left_out != balance(kept, seed=4)


def test_a_trace_whose_key_stands_twice_is_counted() -> None:
    traces = [trace("a", Route.RAG, 0, "one"), trace("a", Route.RAG, 0, "two")]
    assert reasons(traces, per_case=2) == [None, FilterReason.SAME_KEY]


def test_a_student_that_is_to_be_trained_is_part_of_what_was_filtered_for() -> None:
    data: dict[str, Any] = {
        "name": "run",
        "cases": {"source": "table", "path": "mine.csv"},
        "teach": {"teacher": "guideline"},
        "filter": {},
        "train": {"model": "tiny"},
    }
    with_student, alone = (
        Recipe.model_validate(data | {"train": train}) for train in (data["train"], None)
    )
    sections = [STAGE.sections(recipe) for recipe in (with_student, alone)]
    assert sections[0]["filter"] == sections[1]["filter"]
    assert sections[0] != sections[1]
    json.dumps([each["train.form"] for each in sections])


def test_a_trace_that_the_student_can_not_learn_is_refused() -> None:
    form = (frozenset({Step.DISTRIBUTION, Step.EFFICIENCY}), False)
    sieve = Sieve(LABELS, SIDES, per_case=1, form=form)
    assert sieve.reason(trace("a", Route.RAG)) is FilterReason.WRONG_FORM
