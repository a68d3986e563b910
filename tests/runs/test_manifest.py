from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import StageError
from prerouter.runs.manifest import (
    FileEntry,
    Fingerprint,
    Manifest,
    lineage,
    read_manifest,
    write_json,
)


def leave_manifest(run: Path, stage: str, *parents: str) -> None:
    (run / stage).mkdir()
    manifest = Manifest(
        fingerprint=Fingerprint(
            stage=stage,
            seed=1,
            sections={},
            parents={f"{name}/rows.jsonl": "0" for name in parents},
        ),
        files={"rows.jsonl": FileEntry(rows=1, sha256="0")},
        seconds=1,
    )
    write_json(run / stage / "manifest.json", manifest.model_dump(mode="json"))


def test_a_lineage_holds_what_a_stage_was_made_of_and_nothing_else(tmp_path: Path) -> None:
    leave_manifest(tmp_path, "cases")
    leave_manifest(tmp_path, "teach", "cases")
    leave_manifest(tmp_path, "filter", "cases")
    leave_manifest(tmp_path, "train", "cases", "filter")
    leave_manifest(tmp_path, "route", "cases")
    leave_manifest(tmp_path, "evaluate", "route", "cases")
    found = lineage(tmp_path, ("train", "evaluate"))
    # `teach` is of an earlier recipe: these traces were brought along.
    assert list(found) == ["cases", "filter", "train", "route", "evaluate"]
    assert all(found[name].fingerprint.stage == name for name in found)


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff\x00", b'{"fingerprint": 1}'])
def test_an_unreadable_manifest_asks_to_rerun_its_stage_alone(
    tmp_path: Path, content: bytes
) -> None:
    folder = tmp_path / "label"
    folder.mkdir()
    (folder / "manifest.json").write_bytes(content)
    with pytest.raises(StageError, match="`prerouter label` with --force: the other stages stand"):
        read_manifest(folder)
