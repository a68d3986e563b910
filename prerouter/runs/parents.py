"""What a study reads of a finished run, found as its stages left it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from prerouter.core.errors import StageError
from prerouter.runs.manifest import altered_files, first_run, read_manifest


def unseen_models(run: Path) -> tuple[str, ...]:
    """The answer models that nothing in a run was learnt or tuned on, by its cases' manifest."""
    manifest = read_manifest(run / "cases")
    split = manifest.fingerprint.sections.get("split") if manifest else None
    return tuple((split or {}).get("unseen_models") or ())


def parent_hashes(run: Path, files: Iterable[str], reader: str) -> dict[str, str]:
    """The hash of each file (`stage/file.jsonl`) of a run. Raises StageError, in the name of its
    `reader`, where a stage isn't finished or its file is no longer as it left it."""
    parents = {}
    for file in files:
        stage, _, rows = file.partition("/")
        manifest = read_manifest(run / stage)
        if manifest is None:
            raise first_run(reader, stage, f"is not finished in {run}")
        if rows not in manifest.files or altered_files(run / stage, manifest, rows):
            raise StageError(
                str(run / file),
                "was altered after its stage had finished",
                next_step=f"run `prerouter {stage}` again with --force",
            )
        parents[file] = manifest.files[rows].sha256
    return parents
