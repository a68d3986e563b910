"""What the vllm engine says where vLLM can't be run at all. The rest is under tests/vllm."""

from __future__ import annotations

import sys

import pytest

from prerouter.core.errors import MissingDependencyError, RecipeError
from prerouter.engines.start import start_engine
from prerouter.recipe.engine import VllmEngine


def test_an_environment_without_vllm_is_told_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(MissingDependencyError, match=r"vllm: is not installed.*-e '\.\[vllm\]'"):
        start_engine(VllmEngine(kind="vllm", model="some/model"))


def test_replicas_are_refused_before_anything_is_loaded() -> None:
    with pytest.raises(RecipeError, match=r"one replica in process.*kind: openai"):
        start_engine(VllmEngine(kind="vllm", model="some/model", data_parallel_size=2))
