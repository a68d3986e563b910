"""32 guided prompts, and a trace schema whose strings are short enough for a slow machine."""

from __future__ import annotations

import copy
from typing import Any

from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import AnswerModel, DocumentProfile, RoutingCase
from prerouter.prompts.render import render_teacher
from prerouter.prompts.trace import ParsedTrace, parse_trace, trace_schema
from prerouter.recipe.teach import TeacherPrompt

COUNT = 32
MAX_MODEL_LEN = 3072
MODEL = "embedded:SmolLM2-135M-Instruct"


def cases(count: int = COUNT) -> list[RoutingCase]:
    return [_case(number) for number in range(count)]


def guided_requests(count: int = COUNT) -> list[GenerationRequest]:
    return [
        GenerationRequest(render_teacher(case, TeacherPrompt()), seed=number)
        for number, case in enumerate(cases(count))
    ]


def short_traces() -> Sampling:
    return Sampling(max_tokens=1000, temperature=0.7, top_p=0.95, schema=_short_schema())


def parse(completions: dict[int, Completion]) -> list[ParsedTrace]:
    """Every completion as a trace, in order; the first that is none raises."""
    assert sorted(completions) == list(range(len(completions)))
    return [
        parse_trace(completions[index].text, completions[index].finish_reason)
        for index in sorted(completions)
    ]


def _case(number: int) -> RoutingCase:
    # Two answering models a question, as a recipe crosses them in.
    question, model = divmod(number, 2)
    return RoutingCase(
        case_id=f"case-{number}",
        question_id=f"question-{question}",
        group_id=f"document-{question}",
        question=f"Who repaired bridge number {question} after the flood, and in which year?",
        task_type="location",
        document=DocumentProfile(
            document_id=f"document-{question}",
            title=f"Report of the bridge office, volume {question}",
            type="report",
            tokens=9_000 + 1_500 * question,
            head="The bridge office was founded after the flood, and has kept a book since.",
        ),
        answer_model=AnswerModel(name=("small-1.5b", "large-70b")[model], context_window=32_768),
    )


def _short_schema() -> dict[str, Any]:
    schema = copy.deepcopy(trace_schema())
    for value in schema["properties"].values():
        if "maxLength" in value:
            value["maxLength"] = 24
    return schema
