"""Checkpoints of a training run: which of them is whole, and whether it belongs to this run."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from prerouter.core.records import Example

COMPLETE = "complete.json"
"""Written into a checkpoint's folder last: without it, the checkpoint is torn."""

FINGERPRINT = "fingerprint"

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


def prepare(checkpoints: Path, run: str) -> Path | None:
    """The newest whole checkpoint of the run with this fingerprint, None where it begins anew.

    Removes what a kill left half written, and everything of a run with another fingerprint.
    """
    identity = checkpoints / FINGERPRINT
    if not identity.is_file() or identity.read_text(encoding="utf-8") != run:
        shutil.rmtree(checkpoints, ignore_errors=True)
        checkpoints.mkdir(parents=True)
        identity.write_text(run, encoding="utf-8")
        return None
    whole: dict[int, Path] = {}
    for path in sorted(checkpoints.iterdir()):
        match = _CHECKPOINT.fullmatch(path.name)
        if match and (path / COMPLETE).is_file():
            whole[int(match.group(1))] = path
        elif path.is_dir():
            shutil.rmtree(path)
    return whole[max(whole)] if whole else None
