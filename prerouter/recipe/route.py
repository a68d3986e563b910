"""`route`, `evaluate` and `publish`: deciding, comparing and handing on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, field_validator

from prerouter.core.records import Route, Split
from prerouter.recipe.base import Section
from prerouter.recipe.engine import Dtype

RouterName = Literal[
    "always_rag",
    "always_lc",
    "task_majority",
    "guideline",
    "decision_tree",
    "random_forest",
    "student_before",
    "student",
    "student_decide",
]


BASELINES: tuple[RouterName, ...] = (
    "always_rag",
    "always_lc",
    "task_majority",
    "guideline",
    "decision_tree",
    "random_forest",
)


class RouteSection(Section):
    """Which routers decide, over which split, and how the student generates."""

    routers: Annotated[
        tuple[RouterName, ...],
        Field(min_length=1, description="where absent, all baselines and the trained student"),
    ]
    splits: tuple[Split, ...] = (Split.TEST,)
    batch_size: Annotated[int, Field(gt=0)] = 16
    max_tokens: Annotated[int, Field(gt=0)] = 800
    dtype: Dtype = "bfloat16"

    @field_validator("routers")
    @classmethod
    def _each_once(cls, value: tuple[RouterName, ...]) -> tuple[RouterName, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each router is named once")
        return value


class EvaluateSection(Section):
    """The routing table. Intervals resample documents; an undecided case takes `fallback` for its
    QA score and counts as a wrong route."""

    split: Split = Split.TEST
    resamples: Annotated[int, Field(ge=100)] = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    fallback: Route = Route.RAG
    min_cases: Annotated[int, Field(ge=1, description="fewer are flagged")] = 30


class PublishSection(Section):
    """The router's folder, ready for the Hub."""

    folder: Annotated[Path | None, Field(description="where absent, in the run's folder")] = None
    repo_id: Annotated[str | None, Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=96)] = None
    private: bool = False
    license: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] = "apache-2.0"
    language: tuple[str, ...] = ("en",)
    fallback: Route = Route.RAG
