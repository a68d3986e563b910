"""`answer`, `score` and `label`: from documents to paired scores to the ideal route."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from prerouter.core.records import ROUTES, Identifier, Route, by_cost
from prerouter.recipe.base import Section
from prerouter.recipe.engine import EngineSection, OpenAIEngine
from prerouter.recipe.judge import HIGHEST_GRADE, FaithfulnessSection, HumanScores, JudgeSection
from prerouter.recipe.retrieval import Grouping


def _with_both_ends(value: tuple[Route, ...]) -> tuple[Route, ...]:
    if not set(value) >= set(ROUTES) or len(set(value)) != len(value):
        raise ValueError(f"names {' and '.join(ROUTES)} at least, and each route once")
    return by_cost(value)


Routes = Annotated[tuple[Route, ...], AfterValidator(_with_both_ends)]
"""The routes of a recipe, from cheap to dear however they are written."""


class LongRagSection(Section):
    """How the route LONG_RAG retrieves (Jiang et al., 2024, arXiv 2406.15319): `top_k` long units,
    or the best spans of each; embedding, vector ratio and reranker are those of `retrieval`."""

    unit: Literal["long", "hierarchical"] = "long"
    unit_tokens: Annotated[int, Field(ge=16)] = 4000
    group_by: Grouping = "size"
    span_tokens: Annotated[int, Field(ge=16)] = 200
    spans_per_unit: Annotated[int, Field(gt=0)] = 2
    top_k: Annotated[int, Field(gt=0)] = 4

    @model_validator(mode="after")
    def _spans_lie_in_units(self) -> Self:
        if self.unit == "hierarchical" and self.span_tokens >= self.unit_tokens:
            raise ValueError("span_tokens must be smaller than unit_tokens")
        return self


class AnswerSection(Section):
    """Answer every case by each of `routes`, RAG and LC among them.

    The `evidence` reader answers with the reference passages that its context holds and declines
    where there is none: a measured stand-in for a reading model, which costs no model.

    The `engine` reader is the answering model itself: one `engine` where the cases have one answer
    model, else `engines` by the answer models' names. RAG reads what `retrieval` finds, LC the
    document, its middle cut out where it passes the window: the case's context window or the
    engine's longest input, whichever is less. Whether the model thinks is said by the case.
    `tokenizers` names a tokenizer (Hub name or folder) by answer model, where it is not that of the
    engine's model: a server's model may have a name of its own. The questions of
    `documents_per_call` documents go to the engine together: with one, the transformers engine
    reads a document once for all its questions; more keep a server busy. `entropy_tokens`
    keeps the entropies that EDAR reads.
    """

    reader: Literal["evidence", "engine"] = "evidence"
    retriever: Literal["bm25"] = "bm25"
    reserved_tokens: Annotated[
        int,
        Field(
            ge=0,
            description="of the window, for instructions and question (a multiple where they are "
            "longer); the evidence reader's answer too",
        ),
    ] = 256
    engine: EngineSection | None = None
    engines: dict[Identifier, EngineSection] = {}
    tokenizers: dict[Identifier, Identifier] = {}
    max_tokens: Annotated[int, Field(gt=0, description="of an answer, thinking included")] = 512
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    cut_off: Annotated[
        Literal["refuse", "keep"],
        Field(
            description="an answer that reaches max_tokens: missing, or scored as far as it goes"
        ),
    ] = "refuse"
    documents_per_call: Annotated[int, Field(gt=0)] = 1
    routes: Routes = ROUTES
    long_rag: LongRagSection = LongRagSection()
    entropy_tokens: Annotated[
        int, Field(ge=0, le=1000, description="of each answer, the first ones; 30 in EDAR")
    ] = 0
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _keys_go_with_the_reader(self) -> Self:
        given = self.model_fields_set
        if self.reader == "evidence":
            idle = given - {"reader", "retriever", "reserved_tokens"}
        else:
            idle = given & {"retriever"}
        mistakes = [f"reader `{self.reader}` reads no {', '.join(sorted(idle))}"] if idle else []
        engines = [self.engine, *self.engines.values()]
        if self.entropy_tokens and any(
            isinstance(engine, OpenAIEngine) and engine.entropies == "refuse" for engine in engines
        ):
            mistakes.append(
                "entropy_tokens: a server tells its likeliest tokens only: set its engine's "
                "entropies: lower_bound, or take transformers or vllm"
            )
        if "long_rag" in given and Route.LONG_RAG not in self.routes:
            mistakes.append("long_rag says how LONG_RAG retrieves: name it in `routes`")
        if self.reader == "engine" and (self.engine is None) == (not self.engines):
            mistakes.append("reader `engine` needs an `engine`, or `engines` by answer model")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def engine_of(self, answer_model: str) -> EngineSection | None:
        """The engine that answers for an answer model; None where none is named."""
        return self.engine or self.engines.get(answer_model)


class ScoreSection(Section):
    """Score answers against references by a deterministic metric, or by a `judge` in its place.

    `grades` maps the metric, which lies in 0..1, to that many equal steps (LaRA's 0 to 4), with
    ties where two answers are about as good; absent, the metric itself is the score. Questions
    whose right answer is that the document does not tell are scored by abstention.
    """

    metric: Literal[
        "token_f1", "token_recall", "rouge_l", "exact_match", "choice", "evidence_recall"
    ] = "token_f1"
    grades: Annotated[int | None, Field(ge=1, le=100)] = None
    judge: JudgeSection | None = None
    human: HumanScores | None = None
    faithfulness: FaithfulnessSection | None = None
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.5

    @model_validator(mode="after")
    def _one_way_to_score(self) -> Self:
        mistakes = []
        idle = sorted({"metric", "grades"} & self.model_fields_set)
        if self.judge and idle:
            mistakes.append(f"{' and '.join(idle)}: the `judge` scores here, leave them out")
        if self.human and not (self.judge or self.grades):
            mistakes.append("human compares whole grades: set `judge`, or `grades`")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def scale(self) -> tuple[float, float]:
        """Lowest and highest score."""
        top = HIGHEST_GRADE if self.judge else self.grades or 1
        return 0.0, float(top)

    @property
    def measure(self) -> str:
        """What the scores are by, as records and cards name it."""
        if self.judge is None:
            return self.metric
        return f"{self.judge.engine.model} on a rubric of 0 to {HIGHEST_GRADE}"


class LabelSection(Section):
    """The cheapest route among those with the best score (Pre-Route, section 1: Ideal label).

    A dearer route has to win by more than `min_margin`, in units of the scale. `routes` are those
    that are compared. A student is taught RAG and LC only.
    """

    min_margin: Annotated[float, Field(ge=0)] = 0.0
    routes: Routes = ROUTES
