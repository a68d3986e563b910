"""A two-layer random student, and one undisturbed run of the whole job with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.runner import make_recipe, prerouter
from tests.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny") / "tiny-qwen3")


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The folder of a whole run that nothing interrupted."""
    folder = tmp_path_factory.mktemp("undisturbed")
    done = prerouter("run", str(make_recipe(folder, tiny_model)))
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "tiny"
