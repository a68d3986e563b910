"""All that a report is made from, joined once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self, TypedDict

from prerouter.core.records import (
    Decision,
    Label,
    PairedScore,
    Reference,
    Reject,
    Route,
    RoutingCase,
)
from prerouter.measures.importances import Importances
from prerouter.measures.outcomes import Outcomes, join_outcomes
from prerouter.measures.query_cost import Answers
from prerouter.measures.routing import RoutingRow
from prerouter.measures.tuning import Calibrated
from prerouter.recipe.prices import PriceTable
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import EvaluateSection
from prerouter.runs.manifest import Manifest

ALL_MODELS = "pooled"


class Resampling(TypedDict):
    """How intervals are made, in the words of the measures."""

    resamples: int
    confidence: float
    seed: int


@dataclass(frozen=True)
class Material:
    """One evaluated split: `decisions` of every router hold exactly the `cases`.

    `manifests` are those of the stages that it was made from, parents first; `importances` those
    of the routers that were fitted on features; `triples` what people say of retrieved passages, by
    case and route, where they say anything; `uncalibrated` the routers whose p_lc could not be set
    right.
    """

    recipe: Recipe
    section: EvaluateSection
    rows: Sequence[RoutingRow]
    decisions: Mapping[str, Sequence[Decision]]
    labels: Sequence[Label]
    scores: Sequence[PairedScore]
    cases: Sequence[RoutingCase]
    references: Sequence[Reference]
    answers: Answers
    prices: PriceTable
    calibrated: Sequence[Calibrated]
    manifests: Mapping[str, Manifest]
    importances: Sequence[Importances] = ()
    triples: Mapping[tuple[str, Route], bool] | None = None
    uncalibrated: Sequence[Reject] = ()

    @property
    def routers(self) -> list[str]:
        return list(self.decisions)

    @property
    def tuned(self) -> dict[str, str]:
        """What a router is called once it is calibrated, by its own name."""
        return self.recipe.calibrate.tuned if self.recipe.calibrate else {}

    @property
    def resampling(self) -> Resampling:
        return Resampling(
            resamples=self.section.resamples,
            confidence=self.section.confidence,
            seed=self.recipe.seed,
        )

    @cached_property
    def outcomes(self) -> Outcomes | None:
        """What became of each labelled case; None where no case has a label."""
        labelled = {label.case_id for label in self.labels}
        if not any(case.case_id in labelled for case in self.cases):
            return None
        return join_outcomes(
            self.decisions,
            self.labels,
            self.scores,
            self.cases,
            fallback=self.section.fallback,
        )

    @cached_property
    def labelled(self) -> list[RoutingCase]:
        """The cases with a label, in the order of the outcomes."""
        labelled = {label.case_id for label in self.labels}
        return [case for case in self.cases if case.case_id in labelled]

    @cached_property
    def score_of(self) -> dict[str, PairedScore]:
        """The paired score of each case that has one."""
        return {score.case_id: score for score in self.scores}

    @cached_property
    def labelled_decisions(self) -> dict[str, list[Decision]]:
        """Of every router, the decisions on the cases with a label."""
        inside = {case.case_id for case in self.labelled}
        return {
            router: [decision for decision in some if decision.case_id in inside]
            for router, some in self.decisions.items()
        }

    @cached_property
    def answer_models(self) -> list[str]:
        return list(dict.fromkeys(case.answer_model.name for case in self.cases))

    def by_answer_model(self) -> list[tuple[str, Self]]:
        """All of it first, and then the cases of each answer model where there are several."""
        if len(self.answer_models) == 1:
            return [(self.answer_models[0], self)]
        parts = [(name, self._only(name)) for name in self.answer_models]
        return [(ALL_MODELS, self), *parts]

    def _only(self, answer_model: str) -> Self:
        cases = [case for case in self.cases if case.answer_model.name == answer_model]
        inside = {case.case_id for case in cases}
        decisions = {
            router: [decision for decision in some if decision.case_id in inside]
            for router, some in self.decisions.items()
        }
        return replace(self, cases=cases, decisions=decisions)
