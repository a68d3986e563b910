"""A probe study: one YAML file, complete and readable alone, that `prerouter probe` runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from prerouter.core.records import Identifier, MetadataSetting, StudentMode
from prerouter.recipe.base import Section, apply_overrides, read_yaml, validate
from prerouter.recipe.engine import Dtype
from prerouter.recipe.probe_router import ProbePrompt
from prerouter.recipe.route import RouterName

ProbeTarget = Literal["ideal_label", "own_route", "document_type", "task_type"]
Layer = Literal["penultimate", "all"] | Annotated[int, Field(ge=0)]
"""0 is the embedding, the model's number of layers its last; `all` gives a curve."""


class ProbeSubject(Section):
    """One row of the table: a model with a prompt.

    `distilled` says in the table that the model is a trained student, and changes nothing else.
    `own_route` names the router of the run whose decisions are this model's own; without it the
    model is asked which route is likelier as the text after the prompt.
    """

    # A file of numbers bears it: no beginning of a formula.
    name: Annotated[str, Field(pattern=r"^[\w.,()/][\w .,+()/-]*$", max_length=80)]
    model: Identifier
    revision: str | None = None
    prompt: ProbePrompt
    mode: Annotated[StudentMode, Field(description="of a compact prompt")] = StudentMode.EXPLAIN
    metadata: MetadataSetting = MetadataSetting.FULL
    thinking: bool = False
    distilled: bool = False
    own_route: RouterName | None = None

    @model_validator(mode="after")
    def _mode_belongs_to_compact(self) -> Self:
        if self.mode is StudentMode.DECIDE and self.prompt != "compact":
            raise ValueError("mode decide is a way of the compact prompt only")
        return self


class ProbeStudy(Section):
    """Linear probes on frozen prompt states (Chen et al., 2026, arXiv 2605.10235, section 1).

    `run` is the folder of a finished run: its cases, its split, its labels. Probes learn from its
    train split (their regularisation `c` is chosen by cross-validation in it) and are measured on
    its test split; `max_questions` draws that many questions of each.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 13
    runs_dir: Path = Path("runs")
    run: Path
    rows: Annotated[tuple[ProbeSubject, ...], Field(min_length=1)]
    targets: Annotated[tuple[ProbeTarget, ...], Field(min_length=1)] = (
        "ideal_label",
        "own_route",
        "document_type",
        "task_type",
    )
    layer: Layer = "penultimate"
    max_questions: Annotated[int | None, Field(ge=2)] = None
    dtype: Dtype = "float32"
    batch_size: Annotated[int, Field(gt=0)] = 8
    folds: Annotated[int, Field(ge=2, le=20)] = 5
    c: Annotated[
        tuple[Annotated[float, Field(gt=0, le=1e6)], ...],
        Field(min_length=1, description="inverse strengths of regularisation to choose from"),
    ] = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    resamples: Annotated[int, Field(ge=100)] = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    min_cases: Annotated[int, Field(ge=2, description="fewer are flagged or refused")] = 30

    @field_validator("targets", "c")
    @classmethod
    def _each_once(cls, value: tuple[object, ...]) -> tuple[object, ...]:
        if len(set(value)) != len(value):
            raise ValueError("each is named once")
        return value

    @field_validator("rows")
    @classmethod
    def _names_differ(cls, value: tuple[ProbeSubject, ...]) -> tuple[ProbeSubject, ...]:
        if len({row.name for row in value}) != len(value):
            raise ValueError("each row has a name of its own")
        return value

    @model_validator(mode="after")
    def _reads_another_folder(self) -> Self:
        if self.run == self.folder.parent:
            raise ValueError("name: the study needs a folder of its own, and this is its run's")
        return self

    @property
    def folder(self) -> Path:
        """Where the study puts its table, its curve and the states it has read."""
        return self.runs_dir / self.name / "probe"


def load_study(path: Path, overrides: Sequence[str] = ()) -> ProbeStudy:
    """Read and validate a study. Raises a CombinedError that names every mistake."""
    return validate(ProbeStudy, apply_overrides(read_yaml(path), overrides), str(path))
