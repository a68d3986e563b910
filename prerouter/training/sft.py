"""Supervised fine-tuning of the student by TRL's SFTTrainer (Pre-Route, section 1: Student)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prerouter.core.errors import StageError
from prerouter.core.protocols import Progress
from prerouter.core.records import Example
from prerouter.recipe.train import TrainSection
from prerouter.training import checks, resume
from prerouter.training.callbacks import make_callback
from prerouter.training.examples import TokenisedExample, keep_fitting
from prerouter.training.export import export_model, nan_weights
from prerouter.training.quiet import quiet_libraries
from prerouter.training.report import LossPoint, TrainReport
from prerouter.training.tokens import choose_pad, find_end_of_turn
from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import SFTTrainer

MODEL_DIR = "model"
CHECKPOINTS_DIR = "checkpoints"
REPORT_FILE = "report.json"
CHECKED_BATCHES = 4
LIBRARIES = ("torch", "transformers", "trl", "peft", "accelerate", "datasets", "tokenizers")


def train_student(
    train: Sequence[Example],
    validation: Sequence[Example],
    section: TrainSection,
    model_path: str,
    folder: Path,
    seed: int,
    name: str,
    progress: Progress,
) -> TrainReport:
    """Fine-tune the model at `model_path` (a folder or a Hub name) and export it to `folder/model`.

    The loss is on the completion only; weights are held in float32, and `section.dtype` is the
    precision of the arithmetic. An example over `section.max_length` is refused and counted, never
    cut. Killed at any moment, the next call goes on from the last whole checkpoint; finished, it
    returns the report that stands. Raises RecipeError for settings that can't work, StageError for
    rows or batches that would teach something else, and for a loss or a weight that is not finite,
    in which case nothing is exported.
    """
    if not train:
        raise StageError("train", "no training example", next_step="look at the filter's rejects")
    run = resume.fingerprint(
        {
            "train": section.model_dump(mode="json"),
            "model": model_path,
            "seed": seed,
            "trl": version("trl"),
        },
        [*train, *validation],
    )
    finished = _finished(folder, run)
    if finished is not None:
        return finished
    with quiet_libraries():
        return _train(train, validation, section, model_path, folder, seed, name, progress, run)


def _train(
    train: Sequence[Example],
    validation: Sequence[Example],
    section: TrainSection,
    model_path: str,
    folder: Path,
    seed: int,
    name: str,
    progress: Progress,
    run: str,
) -> TrainReport:
    tokenizer = load_tokenizer(model_path, section.revision)
    kept, rejects = keep_fitting(train, tokenizer, section.thinking, section.max_length)
    held_out, more = keep_fitting(validation, tokenizer, section.thinking, section.max_length)
    rejects += more
    if not kept:
        raise StageError(
            "train.max_length",
            f"every one of {len(train)} training examples is longer than {section.max_length}",
            next_step="raise train.max_length, or take the compact prompt",
        )
    checks.check_prompts([*kept, *held_out])
    end_of_turn = find_end_of_turn([*kept, *held_out], tokenizer)
    checks.check_completions([*kept, *held_out], tokenizer, end_of_turn)
    stops = frozenset({end_of_turn, *_ids(tokenizer.eos_token_id)})
    pad = choose_pad(tokenizer, section.pad_token, stops, [*kept, *held_out])
    tokenizer.pad_token = pad
    tokenizer.eos_token = tokenizer.convert_ids_to_tokens(end_of_turn)

    checkpoints = folder / CHECKPOINTS_DIR
    settings = sft_settings(section, seed, name)
    trainer = build_trainer(
        kept, held_out, section, {**settings, "output_dir": str(checkpoints)}, model_path, tokenizer
    )
    checks.check_rows(kept, trainer.train_dataset, "train")
    if held_out:
        checks.check_rows(held_out, trainer.eval_dataset, "validation")
    _check_first_batches(trainer, kept, tokenizer, end_of_turn)

    with trainer.accelerator.main_process_first():
        checkpoint = resume.prepare(checkpoints, run)
    trainer.add_callback(make_callback(progress, checkpoints))
    started = time.monotonic()
    try:
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        eval_loss = trainer.evaluate()["eval_loss"] if held_out else None
        broken = nan_weights(trainer)
        if broken:
            raise StageError("train", f"weights are not finite after training: {broken[0]}")
    except StageError:
        # A checkpoint of a run that has diverged is no place to go on from.
        if trainer.is_world_process_zero():
            shutil.rmtree(checkpoints, ignore_errors=True)
        raise
    seconds = time.monotonic() - started
    state = trainer.state
    trainable, total = _parameters(trainer)
    export_model(trainer, tokenizer, end_of_turn, folder / MODEL_DIR)
    report = TrainReport(
        model_dir=MODEL_DIR,
        fingerprint=run,
        steps=state.global_step,
        epochs=state.epoch,
        resumed_from=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0,
        losses=tuple(
            LossPoint(step=entry["step"], loss=entry["loss"])
            for entry in state.log_history
            if "loss" in entry
        ),
        eval_loss=eval_loss,
        train_examples=len(kept),
        validation_examples=len(held_out),
        epoch_tokens=sum(len(example.ids) for example in kept),
        epoch_completion_tokens=sum(len(example.completion_ids) for example in kept),
        longest_example=max(len(example.ids) for example in [*kept, *held_out]),
        tokens_seen=state.num_input_tokens_seen,
        rejects=tuple(rejects),
        total_parameters=total,
        trainable_parameters=trainable,
        end_of_turn=tokenizer.eos_token,
        pad_token=pad,
        processes=trainer.accelerator.num_processes,
        seconds=seconds,
        settings=settings,
        versions={library: version(library) for library in LIBRARIES},
    )
    if trainer.is_world_process_zero():
        (folder / REPORT_FILE).write_text(report.model_dump_json(indent=1), encoding="utf-8")
        shutil.rmtree(checkpoints, ignore_errors=True)
    return report


def _check_first_batches(
    trainer: SFTTrainer,
    examples: Sequence[TokenisedExample],
    tokenizer: PreTrainedTokenizerBase,
    end_of_turn: int,
) -> None:
    import torch

    # Looking must not move the random numbers that training will draw.
    with torch.random.fork_rng(enabled=True):
        batches = list(islice(trainer.get_train_dataloader(), CHECKED_BATCHES))
    completions = frozenset(row.example.completion[0].content for row in examples)
    checks.check_batches(batches, completions, tokenizer, end_of_turn)


def _parameters(trainer: SFTTrainer) -> tuple[int, int]:
    """Trainable and total parameters."""
    counts = [(p.numel(), p.requires_grad) for p in trainer.model.parameters()]
    return sum(n for n, trainable in counts if trainable), sum(n for n, _ in counts)


def _ids(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _finished(folder: Path, run: str) -> TrainReport | None:
    path = folder / REPORT_FILE
    if not path.is_file() or not (folder / MODEL_DIR).is_dir():
        return None
    try:
        report = TrainReport.model_validate_json(path.read_bytes())
    except ValueError:
        return None
    return report if report.fingerprint == run else None
