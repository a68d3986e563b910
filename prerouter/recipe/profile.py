"""`profile`: title and types inferred by a small model, the *generated* metadata setting."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, field_validator

from prerouter.recipe.base import Section
from prerouter.recipe.engine import EngineSection

TypeName = Annotated[str, Field(min_length=1, max_length=60)]


class ProfileSection(Section):
    """A small model infers title, document type and task type from the question and the head
    (Pre-Route, section 1: metadata m, *generated*), one call a question, decoded greedily.

    `document_types` and `task_types` are the names to choose from; where one is empty, the model
    finds words of its own, which suit a prompt better than a classical router.
    """

    engine: EngineSection
    document_types: tuple[TypeName, ...] = ()
    task_types: tuple[TypeName, ...] = ()
    max_tokens: Annotated[int, Field(gt=0)] = 256
    thinking: bool = False
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @field_validator("document_types", "task_types")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each type is named once")
        return value
