"""A study of prompts: one YAML file, complete and readable alone, that `prerouter study` runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal, Self, get_args

from pydantic import Field, field_validator, model_validator

from prerouter.core.records import MetadataSetting, Split
from prerouter.recipe.base import Section, apply_overrides, read_yaml, validate
from prerouter.recipe.engine import EngineSection
from prerouter.recipe.teach import Paradigm, PromptPart, TeacherPrompt, TeachSection

Preset = Literal["paradigms", "guideline", "metadata"]

# A folder bears it: no "..", and no end that a file system would drop.
_Name = Annotated[str, Field(pattern=r"^[^\W_]([\w .+-]*[\w+-])?$", max_length=64)]

PRESETS: dict[Preset, dict[str, TeacherPrompt]] = {
    "paradigms": {paradigm: TeacherPrompt(paradigm=paradigm) for paradigm in get_args(Paradigm)},
    "guideline": {
        "full": TeacherPrompt(),
        **{
            f"no {part.replace('_', ' ')}": TeacherPrompt(without=(part,))
            for part in get_args(PromptPart)
        },
    },
    "metadata": {
        setting.value.replace("_", " "): TeacherPrompt(metadata=setting)
        for setting in MetadataSetting
    },
}
"""The paper's studies by name: three paradigms, the guideline without each of its parts, the three
metadata settings (Chen et al., 2026, arXiv 2605.10235)."""


class StudyModel(Section):
    """A model that is asked for decisions, distilled or not."""

    name: _Name
    engine: EngineSection
    thinking: bool = False


class PromptStudy(Section):
    """Variants of the prompt by models, every pair of them a router over the same cases.

    `run` is the folder of a finished run: its cases, its split, its labels and scores. Variants are
    those of a `preset`, or named here. With several `samples` a case, each has a seed of its own:
    the first is the router's decision, and all count for best of N.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 13
    runs_dir: Path = Path("runs")
    run: Path
    split: Split = Split.TEST
    models: Annotated[tuple[StudyModel, ...], Field(min_length=1)]
    preset: Preset | None = None
    variants: Annotated[dict[_Name, TeacherPrompt], Field(min_length=1)] | None = None
    max_questions: Annotated[int | None, Field(ge=1, description="a seeded draw")] = None
    samples: Annotated[int, Field(ge=1, le=64)] = 1
    best_of: Annotated[
        tuple[Annotated[int, Field(ge=1, le=64)], ...], Field(description="values of N")
    ] = (1, 2, 4, 8)
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1
    resamples: Annotated[int, Field(ge=100)] = 1000
    confidence: Annotated[float, Field(gt=0.5, lt=1)] = 0.95
    min_cases: Annotated[int, Field(ge=1, description="fewer are flagged")] = 30

    @field_validator("models")
    @classmethod
    def _names_differ(cls, value: tuple[StudyModel, ...]) -> tuple[StudyModel, ...]:
        if len({model.name for model in value}) != len(value):
            raise ValueError("each model has a name of its own")
        return value

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        mistakes = []
        if (self.preset is None) == (self.variants is None):
            mistakes.append(f"takes a preset ({', '.join(PRESETS)}) or `variants`")
        if self.samples > 1 and self.temperature == 0:
            mistakes.append("samples at temperature 0 are all alike: set temperature")
        if self.run == self.runs_dir / self.name:
            mistakes.append("name: the study needs a folder of its own, and this is its run's")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    @property
    def folder(self) -> Path:
        """Where the study puts its traces and its table."""
        return self.runs_dir / self.name / "study"

    @property
    def prompts(self) -> dict[str, TeacherPrompt]:
        """The variants by name."""
        if self.variants is not None:
            return self.variants
        assert self.preset is not None
        return PRESETS[self.preset]

    def asking(self, model: StudyModel, prompt: TeacherPrompt) -> TeachSection:
        """How one model is asked by one variant, in the words of a `teach` section."""
        return TeachSection(
            engine=model.engine,
            prompt=prompt,
            samples=self.samples,
            temperature=self.temperature,
            top_p=self.top_p,
            max_tokens=self.max_tokens,
            thinking=model.thinking,
            splits=(self.split,),
            max_failed_share=self.max_failed_share,
        )


def load_prompt_study(path: Path, overrides: Sequence[str] = ()) -> PromptStudy:
    """Read and validate a study. Raises a CombinedError that names every mistake."""
    return validate(PromptStudy, apply_overrides(read_yaml(path), overrides), str(path))
