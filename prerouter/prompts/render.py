"""From a routing case to the messages that a teacher or a student sees.

The renderer accepts a `RoutingCase` and nothing else: no label, score, gold answer or annotation
can get into a prompt, and no identifier is shown.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from importlib import resources
from typing import Literal

from jinja2 import Environment, FunctionLoader, StrictUndefined

from prerouter.core.records import Message, MetadataSetting, RoutingCase, StudentMode
from prerouter.prompts.encoding import encode_json
from prerouter.prompts.trace import trace_keys, trace_steps
from prerouter.recipe.profile import ProfileSection
from prerouter.recipe.teach import PromptPart, TeacherPrompt

PROMPT_VERSION = "1"
"""Raised with every change of what a prompt shows that no template tells."""

StudentForm = Literal["guided", "compact"]
PromptForm = Literal[
    "guided",
    "compact",
    "direct",
    "unconstrained",
    "profile",
    "answer_rag",
    "answer_lc",
    "verdict",
    "query_type",
    "judge_answer",
    "judge_abstention",
    "judge_claims",
    "judge_support",
]

_FILES: dict[PromptForm, tuple[str, ...]] = {
    "guided": ("guided.jinja", "case.jinja"),
    "compact": ("compact.jinja",),
    "direct": ("direct.jinja", "case.jinja"),
    "unconstrained": ("unconstrained.jinja", "case.jinja"),
    "profile": ("profile.jinja",),
    "answer_rag": ("answer_rag.jinja", "answer_rules.jinja", "question.jinja"),
    "answer_lc": ("answer_lc.jinja", "answer_rules.jinja", "question.jinja"),
    "verdict": ("verdict.jinja", "question.jinja"),
    "query_type": ("query_type.jinja", "question.jinja"),
    "judge_answer": ("judge_answer.jinja",),
    "judge_abstention": ("judge_abstention.jinja",),
    "judge_claims": ("judge_claims.jinja",),
    "judge_support": ("judge_support.jinja",),
}


@dataclass(frozen=True)
class ShownCase:
    """What a prompt shows of a case (Pre-Route, section 1: metadata m). None is unknown or hidden.

    Lengths are in tokens. `percent_of_window` is the document's length against the answering
    model's window; `percent_retrieved` the largest share of the document that the retrieved chunks
    can hold, were none to overlap. Both are percentages, whole where they are 1 or more.
    """

    question: str
    task_type: str | None
    document_title: str | None
    document_type: str | None
    document_tokens: int | None
    document_head: str | None
    answer_model: str
    context_window: int | None
    thinking: bool
    chunk_tokens: int
    overlap_tokens: int
    retrieved_chunks: int
    fits_window: bool | None
    percent_of_window: float | None
    percent_retrieved: float | None


def shown_case(case: RoutingCase, metadata: MetadataSetting) -> ShownCase:
    """The visible part of `case` under a metadata setting.

    `full` shows all; `head_only` hides title, document type and task type (what stays is known of
    any document: its length and head, and how it would be answered); `generated` shows the same
    fields as `full`, of a case whose title and types a model has inferred.
    """
    _check_is_case(case)
    described = metadata is not MetadataSetting.HEAD_ONLY
    document, model, rag = case.document, case.answer_model, case.rag
    tokens, window = document.tokens, model.context_window
    return ShownCase(
        question=case.question,
        task_type=_given(case.task_type) if described else None,
        document_title=_given(document.title) if described else None,
        document_type=_given(document.type) if described else None,
        document_tokens=tokens,
        document_head=_given(document.head),
        answer_model=model.name,
        context_window=window,
        thinking=model.thinking,
        chunk_tokens=rag.chunk_tokens,
        overlap_tokens=rag.overlap_tokens,
        retrieved_chunks=rag.top_k,
        fits_window=None if tokens is None or window is None else tokens <= window,
        percent_of_window=None if tokens is None or window is None else _percent(tokens, window),
        percent_retrieved=_percent(min(rag.top_k * rag.chunk_tokens, tokens), tokens)
        if tokens
        else None,
    )


def render_teacher(case: RoutingCase, prompt: TeacherPrompt) -> tuple[Message, ...]:
    """The teacher's prompt: guided, or one of the two controls (Pre-Route, section 1).

    Parts in `prompt.without` are left out together with their keys of the reply; the steps that
    stay are numbered anew, so that no gap shows.
    """
    return _render(prompt.paradigm, case, prompt.metadata, prompt.without)


def render_student(
    case: RoutingCase,
    form: StudentForm,
    metadata: MetadataSetting,
    mode: StudentMode = StudentMode.EXPLAIN,
) -> tuple[Message, ...]:
    """The student's prompt, the same at training and at every decision.

    `guided` is the teacher's whole guided prompt, as in the paper; `compact` holds the metadata and
    the form of the reply only. `mode` tells the student whether to write the six steps or to name
    the route at once (our own; the paper's student always writes them).
    """
    return _render(form, case, metadata, (), mode)


def render_profile(case: RoutingCase, section: ProfileSection) -> tuple[Message, ...]:
    """The prompt that infers title and types, which shows the question and the head alone."""
    _check_is_case(case)
    shown = {"question": case.question, "document_head": _given(case.document.head)}
    return fill_template(
        "profile",
        {
            "case": encode_json({name: text for name, text in shown.items() if text is not None}),
            "document_types": ", ".join(map(encode_json, section.document_types)),
            "task_types": ", ".join(map(encode_json, section.task_types)),
        },
    )


def prompt_hash(form: PromptForm, without: Sequence[PromptPart] = ()) -> str:
    """SHA-256 (hex) over the template sources of `form`, the parts left out and the version."""
    digest = hashlib.sha256(f"{PROMPT_VERSION}\0{form}\0{','.join(sorted(without))}".encode())
    for name in _FILES[form]:
        digest.update(f"\0{name}\0{_source(name)}".encode())
    return digest.hexdigest()


def _render(
    form: PromptForm,
    case: RoutingCase,
    metadata: MetadataSetting,
    without: Sequence[PromptPart],
    mode: StudentMode = StudentMode.EXPLAIN,
) -> tuple[Message, ...]:
    shown = shown_case(case, metadata)
    given = {name: value for name, value in asdict(shown).items() if value is not None}
    return fill_template(
        form,
        {
            "shown": shown,
            "case": encode_json(given),
            "steps": [step.value for step in trace_steps(without)],
            "keys": trace_keys(without),
            "decision_rules": "decision_rules" not in without,
            "reflection": "reflection" not in without,
            "explain": mode is StudentMode.EXPLAIN,
        },
    )


def fill_template(form: PromptForm, values: dict[str, object]) -> tuple[Message, ...]:
    """System and user turn of a template. What comes from strangers is JSON-encoded in `values`."""
    template = _environment().get_template(_FILES[form][0])
    context = template.new_context(values)
    return (
        Message(role="system", content="".join(template.blocks["system"](context)).strip()),
        Message(role="user", content="".join(template.blocks["user"](context)).strip()),
    )


def _check_is_case(case: RoutingCase) -> None:
    if type(case) is not RoutingCase:
        raise TypeError(f"a prompt shows a RoutingCase and nothing else, not {type(case).__name__}")


@cache
def _environment() -> Environment:
    environment = Environment(  # noqa: S701 -- plain text for a model, no HTML; data is JSON
        loader=FunctionLoader(_source),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data"] = encode_json
    return environment


def _source(name: str) -> str:
    return resources.files("prerouter.prompts").joinpath(name).read_text("utf-8")


def _given(text: str | None) -> str | None:
    return text if text and text.strip() else None


def _percent(part: int, whole: int) -> float:
    percent = 100 * part / whole
    return round(percent) if percent >= 1 else round(percent, 2)
