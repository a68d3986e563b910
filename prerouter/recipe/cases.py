"""`cases`, `split` and `rag`: where the questions come from and how they are divided."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Discriminator, Field, Tag, model_validator

from prerouter.core.records import AnswerModel, Identifier
from prerouter.recipe.base import Section

LONGEST_ID = 200
"""Characters of an identifier that a user gives: a question's, a document's or a model's."""

HIGHEST_SCORE = 1e9


def _check_models(models: tuple[AnswerModel, ...]) -> None:
    # A case's id spells a percent sign with three characters.
    if any(len(model.name) + 2 * model.name.count("%") > LONGEST_ID for model in models):
        raise ValueError(f"an answer model's name has {LONGEST_ID} characters at most")
    kinds = [(model.name, model.thinking) for model in models]
    if len(set(kinds)) != len(kinds):
        raise ValueError("two answer_models share name and thinking: their cases would clash")


class SampleSource(Section):
    """The sample that ships: made documents with planted facts (`data/sample`)."""

    source: Literal["sample"]
    path: Path = Path("data/sample")
    task_type: Literal["level", "none"] = "none"
    answer_models: Annotated[tuple[AnswerModel, ...], Field(min_length=1)]
    head_characters: Annotated[int, Field(ge=0)] = 300
    documents: Annotated[
        int | None, Field(gt=0, description="the first so many, a fair mixture; all where absent")
    ] = None

    @model_validator(mode="after")
    def _models_differ(self) -> Self:
        _check_models(self.answer_models)
        return self


class LaraSource(Section):
    """A clone of the LaRA repository, or its compact form (queries.jsonl.gz, predictions/).

    `task_type: level` shows LaRA's level to the router as Pre-Route's full metadata do; it is an
    annotation, which a deployed router would have to infer, so the default leaves it out.
    With `own_models`, those are to answer every question (an `answer` section), and the published
    predictions are left out.
    """

    source: Literal["lara"]
    path: Path
    task_type: Literal["level", "none"] = "none"
    answer_models: Annotated[
        tuple[str, ...] | None, Field(description="names to take; all where absent")
    ] = None
    context_windows: Annotated[
        dict[str, Annotated[int, Field(gt=0)]],
        Field(description="tokens by answer model, where known"),
    ] = {}
    own_models: tuple[AnswerModel, ...] = ()
    questions: Annotated[
        int | None, Field(gt=0, description="a sample of so many; all where absent")
    ] = None
    context_lengths: Annotated[
        tuple[Literal["32k", "128k"], ...] | None,
        Field(min_length=1, description="of the documents to take; all where absent"),
    ] = None
    head_characters: Annotated[int, Field(ge=0)] = 600

    @model_validator(mode="after")
    def _models_are_published_or_own(self) -> Self:
        _check_models(self.own_models)
        if self.own_models and (self.answer_models or self.context_windows):
            raise ValueError(
                "answer_models and context_windows are of the published predictions, which "
                "own_models leaves out"
            )
        return self


class TableColumns(Section):
    """Which column holds what. A name that is not given is looked for under the field's own name.

    Only `question` is required. Without `document_id`, the document is known by `document_path`,
    else by `title`, else by `head`, else each question has a document of its own. `evidence` holds
    one passage of the document, or a list of them: what the answer rests on, word for word.
    """

    question: str = "question"
    question_id: str = "question_id"
    document_id: str = "document_id"
    title: str = "title"
    document_type: str = "document_type"
    document_tokens: str = "document_tokens"
    head: str = "head"
    document_path: str = "document_path"
    task_type: str = "task_type"
    answer_model: str = "answer_model"
    context_window: str = "context_window"
    thinking: str = "thinking"
    answer: str = "answer"
    answerable: str = "answerable"
    level: str = "level"
    context_length: str = "context_length"
    evidence: str = "evidence"
    rag_score: str = "rag_score"
    lc_score: str = "lc_score"
    rag_answer: str = "rag_answer"
    lc_answer: str = "lc_answer"


class Scale(Section):
    """The range that scores are given on, between minus and plus 1e9: margins and sums of larger
    ones would pass what a float holds, or lose what tells two scores apart."""

    low: Annotated[float, Field(ge=-HIGHEST_SCORE)] = 0.0
    high: Annotated[float, Field(le=HIGHEST_SCORE)] = 1.0

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low < self.high:
            raise ValueError("low must be below high")
        return self


class ScoreFile(Section):
    """Paired scores that stand in a file of their own, joined by `question_id` and answer model."""

    path: Path
    question_id: str = "question_id"
    answer_model: str = "answer_model"
    rag_score: str = "rag_score"
    lc_score: str = "lc_score"


class TableSource(Section):
    """The user's own questions: CSV, JSONL or Parquet, one question (and answer model) a row."""

    source: Literal["table"]
    path: Path
    columns: TableColumns = TableColumns()
    documents: Annotated[
        Path | None, Field(description="folder that document_path is relative to")
    ] = None
    answer_models: Annotated[
        tuple[AnswerModel, ...],
        Field(description="crossed with every question where the rows name none"),
    ] = ()
    scores: ScoreFile | None = None
    scale: Scale = Scale()
    judge: str = "given"
    head_characters: Annotated[int, Field(ge=0)] = 600

    @model_validator(mode="after")
    def _models_differ(self) -> Self:
        _check_models(self.answer_models)
        return self


class LongBenchV2Source(Section):
    """LongBench-v2's published `data.json`: multiple-choice questions of six categories.

    `task_type: domain` shows the category to the router as Pre-Route's full metadata do; it is an
    annotation, which a deployed router would have to infer, so the default leaves it out.
    """

    source: Literal["longbench_v2"]
    path: Path
    task_type: Literal["domain", "none"] = "none"
    answer_models: Annotated[tuple[AnswerModel, ...], Field(min_length=1)]
    head_characters: Annotated[int, Field(ge=0)] = 600

    @model_validator(mode="after")
    def _models_differ(self) -> Self:
        _check_models(self.answer_models)
        return self


def _source_kind(value: object) -> str | None:
    kind = value.get("source") if isinstance(value, dict) else getattr(value, "source", None)
    return f"tag:{kind}" if kind in ("sample", "lara", "table", "longbench_v2") else None


CasesSection = Annotated[
    Annotated[SampleSource, Tag("tag:sample")]
    | Annotated[LaraSource, Tag("tag:lara")]
    | Annotated[TableSource, Tag("tag:table")]
    | Annotated[LongBenchV2Source, Tag("tag:longbench_v2")],
    Discriminator(
        _source_kind,
        custom_error_type="unknown_source",
        custom_error_message="source must be one of: sample, lara, table, longbench_v2",
    ),
]


class SplitSection(Section):
    """Train, validation and test, over questions, before answer models are crossed in.

    `group_by` keeps all questions of a group on one side: a question, a document, or a component
    of documents that share long runs of text. Strata are (document type, level, context length)
    (Pre-Route, section 1: Split). `{train: 0, validation: 0, test: 1}` keeps all of a set that
    nothing is trained on. Nothing is learnt from or tuned on the cases of `unseen_models`: their
    rows of the table show what routers make of an answer model that they have not met.
    """

    group_by: Literal["question", "document", "component"] = "question"
    train: Annotated[float, Field(ge=0, lt=1)] = 0.7
    validation: Annotated[float, Field(ge=0, lt=1)] = 0.1
    test: Annotated[float, Field(gt=0, le=1)] = 0.2
    unseen_models: tuple[Identifier, ...] = ()
    shared_run_words: Annotated[
        int, Field(ge=8, description="a common run of this many words joins two documents")
    ] = 50

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if abs(self.train + self.validation + self.test - 1) > 1e-9:
            raise ValueError("train, validation and test must add up to 1")
        return self
