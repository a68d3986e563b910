"""A student with a classification head: the ideal route learnt from labels alone, without traces.

The plain baseline of Chen et al., 2026, arXiv 2605.10235: same cases, same metadata prompt. What it
lacks is the written judgement; what it has is every labelled case and a loss on the route itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from prerouter.core.errors import InputError, RecipeError, StageError
from prerouter.core.protocols import Progress
from prerouter.core.records import ROUTES, Count, Message, Reject, Route
from prerouter.prompts.system_turn import check_tokenizer
from prerouter.recipe.classify import ClassifySection
from prerouter.runs.processes import check_launch, world_size
from prerouter.training import resume
from prerouter.training.callbacks import make_callback
from prerouter.training.examples import ExampleReject, as_chat
from prerouter.training.export import check_weights, save_model, whole_student
from prerouter.training.launch import (
    check_one_gpu,
    check_trainer,
    count_parameters,
    describe_batch,
    dropping_what_diverged,
    global_batch,
    telling_of_deaths,
)
from prerouter.training.quiet import quiet_libraries
from prerouter.training.report import LossPoint, RunReport
from prerouter.training.reporters import check_reporters, log_beside
from prerouter.training.resume import CHECKPOINTS_DIR, MODEL_DIR
from prerouter.training.trainer import DEFAULTS, adapters, read_tokenizer
from prerouter.training.weights import balanced_loss

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer

ADAPTER_DIR = "adapter"


@dataclass(frozen=True)
class LabelledPrompt:
    """What a router sees of a case, and the case's ideal route."""

    case_id: str
    prompt: tuple[Message, ...]
    route: Route


class ClassifierReport(RunReport):
    """A finished run. `validation_accuracy` is the share of validation cases routed ideally."""

    steps: Count
    resumed_from: Count
    losses: tuple[LossPoint, ...]
    validation_accuracy: Annotated[float | None, Field(ge=0, le=1)] = None
    train_cases: dict[str, Count]
    validation_cases: Count
    longest_prompt: Count
    rejects: tuple[Reject, ...]
    total_parameters: Count
    trainable_parameters: Count
    processes: Annotated[int, Field(ge=1)]
    global_batch: Annotated[int, Field(ge=1, description="cases a step, of all processes")]
    seconds: Annotated[float, Field(ge=0)]
    settings: dict[str, Any]


def encode_prompt(tokenizer: PreTrainedTokenizerBase, prompt: Sequence[Message]) -> list[int]:
    """Token ids of a prompt: by the chat template, or as plain text for a model that has none."""
    if tokenizer.chat_template is None:
        return list(tokenizer("\n\n".join(message.content for message in prompt)).input_ids)
    return list(
        tokenizer.apply_chat_template(
            as_chat(prompt), add_generation_prompt=True, enable_thinking=False, return_dict=False
        )
    )


def classify_probabilities(
    model: PreTrainedModel, batch: Sequence[Sequence[int]], pad: int
) -> list[float]:
    """The probability of the last of ROUTES (LC) for each prompt's token ids."""
    import torch

    width = max(map(len, batch))
    ids = torch.full((len(batch), width), pad)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(batch):
        ids[row, : len(prompt)] = torch.tensor(prompt)
        mask[row, : len(prompt)] = 1
    device = next(model.parameters()).device
    with torch.inference_mode():
        logits = model(input_ids=ids.to(device), attention_mask=mask.to(device)).logits
    chances: list[float] = logits.double().softmax(-1)[:, -1].tolist()
    return chances


def train_classifier(
    train: Sequence[LabelledPrompt],
    validation: Sequence[LabelledPrompt],
    section: ClassifySection,
    model_path: str,
    folder: Path,
    seed: int,
    name: str,
    progress: Progress,
) -> ClassifierReport:
    """Fine-tune the model at `model_path` with a head for two routes, exported to `folder/model`.

    A prompt over `section.max_length` is refused and counted, never cut. Killed at any moment, the
    next call goes on from the last whole checkpoint. Raises StageError where the training cases
    hold one route only, and what `train_student` raises for settings, launches and numbers.
    """
    check_launch("classify", section.processes)
    check_reporters(section.arguments.get("report_to"), "classify.arguments.report_to")
    with quiet_libraries(), telling_of_deaths("classify"):
        tokenizer, pad = load_encoder(model_path, section.revision)
        kept, rejects = _encode(train, tokenizer, section.max_length)
        held_out, more = _encode(validation, tokenizer, section.max_length)
        counts = {
            route.value: sum(row["labels"] == i for row in kept) for i, route in enumerate(ROUTES)
        }
        if not all(counts.values()):
            raise StageError(
                "classify",
                "the training cases are " + ", ".join(f"{n} {r}" for r, n in counts.items()),
                "some of both routes",
                "look at the labels and at the rejects",
            )
        identity = {
            "classify": section.model_dump(mode="json"),
            "model": model_path,
            "seed": seed,
            "rows": kept,
            "held_out": held_out,
        }
        run = resume.fingerprint(identity, [])
        standing = resume.finished(folder, ClassifierReport, run)
        if standing is not None:
            return standing
        checkpoints = folder / CHECKPOINTS_DIR
        settings = _settings(section, seed, name)
        balanced = section.class_weight == "balanced"
        loss = balanced_loss([*counts.values()]) if balanced else None
        trainer = _build(
            kept, held_out, section, settings, checkpoints, model_path, tokenizer, pad, loss
        )
        check_trainer(trainer)
        log_beside(trainer, folder / "logs")
        if world_size() > 1 and trainer.is_world_process_zero():
            progress.note(describe_batch(trainer).replace("train:", "classify:"))
        checkpoint = resume.open_checkpoints(trainer, checkpoints, run, "classify")
        trainer.add_callback(make_callback(progress, checkpoints, "classify.arguments"))
        trainable, total = count_parameters(trainer.model)
        started = time.monotonic()
        with dropping_what_diverged(trainer, checkpoints):
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
            accuracy = trainer.evaluate()["eval_accuracy"] if held_out else None
            seconds = time.monotonic() - started
            student = whole_student(
                trainer, lambda: _load(model_path, section, pad), checkpoints / ADAPTER_DIR
            )
            check_weights(student, "classify")
        if student is not None:
            save_model(student, tokenizer, folder / MODEL_DIR)
        state = trainer.state
        report = ClassifierReport(
            fingerprint=run,
            steps=state.global_step,
            resumed_from=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0,
            losses=LossPoint.read(state.log_history),
            validation_accuracy=accuracy,
            train_cases=counts,
            validation_cases=len(held_out),
            longest_prompt=max(len(row["input_ids"]) for row in [*kept, *held_out]),
            rejects=(*rejects, *more),
            total_parameters=total,
            trainable_parameters=trainable,
            processes=trainer.accelerator.num_processes,
            global_batch=global_batch(trainer),
            seconds=seconds,
            settings=settings,
        )
        if trainer.is_world_process_zero():
            resume.close(folder, report)
        trainer.accelerator.wait_for_everyone()
        return report


def load_encoder(model_path: str, revision: str | None) -> tuple[PreTrainedTokenizerBase, int]:
    """A tokenizer and its padding token: the head reads the last token that is another one.

    Raises InputError where there is none, or where its chat template takes no system turn.
    """
    tokenizer = read_tokenizer("classify.model", model_path, revision)
    if tokenizer.chat_template is not None:
        check_tokenizer("classify.model", model_path, tokenizer)
    if tokenizer.pad_token_id is None:
        if tokenizer.eos_token is None:
            raise InputError("classify.model", f"{model_path} has no padding token")
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer, int(tokenizer.pad_token_id)


def _encode(
    rows: Sequence[LabelledPrompt], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> tuple[list[dict[str, Any]], list[Reject]]:
    kept, rejects = [], []
    for row in rows:
        ids = encode_prompt(tokenizer, row.prompt)
        if len(ids) <= max_length:
            kept.append({"input_ids": ids, "labels": ROUTES.index(row.route)})
            continue
        rejects.append(
            Reject(
                stage="classify",
                key=row.case_id,
                reason=ExampleReject.TOO_LONG,
                detail=f"{len(ids)} tokens, {max_length} at most",
            )
        )
    return kept, rejects


def _settings(section: ClassifySection, seed: int, name: str) -> dict[str, Any]:
    import torch

    return {
        **DEFAULTS,
        **section.arguments,
        "run_name": name,
        "seed": seed,
        "data_seed": seed,
        "bf16": section.dtype == "bfloat16",
        "fp16": section.dtype == "float16",
        "use_cpu": section.device == "cpu" or not torch.accelerator.is_available(),
        "disable_tqdm": True,
        "logging_nan_inf_filter": False,
    }


def _build(
    train: Sequence[dict[str, Any]],
    validation: Sequence[dict[str, Any]],
    section: ClassifySection,
    settings: dict[str, Any],
    checkpoints: Path,
    model_path: str,
    tokenizer: PreTrainedTokenizerBase,
    pad: int,
    loss: Callable[..., Any] | None,
) -> Trainer:
    from datasets import Dataset
    from peft import get_peft_model
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed
    from transformers.trainer_callback import PrinterCallback

    try:
        arguments = TrainingArguments(**settings, output_dir=str(checkpoints))
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError("classify.arguments", f"TrainingArguments refuses it: {error}") from None
    check_one_gpu(arguments, "classify")
    set_seed(arguments.seed)  # the head begins with random weights, and adapters do
    model = _load(model_path, section, pad)
    try:
        if section.lora is not None:
            model = get_peft_model(model, adapters(section.lora, "SEQ_CLS"))
        trainer = Trainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_list(list(train)),
            eval_dataset=Dataset.from_list(list(validation)) if validation else None,
            data_collator=DataCollatorWithPadding(tokenizer),
            processing_class=tokenizer,
            compute_loss_func=loss,
            compute_metrics=_accuracy,
        )
    except (TypeError, ValueError, RuntimeError) as error:
        raise RecipeError("classify", f"the trainer refuses it: {error}") from None
    trainer.remove_callback(PrinterCallback)
    return trainer


def _load(model_path: str, section: ClassifySection, pad: int) -> PreTrainedModel:
    import torch
    from transformers import AutoModelForSequenceClassification

    names = [route.value for route in ROUTES]
    try:
        model: PreTrainedModel = AutoModelForSequenceClassification.from_pretrained(
            model_path,
            revision=section.revision,
            dtype=torch.float32,
            trust_remote_code=False,
            use_safetensors=True,
            num_labels=len(names),
            id2label=dict(enumerate(names)),
            label2id={name: index for index, name in enumerate(names)},
            pad_token_id=pad,
        )
    except (OSError, ValueError) as error:
        raise InputError("classify.model", f"{model_path} can't be loaded: {error}") from None
    return model


def _accuracy(prediction: Any) -> dict[str, float]:
    chosen = prediction.predictions.argmax(-1)
    return {"accuracy": float((chosen == prediction.label_ids).mean())}
