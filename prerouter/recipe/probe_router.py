"""`route.probe`: the probe router's model, prompt and head."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prerouter.core.records import Identifier, MetadataSetting, StudentMode
from prerouter.recipe.base import Section
from prerouter.recipe.teach import Paradigm

ProbePrompt = Paradigm | Literal["compact"]
HeadKind = Literal["linear", "mlp"]


class ProbeRouterSection(Section):
    """A head on a model's frozen prompt states: the cheapest learned router.

    Where `model` is absent, it is the trained student with the prompt it was trained on, and then
    `prompt`, `mode`, `metadata` and `thinking` aren't set here. `layer` 0 is the embedding.
    `linear` is logistic regression, `mlp` a network with one hidden layer of 32; either is
    regularised by the value of `c` that cross-validation in the training split chooses.
    """

    model: Identifier | None = None
    revision: str | None = None
    prompt: ProbePrompt = "compact"
    mode: StudentMode = StudentMode.EXPLAIN
    metadata: MetadataSetting = MetadataSetting.FULL
    thinking: bool = False
    layer: Literal["penultimate"] | Annotated[int, Field(ge=0)] = "penultimate"
    head: HeadKind = "linear"
    c: Annotated[tuple[Annotated[float, Field(gt=0, le=1e6)], ...], Field(min_length=1)] = (
        1e-4,
        1e-3,
        1e-2,
        1e-1,
        1.0,
    )
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    max_cases: Annotated[
        int | None,
        Field(gt=0, description="to learn from, a seeded sample by label; all where absent"),
    ] = None

    @model_validator(mode="after")
    def _prompt_is_a_models_own(self) -> Self:
        of_a_model = {"revision", "prompt", "mode", "metadata", "thinking"}
        idle = sorted(of_a_model & self.model_dump(exclude_defaults=True).keys())
        if idle and self.model is None:
            raise ValueError(f"{', '.join(idle)}: the student has its own; they go with `model`")
        if self.mode is StudentMode.DECIDE and self.prompt != "compact":
            raise ValueError("mode decide is a way of the compact prompt only")
        return self
