"""What stands beside a deterministic metric in `score`: a judge, people, and faithfulness."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prerouter.recipe.base import Section
from prerouter.recipe.engine import EngineSection

HIGHEST_GRADE = 4
"""The rubric's scale is 0 to 4 (Pre-Route, section 1: Judge)."""


class JudgeSection(Section):
    """A model grades each answer 0 to 4 against the reference, `repeats` times.

    It sees the question, the reference answer and the answer, and nothing of the route that wrote
    it. With `clean`, words by which an answer gives its route away ("the third chunk says") are
    made neutral before it sees them. An arm's score is the median of its readable judgements, of
    which there have to be half of `repeats` at least.
    """

    engine: EngineSection
    repeats: Annotated[int, Field(ge=1, le=50)] = 1
    max_tokens: Annotated[int, Field(gt=0)] = 512
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    thinking: bool = False
    clean: bool = False
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _repeats_differ(self) -> Self:
        if self.repeats > 1 and self.temperature == 0:
            raise ValueError(
                "repeats: greedy judgements repeat themselves: set a temperature above 0"
            )
        return self


class PeoplesTable(Section):
    """What people say of answers: CSV, JSONL or Parquet, one row a case and route."""

    path: Path
    case_id: str = "case_id"
    route: str = "route"


class HumanScores(PeoplesTable):
    """People's scores of answers, on the scale of `score`: CSV, JSONL or Parquet, one row a case
    and route. The judge is measured against them; they change no label."""

    score: str = "score"


class LabelledTriples(PeoplesTable):
    """People's word on what was retrieved: CSV, JSONL or Parquet, one row a case and route (RAG or
    LONG_RAG), and whether its passages answer the question. What a router escalates, or keeps, is
    held against it, over the cases that it tells of. Without such a file it is whether the passages
    hold all the evidence."""

    answerable: str = "answerable"


class FaithfulnessSection(Section):
    """Share of an answer's claims that its retrieved passages support.

    Either our two prompts (extract the claims, verify them) or the ragas package's own, both
    through `engine` and decoded greedily.
    """

    engine: EngineSection
    by: Literal["prerouter", "ragas"] = "prerouter"
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    thinking: bool = False
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1
