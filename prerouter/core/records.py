"""Every record that flows between stages. One line of a rows file is one of these.

`RoutingCase` is exactly what a router may see before anything is retrieved or answered. All that is
learned later stands in records of their own, keyed by `case_id`, so that a gold answer, a score, a
label or an annotation can't reach a prompt or a feature: their makers accept a `RoutingCase` only.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from prerouter.core.routes import ROUTES as ROUTES
from prerouter.core.routes import Route as Route
from prerouter.core.routes import by_cost as by_cost


class Record(BaseModel):
    """A frozen row: unknown fields, NaN and infinities are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


Identifier = Annotated[str, Field(min_length=1, max_length=512)]
MAX_COUNT = 2**53 - 1
"""The largest whole number that every reader of JSON and Parquet takes exactly."""

Count = Annotated[int, Field(ge=0, le=MAX_COUNT)]


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


class MetadataSetting(StrEnum):
    """How much of the metadata a prompt shows (Pre-Route, section 1: metadata m)."""

    FULL = "full"
    HEAD_ONLY = "head_only"
    GENERATED = "generated"


class DocumentProfile(Record):
    """What is known of a document without reading it. The body is never part of it."""

    document_id: Identifier
    title: str | None = None
    type: str | None = None
    tokens: Annotated[Count, Field(description="length in tokens")] | None = None
    head: Annotated[str, Field(description="the first few hundred characters")] | None = None


class AnswerModel(Record):
    """The model that will answer, whichever route is taken."""

    name: Identifier
    context_window: Annotated[int, Field(gt=0, description="tokens")] | None = None
    thinking: bool = False


class RagConfig(Record):
    """How RAG would retrieve: sizes in tokens, `top_k` chunks kept."""

    chunk_tokens: Annotated[int, Field(gt=0)] = 600
    overlap_tokens: Annotated[int, Field(ge=0)] = 100
    top_k: Annotated[int, Field(gt=0)] = 5

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.overlap_tokens >= self.chunk_tokens:
            raise ValueError("overlap_tokens must be smaller than chunk_tokens")
        return self


class RoutingCase(Record):
    """One decision to take: a question over a document, for one answering model.

    `question_id` names question + document and is the unit of the split; `group_id` names the
    document, or the component of near-duplicates it belongs to; `case_id` adds the answer model.
    Identifiers are for joins: neither a prompt nor a feature shows one.
    """

    case_id: Identifier
    question_id: Identifier
    group_id: Identifier
    question: Annotated[str, Field(min_length=1)]
    task_type: str | None = None
    document: DocumentProfile
    answer_model: AnswerModel
    rag: RagConfig = RagConfig()


class Evidence(Record):
    """A passage that the answer rests on, with its character span in the document if known."""

    text: Annotated[str, Field(min_length=1)]
    start: Count | None = None
    end: Count | None = None


class Reference(Record):
    """Gold knowledge about a question, for scoring, strata and breakdowns only.

    `answerable` False marks a question whose right answer is that the document does not tell.
    """

    question_id: Identifier
    answer: str | None = None
    answerable: bool = True
    choices: tuple[str, ...] = ()
    evidence: tuple[Evidence, ...] = ()
    level: str | None = None
    context_length: str | None = None
    annotations: dict[str, str] = {}


class DocumentFile(Record):
    """Where a document's body lies, relative to the root that the recipe names."""

    document_id: Identifier
    path: str
    sha256: str
    characters: Count


class SplitAssignment(Record):
    question_id: Identifier
    group_id: Identifier
    split: Split


class MissingReason(StrEnum):
    """Why an arm has no answer or no score. None of these is a zero."""

    CALL_FAILED = "call_failed"
    NOT_GIVEN = "not_given"
    EMPTY = "empty"
    CUT_OFF = "cut_off"
    NO_DOCUMENT = "no_document"
    NO_REFERENCE = "no_reference"
    NOT_SCORABLE = "not_scorable"
    NOT_JUDGED = "not_judged"


class Span(Record):
    """A half-open character span of a document."""

    start: Count
    end: Count


class Answer(Record):
    """What one route answered, or why it did not: exactly one of `text` and `missing`.

    `entropies` are bits of the first tokens written; true ones may be higher where
    `entropies_are_bounds`. A text that is `cut_off` reached the token limit, and was kept.
    """

    case_id: Identifier
    route: Route
    text: str | None = None
    missing: MissingReason | None = None
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    seconds: Annotated[float, Field(ge=0)] | None = None
    retrieved: tuple[Span, ...] = ()
    document_cut: bool = False
    cut_off: bool = False
    entropies: tuple[float, ...] = ()
    entropies_are_bounds: bool = False

    @model_validator(mode="after")
    def _text_or_reason(self) -> Self:
        if (self.text is None) == (self.missing is None):
            raise ValueError("an answer has either a text or a reason for having none")
        return self


class ArmScore(Record):
    """One route's QA score on the pair's scale, or the reason why there is none."""

    score: float | None = None
    missing: MissingReason | None = None

    @model_validator(mode="after")
    def _score_or_reason(self) -> Self:
        if (self.score is None) == (self.missing is None):
            raise ValueError("an arm has either a score or a reason for having none")
        return self


class PairedScore(Record):
    """QA scores of all routes for one case, on one scale, from one judge. All of ROUTES have an
    arm; another route has one where it was answered."""

    case_id: Identifier
    arms: dict[Route, ArmScore]
    low: float = 0.0
    high: float = 1.0
    judge: str

    @model_validator(mode="after")
    def _complete_and_on_scale(self) -> Self:
        if not self.low < self.high:
            raise ValueError(f"an empty scale, {self.low} to {self.high}")
        for route in ROUTES:
            if route not in self.arms:
                raise ValueError(f"no arm for {route.value}")
        for route, arm in self.arms.items():
            if arm.score is not None and not self.low <= arm.score <= self.high:
                raise ValueError(
                    f"{route.value} scores {arm.score}, outside {self.low} to {self.high}"
                )
        return self


class Label(Record):
    """The ideal route, and the margin U(LC) - U(RAG) in units of the scale."""

    case_id: Identifier
    route: Route
    margin: float


class Step(StrEnum):
    """The six steps of a guided trace, in the order they are written (Pre-Route, section 1)."""

    CHARACTERISATION = "characterisation"
    DISTRIBUTION = "distribution"
    WINDOW_FEASIBILITY = "window_feasibility"
    RETRIEVAL_FEASIBILITY = "retrieval_feasibility"
    MODEL_CAPABILITY = "model_capability"
    EFFICIENCY = "efficiency"


class Rationale(Record):
    """The written grounds of a decision.

    Guided traces fill `steps` and `reflection` (an ablation leaves some out); an unconstrained
    chain of thought fills `free_text`; a direct answer fills none.
    """

    steps: dict[Step, str] = {}
    reflection: str | None = None
    free_text: str | None = None


class Trace(Record):
    """A teacher's judgement of one case. `sample` counts from 0."""

    case_id: Identifier
    teacher: Identifier
    sample: Count = 0
    rationale: Rationale
    decision: Route
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    prompt_hash: str
    reasoning: str | None = None


class Message(Record):
    role: Literal["system", "user", "assistant"]
    content: str


class StudentMode(StrEnum):
    """How a student replies: the six steps and then the route, or the route at once."""

    EXPLAIN = "explain"
    DECIDE = "decide"


class Example(Record):
    """One training example in TRL's conversational prompt-completion form."""

    case_id: Identifier
    sample: Count
    mode: StudentMode = StudentMode.EXPLAIN
    split: Split
    prompt: tuple[Message, ...]
    completion: tuple[Message, ...]


class ModelFile(Record):
    """One file of a trained student, relative to the stage that wrote it."""

    path: str
    sha256: str
    size: Count


class DecisionFailure(StrEnum):
    """Why a router gave no route. Evaluation counts these and never guesses one."""

    CALL_FAILED = "call_failed"
    CUT_OFF = "cut_off"
    UNPARSABLE = "unparsable"
    TOO_LONG = "too_long"
    NO_ANSWER = "no_answer"
    NO_ENTROPY = "no_entropy"


class Decision(Record):
    """What a router decided, and what that took: exactly one of `route` and `failure`.

    `calls`, tokens and seconds are the router's own, of the model named in `model` where it has
    one. `wrote` names the route whose answer the router had written on the way, beside them: that
    answer stands where the decision is its route, and was paid for in vain where it is not.
    """

    case_id: Identifier
    router: Identifier
    route: Route | None = None
    failure: DecisionFailure | None = None
    p_lc: Annotated[float, Field(ge=0, le=1)] | None = None
    rationale: Rationale | None = None
    raw: str | None = None
    model: str | None = None
    calls: Count = 0
    prompt_tokens: Count = 0
    completion_tokens: Count = 0
    seconds: Annotated[float, Field(ge=0)] = 0.0
    wrote: Route | None = None

    @model_validator(mode="after")
    def _route_or_failure(self) -> Self:
        if (self.route is None) == (self.failure is None):
            raise ValueError("a decision has either a route or a failure")
        return self


class Reject(Record):
    """Something refused: where it stood, the reason (an enum value of that room), the raw text.

    `transient` rejects (a failed call) are done again when their unfinished stage is rerun.
    """

    stage: str
    key: str
    reason: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
    detail: str = ""
    place: str = ""
    raw: str | None = None
    transient: bool = False
