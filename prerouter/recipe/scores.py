"""`answer`, `score` and `label`: from documents to paired scores to the ideal route."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from prerouter.recipe.base import Section


class AnswerSection(Section):
    """Answer every case by both routes.

    The evidence reader answers with the reference passages that its context holds and declines
    where there is none: a measured stand-in for a reading model, which costs no model.
    """

    reader: Literal["evidence"] = "evidence"
    retriever: Literal["bm25"] = "bm25"
    reserved_tokens: Annotated[
        int, Field(ge=0, description="of the window, for instructions, question and answer")
    ] = 256


class ScoreSection(Section):
    """Score answers against references by a deterministic metric.

    `grades` maps the metric, which lies in 0..1, to that many equal steps (LaRA's 0 to 4), with
    ties where two answers are about as good; absent, the metric itself is the score. Questions
    whose right answer is that the document does not tell are scored by abstention.
    """

    metric: Literal[
        "token_f1", "token_recall", "rouge_l", "exact_match", "choice", "evidence_recall"
    ] = "token_f1"
    grades: Annotated[int | None, Field(ge=1, le=100)] = None
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.5


class LabelSection(Section):
    """The cheapest route among those with the best score (Pre-Route, section 1: Ideal label).

    A dearer route has to win by more than `min_margin`, in units of the scale.
    """

    min_margin: Annotated[float, Field(ge=0)] = 0.0
