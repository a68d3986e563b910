"""What goes over the wire: the cases that a client asks about, and what it is told, as JSON.

A document's body is never part of a request: a field that isn't named here is refused.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import Discriminator, Field, Tag, TypeAdapter

from prerouter.core.records import (
    AnswerModel,
    Count,
    Decision,
    DocumentProfile,
    Identifier,
    RagConfig,
    Rationale,
    Record,
    Route,
    RoutingCase,
    StudentMode,
)
from prerouter.sources.text_files import head_of

MAX_CASES = 256
"""Cases of one request at most."""


MAX_BODY_BYTES = 1_000_000
"""A request's body at most."""
MAX_QUESTION = 20_000
MAX_SHORT_TEXT = 1_000
"""Characters of a title or a type at most. All of it stands in the prompt."""

_ShortText = Annotated[str, Field(max_length=MAX_SHORT_TEXT)]


class AskedDocument(DocumentProfile):
    """A document's profile, whose identifier may be left out: nothing is decided by it."""

    document_id: Identifier = "document"
    title: _ShortText | None = None
    type: _ShortText | None = None


class AskedCase(Record):
    """One decision to take. What is left out is unknown to the router; `rag` left out is the
    retrieval that the router was trained for."""

    case_id: Annotated[Identifier | None, Field(description="comes back with the decision")] = None
    question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION)]
    task_type: _ShortText | None = None
    document: AskedDocument = AskedDocument()
    answer_model: AnswerModel
    rag: RagConfig | None = None


class AskedCases(Record):
    """Several decisions to take."""

    cases: Annotated[tuple[AskedCase, ...], Field(min_length=1, max_length=MAX_CASES)]


def _kind(asked: Any) -> str:
    several = "cases" in asked if isinstance(asked, dict) else isinstance(asked, AskedCases)
    return "cases" if several else "case"


REQUEST: TypeAdapter[AskedCase | AskedCases] = TypeAdapter(
    Annotated[
        Annotated[AskedCase, Tag("case")] | Annotated[AskedCases, Tag("cases")],
        Discriminator(_kind),
    ]
)
"""The body of `POST /v1/route`: one case, or `{"cases": [...]}`."""


class FallbackReason(StrEnum):
    """Why the fallback route was answered: a `DecisionFailure`, or no decision in time."""

    CALL_FAILED = "call_failed"
    CUT_OFF = "cut_off"
    UNPARSABLE = "unparsable"
    TOO_LONG = "too_long"
    TIMEOUT = "timeout"


class RouterIdentity(Record):
    """Which router decided. `checkpoint` is the sha256 of its weights, where it has some."""

    name: Identifier
    checkpoint: str | None = None


class Routed(Record):
    """The answer to one case. There is always a route: `fallback` tells that it is the configured
    one because the router gave none, and `fallback_reason` why.

    Tokens and seconds are the router's own, as in `Decision`.
    """

    case_id: Identifier | None = None
    route: Route
    fallback: bool = False
    fallback_reason: FallbackReason | None = None
    p_lc: Annotated[float, Field(ge=0, le=1)] | None = None
    rationale: Rationale | None = None
    router: RouterIdentity
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0


class RoutedCases(Record):
    """The answers to several cases, in their order."""

    decisions: tuple[Routed, ...]


class Refusal(Record):
    """Why a request was refused, in one line."""

    error: str


class Health(Record):
    """What runs here, and whether it decides. `stalled`: the batch in hand takes longer than the
    time that a request may wait."""

    status: Literal["ready", "stalled"]
    router: RouterIdentity
    mode: StudentMode | None = None
    fallback: Route
    head_characters: Annotated[Count, Field(description="of a document's head, as trained on")]
    rag: Annotated[RagConfig, Field(description="what retrieval it was trained for")]
    waiting: Annotated[Count, Field(description="cases in the queue")]


def to_case(asked: AskedCase, name: str, rag: RagConfig, head_characters: int) -> RoutingCase:
    """The routing case called `name`. Its head is cut and cleaned as the heads of training were."""
    head = asked.document.head
    document = asked.document.model_dump() | {"head": head and head_of(head, head_characters)}
    return RoutingCase(
        case_id=name,
        question_id=name,
        group_id=asked.document.document_id,
        question=asked.question,
        task_type=asked.task_type,
        document=DocumentProfile.model_validate(document),
        answer_model=asked.answer_model,
        rag=asked.rag or rag,
    )


def to_asked(case: RoutingCase) -> AskedCase:
    """The case as a client sends it."""
    return AskedCase(
        case_id=case.case_id,
        question=case.question,
        task_type=case.task_type,
        document=AskedDocument.model_validate(case.document.model_dump()),
        answer_model=case.answer_model,
        rag=case.rag,
    )


def routed(
    decision: Decision | None, case_id: str | None, fallback: Route, router: RouterIdentity
) -> Routed:
    """What the client is told of a decision; None is one that did not come in time."""
    if decision is None:
        return Routed(
            case_id=case_id,
            route=fallback,
            fallback=True,
            fallback_reason=FallbackReason.TIMEOUT,
            router=router,
        )
    failure = decision.failure
    return Routed(
        case_id=case_id,
        route=decision.route or fallback,
        fallback=failure is not None,
        fallback_reason=FallbackReason(failure.value) if failure else None,
        p_lc=decision.p_lc,
        rationale=decision.rationale,
        router=router,
        prompt_tokens=decision.prompt_tokens,
        completion_tokens=decision.completion_tokens,
        seconds=decision.seconds,
    )
