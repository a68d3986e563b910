from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from ..tiny_model import make_tiny_model


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    # A tiny model gains nothing from two threads, which wait for each other on a busy machine.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))
