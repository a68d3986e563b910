"""Fixtures that several rooms share. Data that is not in the repository skips, with a message."""

from __future__ import annotations

from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not beside this checkout (looked in {SHARED})")
    return folder


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def lara_dir() -> Path:
    """The LaRA benchmark in compact form, with `clone/` as a slice of its repository."""
    return _shared("lara")


@pytest.fixture(scope="session")
def qwen3_tokenizer_dir() -> Path:
    return _shared("qwen3-tokenizer")
