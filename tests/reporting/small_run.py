"""A finished run over some of the sample with routers that need no model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from prerouter.core.protocols import SilentProgress
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.stage import execute
from prerouter.stages.pipeline import stages_of

REPOSITORY = Path(__file__).parents[2]
ROUTERS = ["always_rag", "always_lc", "task_majority", "guideline", "decision_tree"]


def small_recipe(folder: Path, **changes: Any) -> Recipe:
    """A recipe in `folder` whose run goes to `folder/runs`."""
    data: dict[str, Any] = {
        "name": "small",
        "seed": 7,
        "runs_dir": str(folder / "runs"),
        "prices": str(write_prices(folder)),
        "cases": {
            "source": "sample",
            "path": str(REPOSITORY / "data" / "sample"),
            "task_type": "level",
            "answer_models": [
                {"name": "reader-4k", "context_window": 4096},
                {"name": "reader-16k", "context_window": 16384},
            ],
            "head_characters": 60,
            "documents": 40,
        },
        "rag": {"chunk_tokens": 150, "overlap_tokens": 30, "top_k": 5},
        "split": {"group_by": "document", "train": 0.6, "validation": 0.2, "test": 0.2},
        "answer": {"reader": "evidence"},
        "score": {"metric": "evidence_recall"},
        "teach": {"teacher": "guideline"},
        "filter": {"balance": "downsample"},
        "route": {"routers": ROUTERS},
        "calibrate": {"routers": ["decision_tree"]},
        "evaluate": {"resamples": 100},
    }
    data.update(changes)
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(data))
    return load_recipe(path)


def write_prices(folder: Path) -> Path:
    path = folder / "prices.yaml"
    price = {"input": 0.5, "output": 2.0, "source": "a test", "date": "2026-01-01"}
    path.write_text(
        yaml.safe_dump({"models": {"reader-4k": price, "reader-16k": {**price, "input": 1.0}}})
    )
    return path


def run(recipe: Recipe) -> Path:
    """Every stage of the recipe, in this process; returns the folder of `evaluate`."""
    for stage in stages_of(recipe):
        execute(stage, recipe, SilentProgress())
    return recipe.run_dir / "evaluate"
