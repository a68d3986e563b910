"""A stage's manifest: written last, so that its existence means done."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from prerouter.core.errors import StageError
from prerouter.core.records import Record
from prerouter.runs.rows import file_sha256, replacing

SCHEMA_VERSION = 1
MANIFEST = "manifest.json"
STARTED = "started.json"


class Fingerprint(Record):
    """All that a stage's result depends on. Two equal fingerprints give the same rows."""

    schema_version: int = SCHEMA_VERSION
    stage: str
    seed: int
    sections: dict[str, Any]
    parents: dict[str, str]
    inputs: dict[str, str] = {}

    def differences(self, other: Fingerprint, but: Collection[str] = ()) -> list[str]:
        """What changed from `self` to `other`, in words; sections and parents `but` left out."""
        found = []
        if self.schema_version != other.schema_version:
            found.append("the record schema changed")
        if self.seed != other.seed:
            found.append(f"seed: {self.seed} is now {other.seed}")
        found += _changed(_without(self.sections, but), _without(other.sections, but))
        parents = _without(self.parents, but), _without(other.parents, but)
        found += [f"{name} changed" for name in _keys_that_differ(*parents)]
        found += [f"{name} changed" for name in _keys_that_differ(self.inputs, other.inputs)]
        return found


class FileEntry(Record):
    rows: int
    sha256: str


class Manifest(Record):
    """What a finished stage did: rows and hashes by file, rejects by reason, and its report.

    `retriable` of the rejects are failed calls that the stage can make again.
    """

    fingerprint: Fingerprint
    files: dict[str, FileEntry]
    rejects: dict[str, int] = {}
    retriable: int = 0
    report: dict[str, Any] = {}
    model: str | None = None
    revision: str | None = None
    versions: dict[str, str] = {}
    seconds: float


def write_json(path: Path, data: Any) -> None:
    """Write JSON for people, renamed into place when complete."""
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    with replacing(path) as file:
        file.write(f"{text}\n".encode())


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a finished stage; None where the stage isn't finished."""
    path = folder / MANIFEST
    if not path.exists():
        return None
    try:
        return Manifest.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise StageError(
            str(path),
            f"is not a manifest of this version: {error.error_count()} fields differ",
            next_step=f"run `prerouter {folder.name}` with --force: the other stages stand",
        ) from None


def first_run(stage: str, parent: str, problem: str) -> StageError:
    return StageError(
        stage,
        f"needs {parent}, which {problem}",
        next_step=f"run `prerouter {parent}` on this recipe first, or `prerouter run`",
    )


def read_started(folder: Path) -> Fingerprint | None:
    """What the rows in a stage's folder were begun for; None where nothing tells."""
    path = folder / STARTED
    try:
        return Fingerprint.model_validate_json(path.read_bytes()) if path.exists() else None
    except ValidationError:
        return None


def altered_files(folder: Path, manifest: Manifest, only: str | None = None) -> list[str]:
    """Files of a finished stage, or the one named `only`, that are no longer as it left them."""
    altered = []
    for name, entry in manifest.files.items():
        if only is not None and name != only:
            continue
        path = folder / name
        if not path.exists():
            altered.append(f"{path} is gone")
        elif file_sha256(path) != entry.sha256:
            altered.append(f"{path} was altered")
    return altered


def lineage(run_dir: Path, stages: Iterable[str]) -> dict[str, Manifest]:
    """The manifests of `stages` and of all that they were made from by their own account, parents
    first. A folder that an earlier recipe left beside them is no part of it."""
    found: dict[str, Manifest] = {}
    for stage in stages:
        manifest = read_manifest(run_dir / stage)
        if manifest is not None and stage not in found:
            parents = (file.partition("/")[0] for file in manifest.fingerprint.parents)
            found |= lineage(run_dir, parents) | {stage: manifest}
    return found


def installed_versions(*packages: str) -> dict[str, str]:
    """Versions of the named packages, as installed; one that isn't there is left out."""
    versions = {}
    for package in ("prerouter", *packages):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def _without(named: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: it for name, it in named.items() if name not in names}


def _keys_that_differ(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return sorted(key for key in {*old, *new} if old.get(key) != new.get(key))


def _changed(old: Any, new: Any, prefix: str = "") -> list[str]:
    if isinstance(old, dict) and isinstance(new, dict):
        found = []
        for key in _keys_that_differ(old, new):
            found += _changed(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key)
        return found
    return [f"{prefix}: {_short(old)} is now {_short(new)}"]


def _short(value: Any) -> str:
    if value is None:
        return "absent"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
