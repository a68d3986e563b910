"""A recipe over the sample with a two-layer random student, and the command line to run it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

REPOSITORY = Path(__file__).parents[2]


def make_recipe(folder: Path, model: Path, **changes: Any) -> Path:
    """Write a recipe into `folder` whose run goes to `folder/runs`."""
    data: dict[str, Any] = {
        "name": "tiny",
        "seed": 7,
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "sample",
            "path": str(REPOSITORY / "data" / "sample"),
            "answer_models": [
                {"name": "reader-4k", "context_window": 4096},
                {"name": "reader-16k", "context_window": 16384},
            ],
            "head_characters": 60,
        },
        "rag": {"chunk_tokens": 200, "overlap_tokens": 40, "top_k": 5},
        "split": {"group_by": "document"},
        "answer": {"reader": "evidence"},
        "score": {"metric": "evidence_recall"},
        "teach": {"teacher": "guideline"},
        "filter": {"balance": "downsample"},
        "train": {
            "model": str(model),
            "max_length": 2048,
            "dtype": "float32",
            "mix": {"explain": 1, "decide": 1},
            "sft": {"max_steps": 2, "per_device_train_batch_size": 2, "learning_rate": 1e-3},
        },
        "route": {
            "routers": [
                "always_rag",
                "always_lc",
                "guideline",
                "decision_tree",
                "student",
                "student_decide",
            ],
            "batch_size": 64,
            "max_tokens": 4,
            "dtype": "float32",
        },
        "calibrate": {"routers": ["decision_tree", "student_decide"]},
        "evaluate": {"resamples": 100},
        "publish": {},
    }
    data.update(changes)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(data))
    return path


def prerouter(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own; `code` runs first in that process."""
    script = f"{code}\nfrom prerouter.cli.main import main\nmain()\n"
    return subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )


def rows(run: Path, file: str) -> list[dict[str, Any]]:
    """The rows of a file without the seconds that were measured on the way."""
    found = []
    for line in (run / file).read_text("utf-8").splitlines():
        row = json.loads(line)
        row.pop("seconds", None)
        found.append(row)
    return found
