"""The report of a set of traces, against values worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from prerouter.core.records import Rationale, Route, Step, Trace
from prerouter.measures.traces import (
    SAME_KEY,
    Agreement,
    Distinct,
    JudgedTrace,
    Lengths,
    Samples,
    Source,
    lengths,
    report_traces,
    trace_digest,
    trace_text,
)

LC, RAG = Route.LC, Route.RAG


def trace(
    case: str,
    decision: Route,
    sample: int = 0,
    text: str = "",
    teacher: str = "teacher",
    tokens: tuple[int, int] | None = None,
) -> Trace:
    return Trace(
        case_id=case,
        teacher=teacher,
        sample=sample,
        rationale=Rationale(steps={Step.DISTRIBUTION: text} if text else {}),
        decision=decision,
        prompt_tokens=tokens[0] if tokens else None,
        completion_tokens=tokens[1] if tokens else None,
        prompt_hash="0",
    )


def judged() -> Iterator[JudgedTrace]:
    """Two labelled cases with three samples each, one without a label."""
    groups = {"level": "location", "teacher": "teacher"}
    yield JudgedTrace(trace("a", LC, 0, tokens=(100, 10)), LC, None, groups | {"sample": "0"})
    yield JudgedTrace(
        trace("a", LC, 1, tokens=(100, 30)), LC, "enough_for_case", groups | {"sample": "1"}
    )
    yield JudgedTrace(
        trace("a", RAG, 10, tokens=(100, 20)), LC, "disagrees", groups | {"sample": "10"}
    )
    other = {"level": "reasoning", "teacher": "teacher"}
    yield JudgedTrace(trace("b", RAG, 0), RAG, None, other | {"sample": "0"})
    yield JudgedTrace(trace("b", RAG, 1), RAG, "same_trace", other | {"sample": "1"})
    yield JudgedTrace(trace("c", LC, 0), None, "no_label", other | {"sample": "0"})


def test_yields_count_what_agrees_and_what_is_kept_of_what_has_a_label() -> None:
    report = report_traces(judged(), {})
    found = {(y.group, y.value): (y.agree, y.kept, y.of) for y in report.yields}
    assert found == {
        ("level", "location"): (2, 1, 3),
        ("level", "reasoning"): (2, 1, 2),
        ("sample", "0"): (2, 2, 2),
        ("sample", "1"): (2, 0, 2),
        ("sample", "10"): (0, 0, 1),
        ("teacher", "teacher"): (4, 2, 5),
    }
    assert report.yields_by("teacher")[0].share == pytest.approx(0.8)
    assert [y.value for y in report.yields_by("sample")] == ["0", "1", "10"]


def test_what_was_refused_and_what_was_never_a_trace_are_counted_apart() -> None:
    report = report_traces(judged(), {"cut_off": 4, "call_failed": 2})
    assert (report.traces, report.kept) == (6, 2)
    assert report.refused == {
        "disagrees": 1,
        "enough_for_case": 1,
        "no_label": 1,
        "same_trace": 1,
    }
    assert report.failures == {"call_failed": 2, "cut_off": 4}
    assert report.sources == (Source(teacher="teacher", prompt_hash="0", traces=6),)


def test_agreement_is_over_the_cases_with_two_samples() -> None:
    # a: LC LC RAG, 1 of 3 pairs; b: RAG RAG, 1 of 1; c has one sample.
    agreement = report_traces(judged(), {}).agreement
    assert (agreement.cases, agreement.unanimous) == (2, 1)
    assert agreement.mean_pairwise == pytest.approx(2 / 3)


def test_a_line_that_stands_twice_is_one_sample() -> None:
    twice = trace("a", LC, 0, "one two three four five six", tokens=(100, 10))
    other = trace("a", RAG, 1, tokens=(100, 30))
    report = report_traces(
        [
            JudgedTrace(twice, LC, None, {"all": "all"}),
            JudgedTrace(twice, None, SAME_KEY, {"all": "all"}),
            JudgedTrace(other, LC, "disagrees", {"all": "all"}),
        ],
        {},
    )
    assert (report.traces, report.kept, report.refused) == (3, 1, {"disagrees": 1, "same_key": 1})
    assert report.agreement == Agreement(cases=1, unanimous=0, mean_pairwise=0.0)
    assert report.distinct == Distinct(samples=2, distinct=2)
    assert report.near_repeats.compared == 1
    assert report.completion_tokens is not None
    assert (report.completion_tokens.n, report.completion_tokens.median) == (2, 20)


def test_no_two_samples_are_no_agreement_of_one() -> None:
    samples = Samples()
    samples.add(trace("a", LC))
    assert samples.agreement == Agreement(cases=0, unanimous=0, mean_pairwise=None)


def test_samples_of_two_teachers_are_not_samples_of_one() -> None:
    samples = Samples()
    samples.add(trace("a", LC, teacher="one"))
    samples.add(trace("a", RAG, teacher="two"))
    assert samples.agreement.cases == 0
    assert samples.distinct == Distinct(samples=2, distinct=2)


def test_identical_samples_of_a_case_are_counted() -> None:
    samples = Samples()
    for number, text in enumerate(("one", "one", "two", "one")):
        samples.add(trace("a", LC, number, text))
    samples.add(trace("b", LC, 0, "one"))
    assert samples.distinct == Distinct(samples=5, distinct=3)


def test_two_decisions_by_the_same_words_are_two_traces() -> None:
    assert trace_digest(trace("a", LC, 0, "x")) != trace_digest(trace("a", RAG, 1, "x"))
    assert trace_digest(trace("a", LC, 0, "x")) == trace_digest(trace("b", LC, 5, "x"))


def test_lengths_are_of_those_that_were_measured() -> None:
    report = report_traces(judged(), {})
    assert report.prompt_tokens == Lengths(n=3, min=100, median=100, p95=100, max=100)
    # 10, 20, 30: the 95th percentile lies nine tenths of the way from 20 to 30.
    assert report.completion_tokens == Lengths(n=3, min=10, median=20, p95=29, max=30)


def test_lengths_that_nobody_measured_are_no_zeros() -> None:
    assert lengths([]) is None
    report = report_traces([JudgedTrace(trace("a", LC), LC, None, {})], {})
    assert report.prompt_tokens is None


def words(*changed: int) -> str:
    """44 words: 40 runs of five, of which five go with each word that is changed inside."""
    return " ".join(f"x{number}" if number in changed else f"w{number}" for number in range(44))


def test_near_repeats_are_those_that_reach_over_cases() -> None:
    texts = [
        ("a", words()),
        ("b", words(20)),  # 35 of 45 runs in common: 0.78, another group
        ("c", words(0)),  # 39 of 41 with a: alike
        ("d", "nothing of all this stands anywhere else"),
        ("d", "nothing of all this stands anywhere else"),  # of one case
        ("e", ""),  # a decision alone
    ]
    report = report_traces(
        (
            JudgedTrace(trace(case, LC, number, text), LC, None, {})
            for number, (case, text) in enumerate(texts)
        ),
        {},
    )
    near = report.near_repeats
    assert (near.compared, near.repeated, near.groups, near.largest) == (5, 2, 1, 2)


def test_case_and_punctuation_make_no_new_trace() -> None:
    texts = ["It fits the window: so read it.", "it fits the WINDOW, so read it"]
    report = report_traces(
        (
            JudgedTrace(trace(str(number), LC, 0, text), LC, None, {})
            for number, text in enumerate(texts)
        ),
        {},
    )
    assert report.near_repeats.repeated == 2
    assert report.distinct.distinct == 2


def test_the_text_of_a_trace_is_all_it_says() -> None:
    rationale = Rationale(
        steps={Step.EFFICIENCY: "cheap"}, reflection="again", free_text="and freely"
    )
    full = trace("a", LC).model_copy(update={"rationale": rationale, "reasoning": "hidden"})
    assert trace_text(full) == "cheap\nagain\nand freely"


def test_nothing_at_all_is_a_report_too() -> None:
    report = report_traces([], {"empty": 3})
    assert (report.traces, report.kept, report.yields) == (0, 0, ())
    assert report.failures == {"empty": 3}
    assert report.near_repeats.compared == 0
