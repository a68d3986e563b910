"""What a stage that trains a student reads beside its rows, and leaves there."""

from __future__ import annotations

from pathlib import Path

from prerouter.prompts.render import prompt_hash
from prerouter.recipe.classify import ClassifySection
from prerouter.recipe.train import TrainSection
from prerouter.runs.model_files import lost_model_files, model_inputs


def student_inputs(section: TrainSection | ClassifySection | None) -> dict[str, str]:
    """Hashes of the student's prompt, and of its model where that lies here."""
    assert section is not None
    return {"student prompt": prompt_hash(section.prompt), **model_inputs(section.model)}


def lost_student(folder: Path) -> list[str]:
    """What the stage with this `folder` wrote of its model and is no longer there."""
    return lost_model_files(folder / "rows.jsonl", folder / "model")
