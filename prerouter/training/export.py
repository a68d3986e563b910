"""From a trainer to a folder that plain `from_pretrained` loads, however the training was spread.

Weights are written in float32, the dtype they were trained in. Whoever loads them chooses the
dtype of the arithmetic. A file in bfloat16 would round the updates for everyone: of a merged
SmolLM2-135M it moves logits by up to 0.26 under float32 arithmetic.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from prerouter.core.errors import StageError
from prerouter.training.launch import gather_weights, is_sharded

if TYPE_CHECKING:
    from peft import PeftModel
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer


def check_weights(model: PreTrainedModel | None, stage: str) -> None:
    """Raises StageError where a parameter holds a NaN or an infinity."""
    import torch

    for name, parameter in model.named_parameters() if model is not None else ():
        if not torch.isfinite(parameter).all():
            raise StageError(stage, f"weights are not finite after training: {name}")


def whole_student(
    trainer: Trainer, load_base: Callable[[], PreTrainedModel], adapter_dir: Path
) -> PreTrainedModel | None:
    """The trained model, plain, whole and in float32; None in every process but the first.

    All processes have to call it. Adapters are merged in float32: merged in bfloat16, logits shift
    by as much as 0.8. Where the trained model is spread over processes or its base is quantised,
    the weights go into a new one that `load_base` gives: the base model in float32. The adapter
    alone is left in `adapter_dir`, for whoever publishes it so.
    """
    from peft import PeftModel, get_peft_model_state_dict, set_peft_model_state_dict
    from transformers.integrations import unset_hf_deepspeed_config

    sharded = is_sharded(trainer)
    weights = gather_weights(trainer) if sharded else {}
    if not trainer.is_world_process_zero():
        return None
    trained = trainer.accelerator.unwrap_model(trainer.model)
    adapted = isinstance(trained, PeftModel)
    quantised = bool(getattr(trained, "is_quantized", False))
    shutil.rmtree(adapter_dir, ignore_errors=True)
    if not sharded and not quantised:
        return _merged(trained, adapter_dir) if adapted else trained
    unset_hf_deepspeed_config()  # under ZeRO-3 it would be spread over the processes again
    base = load_base()
    if adapted:
        name = trained.active_adapter
        fresh = PeftModel(base, trained.peft_config[name], adapter_name=name)
        found = get_peft_model_state_dict(trained, weights or None, adapter_name=name)
        lost = set_peft_model_state_dict(fresh, found, adapter_name=name).unexpected_keys
        if lost or not found:
            raise StageError("train", f"{len(lost)} weights of the adapter have no place: {lost}")
        return _merged(fresh, adapter_dir)
    missing = [name for name, _ in base.named_parameters() if name not in weights]
    if missing:
        raise StageError("train", f"{len(missing)} weights were not gathered, {missing[0]} first")
    base.load_state_dict(weights, strict=False)
    return base


def _merged(model: PeftModel, adapter_dir: Path) -> PreTrainedModel:
    # Without the embeddings, which peft would look for on the Hub: they are the base's own.
    model.save_pretrained(str(adapter_dir), save_embedding_layers=False)
    whole: PreTrainedModel = model.merge_and_unload(safe_merge=True)
    return whole


def export_student(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, end_of_turn: int, folder: Path
) -> None:
    """Write a causal model, its generation config and tokenizer to `folder`, by one rename.

    Generation stops at the end of turn that the student was taught, and does not sample.
    """
    from transformers import GenerationConfig

    model.config.eos_token_id = end_of_turn
    model.config.pad_token_id = tokenizer.pad_token_id
    model.config.use_cache = True
    model.generation_config = GenerationConfig(
        eos_token_id=end_of_turn,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        do_sample=False,
    )
    save_model(model, tokenizer, folder)


def save_model(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> None:
    """Write a model and its tokenizer to `folder`, by one rename."""
    staged = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(staged, ignore_errors=True)
    model.save_pretrained(staged)
    tokenizer.save_pretrained(staged)
    shutil.rmtree(folder, ignore_errors=True)
    staged.rename(folder)
