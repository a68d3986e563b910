"""`calibrate`: how routers' p_lc is set right on the validation split, and where it is cut."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from prerouter.core.records import Split
from prerouter.recipe.base import Section
from prerouter.recipe.route import CLASSICAL, RouterName, RouterNames

GIVES_P_LC: tuple[RouterName, ...] = (
    *CLASSICAL,
    "probe_router",
    "classifier",
    "student_decide",
    "self_route_verdict",
)
"""The routers whose decisions tell how likely LC is."""


class ThresholdRule(StrEnum):
    """What the threshold on p_lc is chosen by."""

    LC_RATE = "lc_rate"
    BUDGET = "budget"
    LOSS = "loss"


class AnswerCosts(Section):
    """USD of one answer by each route, and of one decision."""

    rag: Annotated[float, Field(ge=0, le=1e6)]
    lc: Annotated[float, Field(ge=0, le=1e6)]
    route: Annotated[float, Field(ge=0, le=1e6)] = 0.0


class CalibrateSection(Section):
    """Temperature and threshold of each of the `routers`, which give a p_lc, by the labelled cases
    of `split`. One that can't be calibrated is refused with its reason, and the others stand.

    `loss`: the best QA of the chosen routes; `lc_rate`: the share of cases that `target` says goes
    to LC; `budget`: the highest LC rate within `target` USD a query, for which `costs` are needed.
    """

    routers: RouterNames = ("student_decide",)
    split: Split = Split.VALIDATION
    rule: ThresholdRule = ThresholdRule.LOSS
    target: Annotated[float | None, Field(ge=0, le=1e6)] = None
    costs: AnswerCosts | None = None
    min_cases: Annotated[int, Field(ge=2, description="fewer are refused")] = 30

    @model_validator(mode="after")
    def _rule_has_its_target(self) -> Self:
        if (self.target is None) != (self.rule is ThresholdRule.LOSS):
            raise ValueError("`target` belongs to rule `lc_rate` or `budget`, `loss` takes none")
        if self.rule is ThresholdRule.LC_RATE and self.target is not None and self.target > 1:
            raise ValueError("an LC rate as `target` lies in 0 to 1")
        if self.rule is ThresholdRule.BUDGET and self.costs is None:
            raise ValueError("rule `budget` needs `costs`: {rag: USD, lc: USD}")
        return self

    @property
    def tuned(self) -> dict[str, str]:
        """What each router is called in the routing table once it is calibrated."""
        return {router: f"{router}_tuned" for router in self.routers}
