"""Experiment trackers (`report_to`): none is needed, and what is asked for is there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import util
from pathlib import Path
from typing import TYPE_CHECKING

from prerouter.core.errors import RecipeError
from prerouter.recipe.recipe import Recipe

if TYPE_CHECKING:
    from transformers import Trainer

EMISSIONS_FILE = "emissions.csv"

# The name in report_to, and the module that transformers' own callback imports.
PACKAGES: Mapping[str, str] = {
    "clearml": "clearml",
    "codecarbon": "codecarbon",
    "comet_ml": "comet_ml",
    "dvclive": "dvclive",
    "mlflow": "mlflow",
    "neptune": "neptune",
    "swanlab": "swanlab",
    "tensorboard": "tensorboard",
    "trackio": "trackio",
    "wandb": "wandb",
}


def asked_by(recipe: Recipe) -> dict[str, object]:
    """What a recipe asks for as `report_to`, by the key that asks."""
    asked: dict[str, object] = {}
    if recipe.train:
        asked["train.sft.report_to"] = recipe.train.sft.get("report_to")
    if recipe.classify:
        asked["classify.arguments.report_to"] = recipe.classify.arguments.get("report_to")
    return asked


def check_names(asked: object, key: str) -> list[str]:
    """The trackers that `asked` names. Raises RecipeError, in the name of the recipe's `key`, for
    one that nobody knows."""
    names = [str(name) for name in (asked if isinstance(asked, list) else [asked or "none"])]
    found = [name for name in names if name not in ("none", "all")]
    for name in found:
        if name not in PACKAGES:
            raise RecipeError(key, f"{name} is no tracker", f"none, {', '.join(PACKAGES)}")
    return found


def lacking(asked: object, key: str) -> list[str]:
    """What to install for the trackers that `asked` names."""
    missing = [name for name in check_names(asked, key) if util.find_spec(PACKAGES[name]) is None]
    return [PACKAGES[name].replace("_", "-") for name in missing]


def check_reporters(asked: object, key: str) -> None:
    """Raises RecipeError as `check_names` does, and where a tracker's package is not installed."""
    for package in lacking(asked, key):
        raise RecipeError(
            key, f"{package} is not installed", next_step=f"pip install {package}, or leave it out"
        )


def log_beside(trainer: Trainer, folder: Path) -> None:
    """Let TensorBoard's files outlive the checkpoints, among which they would lie."""
    from transformers.integrations import TensorBoardCallback

    for callback in trainer.callback_handler.callbacks:
        if isinstance(callback, TensorBoardCallback) and callback.logging_dir is None:
            callback.logging_dir = str(folder)


def keep_emissions(checkpoints: Path, folder: Path) -> None:
    """What CodeCarbon measured lies among the checkpoints as well, and outlives them. Measured by
    nobody this time, nothing of an earlier training stays."""
    measured, kept = checkpoints / EMISSIONS_FILE, folder / EMISSIONS_FILE
    kept.unlink(missing_ok=True)
    if measured.is_file():
        measured.rename(kept)
