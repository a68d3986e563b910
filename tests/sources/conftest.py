"""LaRA, read once for all tests of this room."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.records import RagConfig
from prerouter.recipe.cases import LaraSource
from prerouter.sources.lara import load_lara
from prerouter.sources.loaded import Loaded


@pytest.fixture(scope="session")
def compact(lara_dir: Path) -> Loaded:
    """The compact form: 1,800 questions, six answer models, twelve texts."""
    return load_lara(LaraSource(source="lara", path=lara_dir), RagConfig())


@pytest.fixture(scope="session")
def clone(lara_dir: Path) -> Loaded:
    """The slice of the repository: 245 questions, four answer models, twelve texts."""
    return load_lara(LaraSource(source="lara", path=lara_dir / "clone"), RagConfig())
