"""Supervised fine-tuning of the student by TRL's SFTTrainer (Pre-Route, section 1: Student)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from prerouter.core.errors import StageError
from prerouter.core.protocols import Progress
from prerouter.core.records import Example
from prerouter.recipe.train import TrainSection
from prerouter.runs.processes import check_launch, world_size
from prerouter.training import checks, resume
from prerouter.training.callbacks import make_callback
from prerouter.training.examples import TokenisedExample, keep_fitting
from prerouter.training.export import check_weights, export_student, whole_student
from prerouter.training.launch import (
    check_trainer,
    count_parameters,
    describe_batch,
    dropping_what_diverged,
    global_batch,
    telling_of_deaths,
)
from prerouter.training.quiet import quiet_libraries
from prerouter.training.report import LossPoint, TrainReport, WatchPoint
from prerouter.training.reporters import check_reporters, keep_emissions, log_beside
from prerouter.training.resume import CHECKPOINTS_DIR, MODEL_DIR
from prerouter.training.tokens import choose_pad, find_end_of_turn
from prerouter.training.trainer import (
    build_trainer,
    load_student,
    load_tokenizer,
    sft_settings,
)
from prerouter.training.watch import Watch, check_watch, check_whole, watch_callbacks
from prerouter.training.weights import margin_weights

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase
    from trl import SFTTrainer

ADAPTER_DIR = "adapter"
LOGS_DIR = "logs"
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
    *,
    margins: Mapping[str, float] | None = None,
    watch: Watch | None = None,
) -> TrainReport:
    """Fine-tune the model at `model_path` (a folder or a Hub name) and export it to `folder/model`.

    The loss is on the completion only; weights are held in float32, and `section.dtype` is the
    precision of the arithmetic. An example over `section.max_length` is refused and counted, never
    cut. Killed at any moment, the next call goes on from the last whole checkpoint; finished, it
    returns the report that stands. `margins` (U(LC) - U(RAG) by case id) are read where
    `section.weights` is set.

    Several processes of one launcher call it with the same arguments; the first one writes. Raises
    RecipeError for settings that can't work, StageError for rows or batches that would teach
    something else, for a loss or a weight that is not finite, in which case nothing is exported,
    and for another number of processes than was asked for, or than the checkpoints are of.
    """
    check_launch("train", section.processes)
    check_reporters(section.sft.get("report_to"), "train.sft.report_to")
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
    finished = resume.finished(folder, TrainReport, run)
    if finished is not None:
        return finished
    with quiet_libraries(), telling_of_deaths("train"):
        return _train(
            train,
            validation,
            section,
            model_path,
            folder,
            seed,
            name,
            progress,
            run,
            margins or {},
            watch,
        )


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
    margins: Mapping[str, float],
    watch: Watch | None,
) -> TrainReport:
    tokenizer = load_tokenizer(model_path, section.revision)
    kept, rejects = keep_fitting(train, tokenizer, section.thinking, section.max_length)
    held_out, more = keep_fitting(validation, tokenizer, section.thinking, section.max_length)
    rejects += more
    check_watch(watch, len(held_out))
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
    weights = margin_weights(kept, margins, section.weights) if section.weights else None
    trainer = build_trainer(
        kept,
        held_out,
        section,
        {**settings, "output_dir": str(checkpoints)},
        model_path,
        tokenizer,
        weights,
    )
    check_trainer(trainer)
    check_whole(watch, trainer)
    log_beside(trainer, folder / LOGS_DIR)
    checks.check_rows(kept, trainer.train_dataset, "train")
    if held_out:
        checks.check_rows(held_out, trainer.eval_dataset, "validation")
    _check_first_batches(trainer, kept, tokenizer, end_of_turn)
    trainable, total = count_parameters(trainer.model)
    batch = global_batch(trainer)
    if world_size() > 1 and trainer.is_world_process_zero():
        progress.note(describe_batch(trainer))

    checkpoint = resume.open_checkpoints(trainer, checkpoints, run, "train")
    # What was looked at is told by the callback after it.
    for callback in watch_callbacks(watch, trainer) if watch else ():
        trainer.add_callback(callback)
    trainer.add_callback(make_callback(progress, checkpoints))
    started = time.monotonic()
    with dropping_what_diverged(trainer, checkpoints):
        trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        # What was watched has its loss of the exported step already.
        eval_loss = trainer.evaluate()["eval_loss"] if held_out and not watch else None
        seconds = time.monotonic() - started
        student = whole_student(
            trainer, lambda: load_student(model_path, section), folder / ADAPTER_DIR
        )
        check_weights(student, "train")
    if student is not None:
        export_student(student, tokenizer, end_of_turn, folder / MODEL_DIR)
    state = trainer.state
    best = state.best_global_step if trainer.args.load_best_model_at_end else 0
    exported = best or state.global_step
    report = TrainReport(
        model_dir=MODEL_DIR,
        fingerprint=run,
        steps=state.global_step,
        epochs=state.epoch,
        resumed_from=int(checkpoint.name.rpartition("-")[2]) if checkpoint else 0,
        losses=LossPoint.read(state.log_history),
        eval_loss=_eval_loss(state.log_history, exported) if watch else eval_loss,
        watched=tuple(
            WatchPoint(
                step=entry["step"],
                route_accuracy=entry["eval_route_accuracy"],
                lc_rate=entry["eval_lc_rate"],
                parse_rate=entry["eval_parse_rate"],
            )
            for entry in state.log_history
            if "eval_route_accuracy" in entry
        ),
        exported_step=exported,
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
        global_batch=batch,
        seconds=seconds,
        settings=settings,
        versions={library: version(library) for library in LIBRARIES},
    )
    if trainer.is_world_process_zero():
        keep_emissions(checkpoints, folder)
        resume.close(folder, report)
    # The others must not end before: a launcher may stop whoever is left.
    trainer.accelerator.wait_for_everyone()
    return report


def _eval_loss(history: Sequence[Mapping[str, float]], step: int) -> float | None:
    found = [row["eval_loss"] for row in history if row["step"] == step and "eval_loss" in row]
    return found[-1] if found else None


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


def _ids(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
