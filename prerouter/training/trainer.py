"""TRL's trainer over our examples: its settings, its data set, the student's weights."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import util
from typing import TYPE_CHECKING, Any, Literal

from prerouter.core.errors import InputError, MissingDependencyError, RecipeError
from prerouter.prompts.system_turn import check_tokenizer
from prerouter.recipe.engine import Dtype
from prerouter.recipe.train import LoraSection, TrainSection, WatchSection
from prerouter.training.examples import TokenisedExample, as_chat
from prerouter.training.launch import check_one_gpu
from prerouter.training.loss import WEIGHT, student_trainer
from prerouter.training.watch import CHOSEN_BY

if TYPE_CHECKING:
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import BitsAndBytesConfig, PreTrainedModel, PreTrainedTokenizerBase
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


def read_tokenizer(key: str, model_path: str, revision: str | None) -> PreTrainedTokenizerBase:
    """A model's tokenizer. Raises InputError, in the name of the recipe's `key`, without one."""
    from transformers import AutoTokenizer

    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            model_path, revision=revision, trust_remote_code=False
        )
    except (OSError, ValueError) as error:
        raise InputError(key, f"{model_path} has no tokenizer: {error}") from None
    return tokenizer


def load_tokenizer(model_path: str, revision: str | None) -> PreTrainedTokenizerBase:
    """The tokenizer of a chat model. Raises InputError where it is missing or has no template."""
    tokenizer = read_tokenizer("train.model", model_path, revision)
    if tokenizer.chat_template is None:
        raise InputError(
            "train.model", f"{model_path} has no chat template", "an instruction-tuned model"
        )
    check_tokenizer("train.model", model_path, tokenizer)
    return tokenizer


def sft_settings(section: TrainSection, seed: int, name: str) -> dict[str, Any]:
    """The fields of SFTConfig that a run sets: ours, then the recipe's, then those we own."""
    import torch

    return {
        **DEFAULTS,
        **section.sft,
        **_watched(section.watch),
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
    weights: Sequence[float] | None = None,
    *,
    on_cpu: bool | None = None,
) -> SFTTrainer:
    """TRL's trainer over examples as text, so that its own tokenisation and masking run.

    `weights` are one number for each training example. `on_cpu` chooses how the loss is computed,
    by the device that is used where it isn't given.
    """
    from transformers import set_seed
    from transformers.trainer_callback import PrinterCallback
    from trl import SFTConfig

    try:
        arguments = SFTConfig(**settings)
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError("train.sft", f"SFTConfig refuses it: {error}") from None
    check_one_gpu(arguments, "train")
    set_seed(arguments.seed)  # adapters begin with random weights
    quantised = quantisation(section)
    model = load_student(model_path, section, quantised)
    _check_model_fits([*train, *validation], model)
    try:
        cpu = arguments.device.type == "cpu" if on_cpu is None else on_cpu
        trainer = student_trainer(cpu)(
            model=model,
            args=arguments,
            train_dataset=_dataset(train, section.thinking, weights),
            eval_dataset=_dataset(validation, section.thinking) if validation else None,
            processing_class=tokenizer,
            peft_config=adapters(section.lora, "CAUSAL_LM") if section.lora else None,
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError("train", f"the trainer refuses it: {error}") from None
    if quantised is not None:
        # trl rounds the adapters over a quantised base to bfloat16, which loses small updates.
        for parameter in trainer.model.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
    trainer.remove_callback(PrinterCallback)
    return trainer


def load_student(
    model_path: str, section: TrainSection, quantised: BitsAndBytesConfig | None = None
) -> PreTrainedModel:
    """The model as it is before training, its weights in float32 or quantised. Raises InputError.

    float32, since transformers would take the checkpoint's own dtype, and full fine-tuning of
    bfloat16 weights loses most updates to rounding.
    """
    import torch
    from transformers import AutoModelForCausalLM

    try:
        model: PreTrainedModel = AutoModelForCausalLM.from_pretrained(
            model_path,
            revision=section.revision,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            quantization_config=quantised,
        )
    except (OSError, ValueError) as error:
        raise InputError("train.model", f"{model_path} can't be loaded: {error}") from None
    return model


def quantisation(section: TrainSection) -> BitsAndBytesConfig | None:
    """How bitsandbytes holds the frozen base; None where it is not quantised.

    Raises RecipeError without a GPU, MissingDependencyError without bitsandbytes.
    """
    kind = section.lora.quantization if section.lora else None
    if kind is None:
        return None
    import torch

    if section.device == "cpu" or not torch.cuda.is_available():
        raise RecipeError(
            "train.lora.quantization",
            f"{kind} needs a GPU, and none is used here",
            "LoRA without it, over float32 weights",
            "leave it out, or train on a machine with a GPU",
        )
    if util.find_spec("bitsandbytes") is None:
        raise MissingDependencyError("bitsandbytes", "qlora")
    return bits_and_bytes(kind, section.dtype)


def bits_and_bytes(kind: Literal["nf4", "fp4", "int8"], dtype: Dtype) -> BitsAndBytesConfig:
    """4 bits with quantised constants (Dettmers et al., 2023), or 8; arithmetic in `dtype`."""
    import torch
    from transformers import BitsAndBytesConfig

    if kind == "int8":
        return BitsAndBytesConfig(load_in_8bit=True)
    return BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type=kind,
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=getattr(torch, dtype),
    )


def _watched(watch: WatchSection | None) -> dict[str, Any]:
    """A look and a checkpoint at the same steps, and the best of them loaded at the end."""
    if watch is None:
        return {}
    every = int(watch.every) if watch.every >= 1 else watch.every
    return {
        "eval_strategy": "steps",
        "eval_steps": every,
        "save_strategy": "steps",
        "save_steps": every,
        "load_best_model_at_end": True,
        "metric_for_best_model": CHOSEN_BY,
        "greater_is_better": True,
        # So that patience counts on where a killed run left it.
        "restore_callback_states_from_checkpoint": watch.patience is not None,
    }


def _dataset(
    examples: Sequence[TokenisedExample], thinking: bool, weights: Sequence[float] | None = None
) -> Dataset:
    from datasets import Dataset

    rows: list[dict[str, Any]] = [
        {
            "prompt": as_chat(row.example.prompt),
            "completion": as_chat(row.example.completion),
            "chat_template_kwargs": {"enable_thinking": thinking},
        }
        for row in examples
    ]
    for row, weight in zip(rows, weights or (), strict=weights is not None):
        row[WEIGHT] = weight
    return Dataset.from_list(rows)


def adapters(section: LoraSection, task: Literal["CAUSAL_LM", "SEQ_CLS"]) -> LoraConfig:
    """peft's configuration; a classification head is trained whole beside the adapters."""
    from peft import LoraConfig

    modules = section.target_modules
    return LoraConfig(
        r=section.r,
        lora_alpha=section.alpha,
        lora_dropout=section.dropout,
        target_modules=modules if isinstance(modules, str) else list(modules),
        task_type=task,
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
