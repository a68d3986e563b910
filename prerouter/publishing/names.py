"""What things are called in a folder that goes to strangers: names, never a path of a machine."""

from __future__ import annotations

from prerouter.recipe.cases import TableSource
from prerouter.recipe.recipe import Recipe


def plain_name(model: str) -> str:
    """A model's name without the folder it lay in: nothing of this machine goes along."""
    is_path = model.startswith(("/", ".", "~")) or model.count("/") > 1
    return model.rstrip("/").rpartition("/")[2] if is_path else model


def teacher_name(recipe: Recipe) -> str:
    """Who wrote the traces, as far as the recipe knows."""
    if recipe.teach is None:
        return "own traces"
    return plain_name(recipe.teach.engine.model) if recipe.teach.engine else "guideline"


def measure_name(recipe: Recipe) -> str:
    """What the scores are by."""
    return plain_name(recipe.score.measure) if recipe.score else "scores brought along"


def data_name(recipe: Recipe) -> str:
    """Where the cases come from."""
    if isinstance(recipe.cases, TableSource):
        return "the publisher's own cases"
    names = {"sample": "prerouter's sample", "lara": "LaRA", "longbench_v2": "LongBench-v2"}
    return names[recipe.cases.source]
