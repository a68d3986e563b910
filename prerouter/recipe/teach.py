"""`teach`, `filter` and `dataset`: the teacher's traces, which are kept, how they are handed on."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from prerouter.core.records import MetadataSetting, Split
from prerouter.recipe.base import Section
from prerouter.recipe.engine import EngineSection
from prerouter.recipe.hub import Language, Licence, RepoId

Paradigm = Literal["guided", "direct", "unconstrained"]
PromptPart = Literal[
    "reflection",
    "decision_rules",
    "step_1",
    "step_2",
    "step_3",
    "step_4",
    "step_5",
    "step_6",
]


class TeacherPrompt(Section):
    """The teacher's prompt: its paradigm, and the parts an ablation leaves out."""

    paradigm: Paradigm = "guided"
    without: tuple[PromptPart, ...] = ()
    metadata: MetadataSetting = MetadataSetting.FULL

    @model_validator(mode="after")
    def _parts_belong_to_guided(self) -> Self:
        if self.without and self.paradigm != "guided":
            raise ValueError("`without` takes parts from the guided prompt only")
        return self


class TeachSection(Section):
    """Who writes the traces. `guideline` writes them by explicit rules over the metadata: a
    stand-in, which every output names as such; `engine` asks a large model."""

    teacher: Literal["guideline", "engine"] = "engine"
    engine: EngineSection | None = None
    prompt: TeacherPrompt = TeacherPrompt()
    samples: Annotated[int, Field(ge=1, le=64)] = 1
    temperature: Annotated[float, Field(ge=0, le=2)] = 0.7
    top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    max_tokens: Annotated[int, Field(gt=0)] = 2048
    thinking: bool = False
    keep_reasoning: Annotated[
        bool, Field(description="keep a thinking teacher's reasoning in its traces, unparsed")
    ] = False
    splits: tuple[Split, ...] = (Split.TRAIN, Split.VALIDATION)
    max_failed_share: Annotated[float, Field(ge=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _engine_fits(self) -> Self:
        if self.teacher == "engine" and self.engine is None:
            raise ValueError("teacher `engine` needs an `engine`; `guideline` needs none")
        if self.teacher == "guideline" and self.engine is not None:
            raise ValueError("teacher `guideline` writes by rules and takes no `engine`")
        if self.teacher == "guideline" and self.prompt != TeacherPrompt():
            raise ValueError("teacher `guideline` reads no prompt: leave `prompt` out")
        return self


class FilterSection(Section):
    """Rejection sampling: keep the traces whose decision is the ideal label."""

    traces: Annotated[
        Path | None, Field(description="the user's own traces (JSONL of Trace records)")
    ] = None
    per_case: Annotated[int, Field(ge=1, description="distinct traces kept for a case")] = 1
    balance: Literal["none", "downsample"] = "none"
    one_class: Literal["error", "warn"] = "error"


class DatasetSection(Section):
    """The traces as a folder of Parquet files with a card, ready for the Hub.

    `license` is that of the data set, `source_license` that of the questions and documents it
    quotes. `prompt` is the form of the examples' prompts: the student's, where one is trained.
    """

    license: Licence
    source_license: str | None = None
    language: tuple[Language, ...] = ("en",)
    repo_id: RepoId | None = None
    private: bool = False
    prompt: Literal["guided", "compact"] | None = None
    shard_rows: Annotated[int, Field(ge=1, description="rows of a Parquet file, at most")] = 20_000
