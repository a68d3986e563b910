"""Fixtures that several rooms share. Data that is not in the repository skips, with a message."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
SHARED = REPOSITORY.parent / "shared"


def _shared(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"{name} is not beside this checkout (looked in {SHARED})")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _hears_ctrl_c() -> None:
    """A shell makes what it starts in the background deaf to SIGINT, and children inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def lara_dir() -> Path:
    """The LaRA benchmark in compact form, with `clone/` as a slice of its repository."""
    return _shared("lara")


@pytest.fixture(scope="session")
def short_lara(lara_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The clone with the beginning of each document only: a CPU takes minutes for the vectors of
    whole ones."""
    clone = tmp_path_factory.mktemp("lara") / "clone"
    shutil.copytree(lara_dir / "clone", clone)
    for path in sorted((clone / "datasets").rglob("*.txt")):
        path.chmod(0o644)
        path.write_text(path.read_text("utf-8-sig")[:20_000], "utf-8")
    return clone


@pytest.fixture(scope="session")
def qwen3_tokenizer_dir() -> Path:
    return _shared("qwen3-tokenizer")
