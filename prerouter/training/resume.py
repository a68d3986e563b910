"""Checkpoints of a training run: which of them is whole, and whether it belongs to this run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from prerouter.core.errors import StageError
from prerouter.core.records import Example
from prerouter.runs.processes import world_size
from prerouter.training.report import RunReport

if TYPE_CHECKING:
    from transformers import Trainer

COMPLETE = "complete.json"
"""Written into a checkpoint's folder last: without it, the checkpoint is torn."""

MODEL_DIR = "model"
CHECKPOINTS_DIR = "checkpoints"
REPORT_FILE = "report.json"

FINGERPRINT = "fingerprint"
PROCESSES = "processes"

ReportType = TypeVar("ReportType", bound=RunReport)

_CHECKPOINT = re.compile(r"checkpoint-(\d+)")


def fingerprint(settings: dict[str, Any], examples: Sequence[Example]) -> str:
    """SHA-256 over all that decides what a run learns: two runs with one fingerprint are one."""
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for example in examples:
        digest.update(example.model_dump_json().encode() + b"\n")
    return digest.hexdigest()


def mark_complete(checkpoints: Path, step: int) -> None:
    path = checkpoints / f"checkpoint-{step}" / COMPLETE
    path.write_text(json.dumps({"step": step}), encoding="utf-8")


def check_processes(checkpoints: Path, run: str, place: str) -> None:
    """Raises StageError where a checkpoint of this run stands which another number of processes
    made: it goes on with as many, and is too dear to be dropped without a word."""
    whole = any(checkpoints.glob(f"checkpoint-*/{COMPLETE}"))
    made_by = _text(checkpoints / PROCESSES)
    if whole and _text(checkpoints / FINGERPRINT) == run and made_by != str(world_size()):
        raise StageError(
            place,
            f"checkpoints of {made_by} processes stand, and {world_size()} were launched",
            f"{made_by} processes",
            f"launch {made_by}, or begin anew by --force",
        )


def open_checkpoints(trainer: Trainer, checkpoints: Path, run: str, place: str) -> Path | None:
    """`check_processes` in every process of a launch, then `prepare`, in the first one first."""
    check_processes(checkpoints, run, place)
    # Who prepares changes what the others look at.
    trainer.accelerator.wait_for_everyone()
    with trainer.accelerator.main_process_first():
        return prepare(checkpoints, run)


def prepare(checkpoints: Path, run: str) -> Path | None:
    """The newest whole checkpoint of the run with this fingerprint, None where it begins anew.

    Removes what a kill left half written, and everything of a run with another fingerprint.
    """
    if _text(checkpoints / FINGERPRINT) != run:
        shutil.rmtree(checkpoints, ignore_errors=True)
        checkpoints.mkdir(parents=True)
        (checkpoints / FINGERPRINT).write_text(run, encoding="utf-8")
    if _text(checkpoints / PROCESSES) != str(world_size()):
        (checkpoints / PROCESSES).write_text(str(world_size()), encoding="utf-8")
    whole: dict[int, Path] = {}
    for path in sorted(checkpoints.iterdir()):
        match = _CHECKPOINT.fullmatch(path.name)
        if match and (path / COMPLETE).is_file():
            whole[int(match.group(1))] = path
        elif path.is_dir():
            shutil.rmtree(path)
    return whole[max(whole)] if whole else None


def finished(folder: Path, report: type[ReportType], run: str) -> ReportType | None:
    """The report of the run with this fingerprint, where it stands beside the model."""
    path = folder / REPORT_FILE
    if not path.is_file() or not (folder / MODEL_DIR).is_dir():
        return None
    try:
        found = report.model_validate_json(path.read_bytes())
    except ValueError:
        return None
    return found if found.fingerprint == run else None


def close(folder: Path, report: RunReport) -> None:
    """Write the report, which makes the run a finished one, and then drop its checkpoints."""
    path = folder / REPORT_FILE
    path.write_text(report.model_dump_json(indent=1), encoding="utf-8")
    shutil.rmtree(folder / CHECKPOINTS_DIR, ignore_errors=True)


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
