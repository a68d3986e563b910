"""TRL's trainer over our examples: its settings, its data set, the student's weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import InputError, RecipeError
from prerouter.recipe.train import TrainSection
from prerouter.training.examples import TokenisedExample, as_chat

if TYPE_CHECKING:
    from datasets import Dataset
    from transformers import PreTrainedTokenizerBase
    from trl import SFTTrainer

# Ours only where a run has to be resumable, quiet and honest; all else is as TRL has it.
DEFAULTS: dict[str, Any] = {
    "logging_steps": 1,
    "save_strategy": "steps",
    "save_steps": 0.1,
    "save_total_limit": 2,
    "report_to": "none",
    "include_num_input_tokens_seen": "non_padding",
}


def load_tokenizer(model_path: str, revision: str | None) -> PreTrainedTokenizerBase:
    """The tokenizer of a chat model. Raises InputError where it is missing or has no template."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_path, revision=revision, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError("train.model", f"{model_path} has no tokenizer: {error}") from None
    if tokenizer.chat_template is None:
        raise InputError(
            "train.model", f"{model_path} has no chat template", "an instruction-tuned model"
        )
    return tokenizer


def sft_settings(section: TrainSection, seed: int, name: str) -> dict[str, Any]:
    """The fields of SFTConfig that a run sets: ours, then the recipe's, then those we own."""
    import torch

    return {
        **DEFAULTS,
        **section.sft,
        "run_name": name,
        "seed": seed,
        "data_seed": seed,
        "max_length": section.max_length,
        "bf16": section.dtype == "bfloat16",
        "fp16": section.dtype == "float16",
        # Without a GPU, bfloat16 is accepted only where the CPU is asked for.
        "use_cpu": section.device == "cpu" or not torch.accelerator.is_available(),
        "completion_only_loss": True,
        "disable_tqdm": True,
        # The filter would write the mean of the others in the place of a NaN.
        "logging_nan_inf_filter": False,
    }


def build_trainer(
    train: Sequence[TokenisedExample],
    validation: Sequence[TokenisedExample],
    section: TrainSection,
    settings: dict[str, Any],
    model_path: str,
    tokenizer: PreTrainedTokenizerBase,
) -> SFTTrainer:
    """TRL's trainer over examples as text, so that its own tokenisation and masking run."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    from prerouter.training.cpu_loss import cpu_trainer

    try:
        arguments = SFTConfig(**settings)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError("train.sft", f"SFTConfig refuses it: {error}") from None
    try:
        # float32: transformers would take the checkpoint's own dtype, and full fine-tuning of
        # bfloat16 weights loses most updates to rounding.
        model = AutoModelForCausalLM.from_pretrained(
            model_path,
            revision=section.revision,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except (OSError, ValueError) as error:
        raise InputError("train.model", f"{model_path} can't be loaded: {error}") from None
    _check_model_fits([*train, *validation], model)
    trainer_class = cpu_trainer() if arguments.device.type == "cpu" else SFTTrainer
    try:
        trainer = trainer_class(
            model=model,
            args=arguments,
            train_dataset=_dataset(train, section.thinking),
            eval_dataset=_dataset(validation, section.thinking) if validation else None,
            processing_class=tokenizer,
            peft_config=_lora(section),
        )
    except (TypeError, ValueError) as error:
        raise RecipeError("train", f"the trainer refuses it: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


def _dataset(examples: Sequence[TokenisedExample], thinking: bool) -> Dataset:
    from datasets import Dataset

    return Dataset.from_list(
        [
            {
                "prompt": as_chat(row.example.prompt),
                "completion": as_chat(row.example.completion),
                "chat_template_kwargs": {"enable_thinking": thinking},
            }
            for row in examples
        ]
    )


def _lora(section: TrainSection) -> Any:
    if section.lora is None:
        return None
    from peft import LoraConfig

    modules = section.lora.target_modules
    return LoraConfig(
        r=section.lora.r,
        lora_alpha=section.lora.alpha,
        lora_dropout=section.lora.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        task_type="CAUSAL_LM",
    )


def _check_model_fits(examples: Sequence[TokenisedExample], model: Any) -> None:
    longest = max(len(example.ids) for example in examples)
    positions = getattr(model.config, "max_position_embeddings", None)
    if positions is not None and longest > positions:
        raise RecipeError(
            "train.max_length",
            f"the longest example has {longest} tokens, the model reads {positions}",
            f"{positions} at most",
        )
    rows = model.get_input_embeddings().num_embeddings
    highest = max(max(example.ids) for example in examples)
    if highest >= rows:
        raise InputError(
            "train.model", f"the tokenizer gives token {highest}, the model knows {rows} tokens"
        )
