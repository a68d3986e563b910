from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from prerouter.recipe.recipe import Recipe
from prerouter.runs.stage import Stage
from prerouter.stages import route, train


def recipe(model: str, routers: list[str]) -> Recipe:
    data: dict[str, Any] = {
        "name": "run",
        "cases": {"source": "table", "path": "mine.csv"},
        "teach": {"teacher": "guideline"},
        "filter": {},
        "train": {"model": model},
        "route": {"routers": routers},
    }
    return Recipe.model_validate(data)


@pytest.mark.parametrize(
    ("stage", "routers", "reads"),
    [
        (train.STAGE, ["student"], True),
        (route.STAGE, ["student_before", "student"], True),
        # What was trained stands in the run: the model before it is not looked at.
        (route.STAGE, ["student"], False),
    ],
)
def test_a_model_folder_whose_weights_change_is_another_input(
    tmp_path: Path, stage: Stage, routers: list[str], reads: bool
) -> None:
    weights = tmp_path / "model.safetensors"
    weights.write_bytes(bytes(100))
    before = stage.inputs(recipe(str(tmp_path), routers))
    weights.write_bytes(bytes(99) + b"1")
    os.utime(weights, ns=(1, 1))
    assert (stage.inputs(recipe(str(tmp_path), routers)) != before) is reads
