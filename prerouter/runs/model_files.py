"""Models that stages leave beside their rows: what lies there, and whether it still does."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from prerouter.core.records import ModelFile
from prerouter.runs.rows import file_sha256, folder_sha256, read_rows


def list_model_files(folder: Path) -> list[ModelFile]:
    """Every file of a model's folder, with its hash."""
    return [
        ModelFile(
            path=str(path.relative_to(folder)),
            sha256=file_sha256(path),
            size=path.stat().st_size,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    ]


def model_inputs(model: str) -> dict[str, str]:
    """The hash of a model that lies in a folder here, as a stage's input; a Hub's name has none.

    Every byte is read, a gigabyte in about a second and once a process: trained again, weights
    keep their size and the header of their file, and a copy can keep its time.
    """
    if not os.path.isdir(model):  # False, too, for a name too long for a path
        return {}
    files = sorted(path for path in Path(model).rglob("*") if path.is_file())
    return {model: _hash_of(model, tuple(path.stat().st_mtime_ns for path in files))}


@cache
def _hash_of(folder: str, times: tuple[int, ...]) -> str:
    return folder_sha256(Path(folder))


def lost_model_files(rows: Path, folder: Path) -> list[str]:
    """What of the files listed in `rows` is gone from `folder` or has another size, in words.

    Sizes only: weights are gigabytes, and whoever loads a published router checks every hash.
    """
    lost = []
    for file in read_rows(rows, ModelFile):
        path = folder / file.path
        if not path.is_file():
            lost.append(f"{path} is gone")
        elif path.stat().st_size != file.size:
            lost.append(f"{path} was altered")
    return lost
