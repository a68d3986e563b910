from __future__ import annotations

import json
from pathlib import Path

import pytest

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import RouterConfig, write_router
from prerouter.publishing.threshold import Threshold, read_threshold

HASH = "ab" * 32


def test_a_threshold_of_its_own_checkpoint_is_taken(tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    path.write_text(json.dumps({"threshold": 0.4, "temperature": 2.0, "threshold_for": HASH}))
    found = read_threshold(path)
    assert found == Threshold(threshold=0.4, temperature=2.0, threshold_for=HASH)
    found.check("router", HASH)
    with pytest.raises(CheckpointError, match="router: its threshold was fitted to checkpoint"):
        found.check("router", "cd" * 32)


def test_a_router_json_is_such_a_file(
    model_dir: Path, config: RouterConfig, tmp_path: Path
) -> None:
    router = write_router(model_dir, tmp_path / "router", config, "# card\n")
    with pytest.raises(CheckpointError, match="threshold_for"):
        read_threshold(router / "router.json")
    path = router / "router.json"
    checkpoint = json.loads(path.read_text())["files"]["model.safetensors"]
    path.write_text(json.dumps({**json.loads(path.read_text()), "threshold_for": checkpoint}))
    assert read_threshold(path) == Threshold(threshold=0.5, threshold_for=checkpoint)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f'{{"threshold": NaN, "threshold_for": "{HASH}"}}', "threshold: "),
        (f'{{"threshold": 1.5, "threshold_for": "{HASH}"}}', "threshold: "),
        (f'{{"threshold": 1, "temperature": 0, "threshold_for": "{HASH}"}}', "temperature: "),
        ('{"threshold": 0.5}', "threshold_for: "),
        ('{"threshold": 0.5, "threshold_for": "../model"}', "threshold_for: "),
        ("[]", "is no JSON object"),
        ("{", "can't be read as JSON"),
        (" " * 1_000_001, "is too large"),
    ],
)
def test_a_file_that_names_no_threshold_is_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "threshold.json"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=message):
        read_threshold(path)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="can't be read"):
        read_threshold(tmp_path / "nothing.json")
