from __future__ import annotations

from collections.abc import Generator, Sequence

import pytest

from prerouter.core.protocols import Completion, EngineInfo, GenerationRequest, Sampling
from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Message,
    Reject,
    Route,
    RoutingCase,
    Split,
    SplitAssignment,
    Trace,
)
from prerouter.prompts.trace import format_trace
from prerouter.recipe.teach import TeachSection
from prerouter.routers.guideline import judge
from prerouter.stages.teach import cases_to_teach, engine_traces, guideline_traces, request_seed


def case(number: int) -> RoutingCase:
    return RoutingCase(
        case_id=f"case-{number}",
        question_id=f"question-{number}",
        group_id="document",
        question="Compare the two harbours.",
        document=DocumentProfile(document_id="document", tokens=9000),
        answer_model=AnswerModel(name="reader", context_window=16384),
    )


GOOD = format_trace(*judge(case(0)))


class Scripted:
    """An engine that answers with what it was given, last request first."""

    def __init__(self, completions: Sequence[Completion]) -> None:
        self.completions = completions
        self.requests: list[GenerationRequest] = []
        self.sampling: Sampling | None = None
        self.closed = False

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(kind="scripted", model="scripted-teacher")

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return len(messages)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        self.requests, self.sampling = list(requests), sampling
        try:
            for index in reversed(range(len(requests))):
                yield index, self.completions[index]
        finally:
            self.closed = True

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[list[float]]:
        return [[0.0] * len(choices) for _ in requests]


def section(**changes: object) -> TeachSection:
    engine = {"kind": "openai", "model": "m", "base_url": "http://127.0.0.1:1/v1"}
    return TeachSection.model_validate({"engine": engine, **changes})


def taught(completions: list[Completion], **changes: object) -> tuple[list[object], Scripted]:
    engine = Scripted(completions)
    due = [(case(number), 0) for number in range(len(completions))]
    return list(engine_traces(due, engine, section(**changes), seed=3)), engine


def test_a_whole_trace_is_kept_with_its_tokens() -> None:
    [trace], engine = taught([Completion(GOOD, "stop", 1200, 130)])
    assert isinstance(trace, Trace)
    assert (trace.teacher, trace.prompt_tokens, trace.completion_tokens) == (
        "scripted-teacher",
        1200,
        130,
    )
    assert (trace.rationale, trace.decision) == judge(case(0))
    assert engine.sampling is not None
    assert engine.sampling.schema is not None


@pytest.mark.parametrize(
    ("completion", "reason", "transient"),
    [
        (Completion(GOOD[:40], "length"), "cut_off", False),
        (Completion("<think>so LC is better", "stop"), "unclosed_thinking", False),
        (Completion("I would say LC.", "stop"), "no_json", False),
        (Completion("", "stop"), "empty", False),
        (Completion("", "error", error="429"), "call_failed", True),
        (Completion("", "error", error="too long", passing=False), "call_failed", False),
    ],
)
def test_what_is_no_trace_is_a_reject_with_its_reason(
    completion: Completion, reason: str, transient: bool
) -> None:
    results, _ = taught([Completion(GOOD, "stop"), completion, Completion(GOOD, "stop")])
    assert [type(result) for result in results] == [Trace, Reject, Trace]
    reject = results[1]
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.transient) == (reason, transient)
    assert reject.key == "case-1|0"


def test_traces_belong_to_their_cases_in_whatever_order_they_come() -> None:
    results, _ = taught([Completion(GOOD, "stop") for _ in range(4)])
    assert [result.case_id for result in results if isinstance(result, Trace)] == [
        "case-3",
        "case-2",
        "case-1",
        "case-0",
    ]


def test_thinking_is_kept_apart_and_never_decides() -> None:
    other = GOOD.replace('"decision": "LC"', '"decision": "RAG"')
    [trace], _ = taught([Completion(f"<think>{other}</think>{GOOD}", "stop")], thinking=True)
    assert isinstance(trace, Trace)
    assert trace.decision is Route.LC
    assert trace.reasoning == other


def test_every_sample_of_every_case_has_a_seed_of_its_own() -> None:
    seeds = {request_seed(1, case(number), sample) for number in range(50) for sample in range(8)}
    assert len(seeds) == 400
    assert request_seed(1, case(3), 2) == request_seed(1, case(3), 2)
    assert request_seed(1, case(3), 2) != request_seed(2, case(3), 2)


def test_closing_the_stage_closes_the_engine() -> None:
    engine = Scripted([Completion(GOOD, "stop")] * 3)
    traces = engine_traces([(case(n), 0) for n in range(3)], engine, section(), seed=3)
    next(traces)
    traces.close()
    assert engine.closed


def test_the_guideline_names_itself() -> None:
    [trace] = guideline_traces([(case(0), 0)])
    assert trace.teacher == "guideline"
    assert trace.prompt_tokens is None


def test_only_the_splits_asked_for_are_taught() -> None:
    sides = (Split.TRAIN, Split.VALIDATION, Split.TEST)
    assignments = [
        SplitAssignment(question_id=f"question-{n}", group_id="g", split=side)
        for n, side in enumerate(sides)
    ]
    found = cases_to_teach([case(n) for n in range(3)], assignments, (Split.TRAIN,))
    assert [taught.case_id for taught in found] == ["case-0"]
