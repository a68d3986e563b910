"""`route`, `evaluate` and `publish`: deciding, comparing and handing on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field, field_validator

from prerouter.core.records import Identifier, Route, Split
from prerouter.recipe.base import Section
from prerouter.recipe.checks import ChecksSection
from prerouter.recipe.engine import Dtype
from prerouter.recipe.hub import Language, Licence, RepoId
from prerouter.recipe.judge import LabelledTriples
from prerouter.recipe.probe_router import ProbeRouterSection

ClassicalKind = Literal[
    "decision_tree",
    "random_forest",
    "logistic_regression",
    "gradient_boosting",
    "nearest_neighbours",
]
CLASSICAL: tuple[ClassicalKind, ...] = get_args(ClassicalKind)

RouterName = Literal[
    "always_rag",
    "always_lc",
    "task_majority",
    "guideline",
    ClassicalKind,
    "probe_router",
    "classifier",
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


def _each_once(value: tuple[RouterName, ...]) -> tuple[RouterName, ...]:
    if len(set(value)) != len(value):
        raise ValueError("each router is named once")
    return value


RouterNames = Annotated[tuple[RouterName, ...], Field(min_length=1), AfterValidator(_each_once)]

PublishedName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$", max_length=64)]

BASELINES: tuple[RouterName, ...] = (
    "always_rag",
    "always_lc",
    "task_majority",
    "guideline",
    "decision_tree",
    "random_forest",
    "logistic_regression",
    "gradient_boosting",
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
        RouterNames,
        Field(
            description="where absent, all baselines but nearest_neighbours, which needs an "
            "embedding model, and the trained student",
        ),
    ]
    splits: tuple[Split, ...] = (Split.TEST,)
    batch_size: Annotated[int, Field(gt=0)] = 16
    max_tokens: Annotated[int, Field(gt=0)] = 800
    dtype: Dtype = "bfloat16"
    checks: ChecksSection = ChecksSection()
    published: dict[PublishedName, Path] = {}
    probe: ProbeRouterSection = ProbeRouterSection()
    embedding: Annotated[
        Identifier, Field(description="whose vectors of questions nearest_neighbours compares")
    ] = "embedded:all-MiniLM-L6-v2"

    @field_validator("published")
    @classmethod
    def _a_name_of_its_own(cls, value: dict[str, Path]) -> dict[str, Path]:
        taken = sorted(set(value) & {*get_args(RouterName), "oracle"})
        if taken:
            raise ValueError(f"{', '.join(taken)}: the name of another router")
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
        Field(
            description="pairs of routers to test; where absent, each against the best of those "
            "that are no student"
        ),
    ] = None
    assumed_output_tokens: Annotated[
        int, Field(gt=0, description="of an answer whose tokens nobody counted")
    ] = 128
    worst_cases: Annotated[int, Field(ge=0, le=50, description="shown of each router")] = 5
    triples: LabelledTriples | None = None
    probes: Annotated[
        tuple[Path, ...], Field(description="CSV files of a probe study, for their curves")
    ] = ()
    studies: Annotated[
        tuple[Path, ...], Field(description="folders of prompt studies, runs/NAME/study")
    ] = ()

    def mistakes(self, route: RouteSection, tuned: Sequence[str]) -> list[str]:
        """What doesn't go with `route` and the names of `tuned` routers."""
        found = []
        if self.split not in route.splits:
            found.append(f"evaluate.split {self.split} is not in route.splits")
        known = (*route.routers, *route.published, *tuned, "oracle")
        pairs = self.compare or ()
        unknown = dict.fromkeys(name for pair in pairs for name in pair if name not in known)
        found += [f"evaluate.compare {name} is none of {', '.join(known)}" for name in unknown]
        found += [f"evaluate.compare {one} with itself" for one, other in pairs if one == other]
        return found


class PublishSection(Section):
    """The router's folder, ready for the Hub.

    With `adapter`, a student that was trained by LoRA is published as the adapter alone, on top of
    `base_model`. `raw_text` lets questions and first lines of documents go along with a push.
    """

    folder: Annotated[Path | None, Field(description="where absent, in the run's folder")] = None
    repo_id: RepoId | None = None
    private: bool = False
    license: Licence = "apache-2.0"
    language: tuple[Language, ...] = ("en",)
    fallback: Route = Route.RAG
    base_model: Annotated[
        RepoId | None,
        Field(description="train.model's name on the Hub, where train.model is a folder"),
    ] = None
    adapter: Annotated[bool, Field(description="the LoRA adapter, without its base")] = False
    raw_text: Annotated[bool, Field(description="let texts of cases go along")] = False
