"""`classify`: a student with a classification head, the plain baseline of trace distillation."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from prerouter.core.records import Identifier, MetadataSetting
from prerouter.recipe.base import Section
from prerouter.recipe.engine import Dtype
from prerouter.recipe.train import OWNED_SFT_FIELDS, LoraSection, check_fields, sft_fields

# Fields of SFTConfig that TrainingArguments lacks; a test holds them against the installed trl.
SFT_ONLY_FIELDS = frozenset(
    {
        "activation_offloading",
        "assistant_only_loss",
        "chat_template_path",
        "completion_only_loss",
        "dataset_kwargs",
        "dataset_num_proc",
        "dataset_text_field",
        "eos_token",
        "eval_packing",
        "loss_type",
        "max_length",
        "model_init_kwargs",
        "packing",
        "packing_strategy",
        "pad_to_multiple_of",
        "pad_token",
        "padding_free",
        "router_aux_loss_coef",
        "shuffle_dataset",
        "trust_remote_code",
        "truncation_mode",
    }
)


class ClassifySection(Section):
    """Sequence classification: the ideal route from the metadata prompt, by a head of two outputs.

    It learns the label of every labelled training case, kept trace or not. `model` is any model
    that transformers can put such a head on. Routes as `classifier`. With `class_weight: balanced`
    the rare route counts as much as the other, and p_lc is too high where LC is rare.
    """

    model: Identifier
    revision: str | None = None
    prompt: Literal["guided", "compact"] = "compact"
    metadata: MetadataSetting = MetadataSetting.FULL
    max_length: Annotated[int, Field(gt=0, description="tokens of the prompt")] = 4000
    dtype: Dtype = "bfloat16"
    device: Literal["auto", "cpu"] = "auto"
    lora: LoraSection | None = None
    class_weight: Annotated[
        Literal["balanced"] | None,
        Field(description="balanced: a case counts by the inverse of its route's frequency"),
    ] = None
    processes: Annotated[
        int | None, Field(gt=0, description="as many the launcher has to start, else an error")
    ] = None
    arguments: Annotated[
        dict[str, Any], Field(description="fields of transformers.TrainingArguments")
    ] = {}

    @field_validator("arguments")
    @classmethod
    def _known_and_ours_to_pass(cls, value: dict[str, Any]) -> dict[str, Any]:
        kind = "TrainingArguments"
        foreign = SFT_ONLY_FIELDS & sft_fields().keys()
        owned = {
            name: hint.replace("train.", "classify.")
            for name, hint in OWNED_SFT_FIELDS.items()
            if name not in foreign
        }
        check_fields(value, owned | dict.fromkeys(foreign, f"nothing: no field of {kind}"), kind)
        return value

    @field_validator("lora")
    @classmethod
    def _not_quantised(cls, value: LoraSection | None) -> LoraSection | None:
        if value and value.quantization:
            raise ValueError("quantization is for `train`: the head's base is held in float32")
        return value

    @model_validator(mode="after")
    def _weights_the_plain_loss(self) -> Self:
        if self.class_weight == "balanced" and self.arguments.get("label_smoothing_factor"):
            raise ValueError(
                "class_weight: balanced weighs the plain loss: leave out label_smoothing_factor"
            )
        return self
