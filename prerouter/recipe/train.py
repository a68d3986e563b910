"""`train`: the student, its prompt, and TRL's settings."""

from __future__ import annotations

import difflib
import json
import re
from functools import cache
from importlib import resources
from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from prerouter.core.records import Identifier, MetadataSetting, StudentMode
from prerouter.recipe.base import Section
from prerouter.recipe.engine import Dtype

# Fields of SFTConfig that other keys of the recipe decide, each with the key to use instead.
OWNED_SFT_FIELDS: dict[str, str] = {
    "output_dir": "runs_dir (the stage writes into its own folder)",
    "run_name": "name",
    "seed": "seed",
    "data_seed": "seed",
    "max_length": "train.max_length",
    "bf16": "train.dtype",
    "fp16": "train.dtype",
    "model_init_kwargs": "train.model, train.revision and train.dtype",
    "pad_token": "train.pad_token",
    "eos_token": "train.model (the chat template's end of turn is used)",
    "chat_template_path": "train.model",
    "completion_only_loss": "nothing: the loss is on the completion only",
    "assistant_only_loss": "nothing: the loss is on the completion only",
    "dataset_text_field": "nothing: examples are prompt and completion",
    "dataset_kwargs": "nothing: examples are prompt and completion",
    "remove_unused_columns": "nothing: examples are prompt and completion",
    "push_to_hub": "publish",
    "hub_model_id": "publish.repo_id",
    "hub_token": "the environment variable HF_TOKEN",
    "hub_private_repo": "publish.private",
    "hub_strategy": "publish",
    "hub_revision": "publish",
    "hub_always_push": "publish",
    "resume_from_checkpoint": "nothing: a killed run goes on by itself",
    "trust_remote_code": "nothing: a model may not bring code along",
    "use_cpu": "train.device",
    "disable_tqdm": "nothing: the stage has a progress bar of its own",
    "logging_nan_inf_filter": "nothing: a loss that is no number is an error",
    "save_only_model": "nothing: a checkpoint holds what a killed run needs to go on",
    "truncation_mode": "train.max_length (longer examples are refused, none is cut)",
    "do_train": "nothing: train always trains",
    "do_eval": "nothing: it evaluates where validation examples exist",
    "do_predict": "route",
}


@cache
def sft_fields() -> dict[str, str]:
    """Name and annotation of every field of the pinned trl's SFTConfig, read without importing it.

    `scripts/make_sft_fields.py` writes the file; a test holds it against the installed trl.
    """
    fields: dict[str, str] = _sft_file()["fields"]
    return fields


@cache
def sft_choices() -> dict[str, list[str]]:
    """The texts that a field takes, of those that take some only."""
    choices: dict[str, list[str]] = _sft_file()["choices"]
    return choices


def _sft_file() -> dict[str, Any]:
    text = resources.files("prerouter.recipe").joinpath("sft_fields.json").read_text("utf-8")
    data: dict[str, Any] = json.loads(text)
    return data


# With 0 of these nothing is learnt, or the trainer fails after the teacher was paid.
_POSITIVE = frozenset(
    {
        "per_device_train_batch_size",
        "per_device_eval_batch_size",
        "gradient_accumulation_steps",
        "num_train_epochs",
        "max_steps",
        "logging_steps",
        "save_steps",
        "eval_steps",
    }
)
_NO_LIMIT = {"max_steps": -1}


# A float takes a whole number too; a truth value is no number.
_TAKEN: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "dict": (dict,),
    "list": (list,),
    "None": (type(None),),
}


def _fits(value: Any, annotation: str) -> bool:
    """Whether YAML's `value` can be what the annotation says. Enums are given by their text."""
    names = re.findall(r"[A-Za-z_.]+", _shown(annotation))
    taken = {kind for name in names for kind in _TAKEN.get(name, (str,))}
    if isinstance(value, bool):
        return bool in taken
    return isinstance(value, tuple(taken))


def _is_positive(setting: Any) -> bool:
    return not isinstance(setting, (int, float)) or setting > 0


def _shown(annotation: str) -> str:
    return re.sub(r"<(?:class|enum) '([^']+)'>", r"\1", annotation)


class LoraSection(Section):
    """Low-rank adapters by peft; merged in float32 when the router is exported.

    With `quantization` the frozen base is held in 4 or 8 bits by bitsandbytes (QLoRA: Dettmers et
    al., 2023, arXiv 2305.14314), which needs a GPU and the extra `qlora`.
    """

    r: Annotated[int, Field(gt=0)] = 16
    alpha: Annotated[int, Field(gt=0)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    target_modules: tuple[str, ...] | Literal["all-linear"] = "all-linear"
    quantization: Literal["nf4", "fp4", "int8"] | None = None


class WatchSection(Section):
    """Looks at the student while it learns: it decides some validation cases, greedily and by the
    router's own prompt, and route accuracy, LC rate and parse rate are logged beside the loss.

    The weights that routed best are exported, of equals those with the least validation loss;
    `patience` ends training after so many looks without a better route accuracy. The cases are a
    seeded sample that holds each ideal route by its share.
    """

    cases: Annotated[int, Field(gt=0)] = 64
    every: Annotated[
        float, Field(gt=0, description="steps; below 1 a share of all steps, such as 0.2")
    ] = 0.2
    patience: Annotated[int, Field(gt=0)] | None = None
    mode: Annotated[
        StudentMode | None,
        Field(description="where absent, the one that is calibrated, else train.mix's first"),
    ] = None

    @field_validator("every")
    @classmethod
    def _whole_steps(cls, value: float) -> float:
        if value >= 1 and not value.is_integer():
            raise ValueError(f"{value} is no whole number of steps")
        return value


# What `watch` decides: it needs a whole checkpoint at each look, and the best of them at the end.
WATCH_SFT_FIELDS = frozenset(
    {
        "eval_strategy",
        "eval_steps",
        "save_strategy",
        "save_steps",
        "load_best_model_at_end",
        "metric_for_best_model",
        "greater_is_better",
    }
)


class WeightsSection(Section):
    """Cost-sensitive training: an example counts by what a wrong route would cost its case, the
    size of its score margin |U(LC) - U(RAG)|. The weights' mean over all completion tokens is 1.

    `least` is the smallest weight, as a share of the largest margin's: a tie is learnt a little.
    """

    by: Literal["margin"]
    least: Annotated[float, Field(ge=0, le=1)] = 0.1


class MixSection(Section):
    """How many examples of each mode a kept trace gives: the six steps and then the route
    (`explain`, the paper's), or the route alone (`decide`, one token)."""

    explain: Annotated[int, Field(ge=0, le=16)] = 1
    decide: Annotated[int, Field(ge=0, le=16)] = 0

    @model_validator(mode="after")
    def _something_is_learnt(self) -> Self:
        if not self.modes:
            raise ValueError("explain or decide has to be 1 or more")
        return self

    @property
    def counts(self) -> dict[StudentMode, int]:
        return {StudentMode.EXPLAIN: self.explain, StudentMode.DECIDE: self.decide}

    @property
    def modes(self) -> tuple[StudentMode, ...]:
        """The modes that the student is trained in."""
        return tuple(mode for mode, count in self.counts.items() if count)


class TrainSection(Section):
    """Supervised fine-tuning of the student on kept traces, loss on the completion only."""

    model: Identifier
    revision: str | None = None
    prompt: Literal["guided", "compact"] = "compact"
    metadata: MetadataSetting = MetadataSetting.FULL
    mix: MixSection = MixSection()
    thinking: bool = False
    max_length: Annotated[int, Field(gt=0, description="tokens of prompt and completion")] = 4000
    dtype: Dtype = "bfloat16"
    device: Literal["auto", "cpu"] = "auto"
    pad_token: Annotated[
        str | None, Field(description="a token of the vocabulary other than the end of turn")
    ] = None
    lora: LoraSection | None = None
    weights: WeightsSection | None = None
    watch: WatchSection | None = None
    validation_examples: Annotated[
        int | None,
        Field(gt=0, description="for the validation loss, a seeded sample; all where absent"),
    ] = None
    processes: Annotated[
        int | None, Field(gt=0, description="as many the launcher has to start, else an error")
    ] = None
    sft: dict[str, Any] = {}

    @field_validator("sft")
    @classmethod
    def _known_and_ours_to_pass(cls, value: dict[str, Any]) -> dict[str, Any]:
        check_fields(value, OWNED_SFT_FIELDS, "SFTConfig")
        return value

    @model_validator(mode="after")
    def _go_together(self) -> Self:
        mistakes = []
        if self.watch:
            taken = sorted(WATCH_SFT_FIELDS & self.sft.keys())
            mistakes += [f"sft.{name} is not set beside watch: use watch.every" for name in taken]
            if self.watch.mode and self.watch.mode not in self.mix.modes:
                mistakes.append(f"watch.mode {self.watch.mode} is not in mix")
        if self.weights:
            joined = [name for name in ("packing", "padding_free") if self.sft.get(name)]
            mistakes += [f"sft.{name} joins examples, so weights can't stand" for name in joined]
            if self.sft.get("loss_type", "nll") != "nll" or self.sft.get("label_smoothing_factor"):
                mistakes.append("weights are for the plain loss: sft.loss_type nll, no smoothing")
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self


def check_fields(settings: dict[str, Any], owned: dict[str, str], kind: str) -> None:
    """Raises ValueError with every setting of `settings` that is another key's (`owned`), no field
    of `kind`, a class of TRL's or transformers', or of a type or value that the field doesn't take.
    """
    mistakes = []
    for name, setting in settings.items():
        if name in owned:
            mistakes.append(f"{name} is not set here: use {owned[name]}")
        elif name not in sft_fields():
            near = difflib.get_close_matches(name, sft_fields(), n=1)
            hint = f" (did you mean {near[0]}?)" if near else ""
            mistakes.append(f"{name} is no field of {kind}{hint}")
        elif not _fits(setting, sft_fields()[name]):
            mistakes.append(f"{name} takes {_shown(sft_fields()[name])}, got {setting!r:.40}")
        elif isinstance(setting, str) and setting not in sft_choices().get(name, [setting]):
            near = difflib.get_close_matches(setting, sft_choices()[name], n=1)
            taken = f"did you mean {near[0]}?" if near else ", ".join(sft_choices()[name])
            mistakes.append(f"{name} {setting!r:.40} is none of its values ({taken})")
        elif name in _POSITIVE and not _is_positive(setting) and setting != _NO_LIMIT.get(name):
            mistakes.append(f"{name} is above 0, got {setting!r:.40}")
    if mistakes:
        raise ValueError("; ".join(mistakes))
