"""What a model is, by its bytes where it lies here."""

from __future__ import annotations

from prerouter.engines.embedded import resolve_model
from prerouter.runs.model_files import model_inputs


def model_identity(model: str, revision: str | None) -> str:
    """The hash of a model's files, or name@revision of one on the Hub, whose `main` may move."""
    folder = resolve_model(model)
    return model_inputs(folder).get(folder) or f"{model}@{revision or 'main'}"
