"""These run in vLLM's own environment (`make test-vllm`) and are not seen in any other."""

from __future__ import annotations

import importlib.util

import pytest

from prerouter.engines.transformers import TransformersModel
from tests.vllm.traces import MODEL

collect_ignore_glob = [] if importlib.util.find_spec("vllm") else ["test_*.py"]


@pytest.fixture(scope="session")
def exact() -> TransformersModel:
    """The same model in plain transformers, which vLLM's numbers are held against."""
    return TransformersModel(MODEL, dtype="float32")
