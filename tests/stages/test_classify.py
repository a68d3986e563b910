from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.core.errors import CombinedError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Decision, Label
from prerouter.recipe.base import validate
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages.pipeline import stages_of

from ..e2e.runner import make_recipe
from ..tiny_model import make_tiny_model


def test_labels_alone_make_a_router_that_stands_in_the_table(tmp_path: Path) -> None:
    """No traces, no teacher: cases, labels, the head, and its decisions of the test split."""
    model = make_tiny_model(tmp_path / "tiny")
    path = make_recipe(tmp_path, model)
    data = yaml.safe_load(path.read_text())
    for name in ("teach", "filter", "train", "calibrate", "publish"):
        del data[name]
    data["classify"] = {
        "model": str(model),
        "dtype": "float32",
        "arguments": {"max_steps": 2, "per_device_train_batch_size": 2},
    }
    data["route"] = {"routers": ["always_rag", "classifier"], "dtype": "float32"}
    path.write_text(yaml.safe_dump(data))
    recipe = load_recipe(path)
    outcomes = {s.name: execute(s, recipe, SilentProgress()) for s in stages_of(recipe)}
    assert list(outcomes)[-3:] == ["classify", "route", "evaluate"]
    report = outcomes["classify"].manifest.report
    labels = list(read_rows(recipe.run_dir / "label" / "rows.jsonl", Label))
    assert sum(report["train_cases"].values()) > len(labels) / 2
    decided = [
        row
        for row in read_rows(recipe.run_dir / "route" / "rows.jsonl", Decision)
        if row.router == "classifier"
    ]
    assert decided
    assert all(row.p_lc is not None for row in decided)
    again = {s.name: execute(s, recipe, SilentProgress()).action for s in stages_of(recipe)}
    assert again["classify"] == again["route"] == "passed over"
    model_file = recipe.run_dir / "classify" / "model" / "model.safetensors"
    model_file.unlink()
    assert execute(stages_of(recipe)[-3], recipe, SilentProgress()).why.endswith("is gone")


def test_the_router_needs_its_section() -> None:
    data: dict[str, Any] = {
        "name": "mine",
        "cases": {"source": "table", "path": "mine.parquet"},
        "route": {"routers": ["classifier"]},
    }
    with pytest.raises(CombinedError) as caught:
        validate(Recipe, data, "r.yaml")
    assert any("classifier needs `classify`" in line for line in caught.value.lines)
