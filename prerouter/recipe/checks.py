"""`route.checks`: routers that look at an answer, or at the passages it was to be written from,
before they decide: Self-Route, EDAR, LongRAG with Self-Route, and Pre-Route with a check."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from prerouter.core.records import Split
from prerouter.recipe.base import Section
from prerouter.recipe.engine import EngineSection, RayEngine


class AskBy(StrEnum):
    """How a one-word reply is got: by its probability against the other's, which any in-process
    engine and any vLLM server gives, or by letting the model write it, which any engine does."""

    PROBABILITY = "probability"
    REPLY = "reply"


class TauRule(StrEnum):
    """What EDAR's threshold is chosen by on the development split."""

    ELBOW = "elbow"
    LEAST_COST = "least_cost"


class QueryTypesSection(Section):
    """EDAR's query classifier. `synthesis` names the task types that go straight to LC: the
    distilled classifier learns from the training split which questions have one of them. `engine`
    is the model of the prompted one (router `edar_prompted`)."""

    synthesis: Annotated[tuple[str, ...], Field(min_length=1)] = ("comparison",)
    engine: EngineSection | None = None
    ask_by: AskBy = AskBy.PROBABILITY


class ChecksSection(Section):
    """How the routers that decide after retrieval do so. They read what `answer` wrote, so that
    they and the routes they choose between run on the same answers; `answer.entropy_tokens` has to
    be set for EDAR (30 in the paper).

    EDAR's threshold in bits is `tau`, or chosen on `split` by `tau_rule`, swept from 0.5 to 2.5 by
    0.05: `elbow`, or `least_cost` of those with a QA of at least `min_share` of Always-LC's.
    `pre_route` is the router whose decisions of RAG the router `pre_route_check` checks by entropy.
    """

    verdict_by: AskBy = AskBy.PROBABILITY
    query_types: QueryTypesSection = QueryTypesSection()
    tau: Annotated[float | None, Field(ge=0, le=64)] = None
    tau_rule: TauRule = TauRule.ELBOW
    min_share: Annotated[float, Field(gt=0, le=1)] = 0.97
    split: Split = Split.VALIDATION
    pre_route: Annotated[
        str | None, Field(min_length=1, description="the student where absent, else the guideline")
    ] = None

    @model_validator(mode="after")
    def _one_way_to_a_threshold(self) -> Self:
        chosen = self.model_fields_set & {"tau_rule", "min_share"}
        if self.tau is not None and chosen:
            raise ValueError(f"tau is given: leave out {' and '.join(sorted(chosen))}")
        if "min_share" in chosen and self.tau_rule is TauRule.ELBOW:
            raise ValueError("min_share belongs to tau_rule `least_cost`")
        return self

    def unscored(
        self, routers: Collection[str], answering: Iterable[EngineSection | None]
    ) -> list[str]:
        """The routers that ask for a word by its probability where the engine gives none."""
        sorting = self.query_types
        asked = (
            ("self_route_verdict", "verdict_by", self.verdict_by, answering),
            ("edar_prompted", "query_types.ask_by", sorting.ask_by, [sorting.engine]),
        )
        return [
            f"route.routers {name}: kind `ray` gives no probability: set route.checks.{key}: reply"
            for name, key, by, engines in asked
            if name in routers and by is AskBy.PROBABILITY
            if any(isinstance(engine, RayEngine) for engine in engines)
        ]
