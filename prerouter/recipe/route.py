"""`route`, `evaluate` and `publish`: deciding, comparing and handing on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import Field, field_validator

from prerouter.core.records import Route, Split
from prerouter.recipe.base import Section
from prerouter.recipe.checks import ChecksSection
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
    "self_route",
    "self_route_verdict",
    "edar",
    "edar_prompted",
    "edar_unclassified",
    "always_long_rag",
    "long_rag_self_route",
    "pre_route_check",
]


PublishedName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]

BASELINES: tuple[RouterName, ...] = (
    "always_rag",
    "always_lc",
    "task_majority",
    "guideline",
    "decision_tree",
    "random_forest",
)


CHECKED: tuple[RouterName, ...] = (
    "self_route",
    "self_route_verdict",
    "edar",
    "edar_prompted",
    "edar_unclassified",
    "long_rag_self_route",
    "pre_route_check",
)
"""Those that decide after retrieval: `checks` says how."""

BY_ENTROPY: tuple[RouterName, ...] = (
    "edar",
    "edar_prompted",
    "edar_unclassified",
    "pre_route_check",
)


class RouteSection(Section):
    """Which routers decide, over which split, and how the student generates. `published` are
    folders of published routers, by the name that each gets in the table."""

    routers: Annotated[
        tuple[RouterName, ...],
        Field(min_length=1, description="where absent, all baselines and the trained student"),
    ]
    splits: tuple[Split, ...] = (Split.TEST,)
    batch_size: Annotated[int, Field(gt=0)] = 16
    max_tokens: Annotated[int, Field(gt=0)] = 800
    dtype: Dtype = "bfloat16"
    checks: ChecksSection = ChecksSection()
    published: dict[PublishedName, Path] = {}

    @field_validator("published")
    @classmethod
    def _a_name_of_its_own(cls, value: dict[str, Path]) -> dict[str, Path]:
        taken = sorted(set(value) & {*get_args(RouterName), "oracle"})
        if taken:
            raise ValueError(f"{', '.join(taken)}: the name of another router")
        return value

    @field_validator("routers")
    @classmethod
    def _each_once(cls, value: tuple[RouterName, ...]) -> tuple[RouterName, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each router is named once")
        return value


class EvaluateSection(Section):
    """The routing table and the report. Intervals resample documents; an undecided case takes
    `fallback` for its QA score and counts as a wrong route."""

    split: Split = Split.TEST
    resamples: Annotated[int, Field(ge=100)] = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    fallback: Route = Route.RAG
    min_cases: Annotated[int, Field(ge=1, description="fewer are flagged")] = 30
    report: Annotated[bool, Field(description="write report/index.html too")] = True
    compare: Annotated[
        tuple[tuple[str, str], ...] | None,
        Field(description="pairs of routers to test; where absent, each against the best baseline"),
    ] = None
    assumed_output_tokens: Annotated[
        int, Field(gt=0, description="of an answer whose tokens nobody counted")
    ] = 128
    worst_cases: Annotated[int, Field(ge=0, le=50, description="shown of each router")] = 5
    probes: Annotated[
        tuple[Path, ...], Field(description="CSV files of a probe study, for their curves")
    ] = ()


class PublishSection(Section):
    """The router's folder, ready for the Hub."""

    folder: Annotated[Path | None, Field(description="where absent, in the run's folder")] = None
    repo_id: Annotated[str | None, Field(pattern=r"^[\w.-]+/[\w.-]+$", max_length=96)] = None
    private: bool = False
    license: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")] = "apache-2.0"
    language: tuple[str, ...] = ("en",)
    fallback: Route = Route.RAG
