"""What a recipe says reaches vLLM's EngineArgs. No engine is started."""

from __future__ import annotations

from typing import Any

import pytest
import vllm

from prerouter.core.errors import CombinedError
from prerouter.engines.embedded import resolve_model
from prerouter.engines.start import start_engine
from prerouter.engines.vllm_arguments import engine_arguments
from prerouter.recipe.base import validate
from prerouter.recipe.engine import RayEngine, VllmEngine

MODEL = "embedded:SmolLM2-135M-Instruct"


class EngineStartedError(Exception):
    """vLLM got as far as to the engine."""


def arguments_of(section: VllmEngine, monkeypatch: pytest.MonkeyPatch) -> vllm.EngineArgs:
    """The EngineArgs that vLLM's own `LLM` makes of a section, at the start of its engine."""
    seen: list[vllm.EngineArgs] = []

    def start(engine_args: vllm.EngineArgs, **_: Any) -> None:
        seen.append(engine_args)
        raise EngineStartedError

    monkeypatch.setattr("vllm.entrypoints.llm.LLMEngine.from_engine_args", start)
    with pytest.raises(EngineStartedError):
        start_engine(section)
    return seen[0]


ASKED = {
    "revision": "main",
    "dtype": "float16",
    "max_model_len": 1234,
    "tensor_parallel_size": 4,
    "pipeline_parallel_size": 2,
    "quantization": "fp8",
}
FURTHER = {
    "gpu_memory_utilization": 0.8,
    "enforce_eager": True,
    "enable_prefix_caching": True,
    "max_num_seqs": 7,
    "seed": 3,
    "reasoning_parser": "qwen3",
    "distributed_executor_backend": "mp",
    "kv_cache_dtype": "fp8",
    "enable_expert_parallel": True,
}


def test_every_setting_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    data = {"kind": "vllm", "model": MODEL, **ASKED, "arguments": FURTHER}
    arrived = arguments_of(validate(VllmEngine, data, "engine"), monkeypatch)
    wanted = {**ASKED, **FURTHER, "model": resolve_model(MODEL), "trust_remote_code": False}
    assert {key: getattr(arrived, key) for key in wanted} == wanted
    untouched = arguments_of(VllmEngine(kind="vllm", model=MODEL), monkeypatch)
    assert not [key for key in ASKED if getattr(untouched, key) == ASKED[key]]


def test_a_replica_on_ray_is_started_as_the_vllm_kind_is() -> None:
    shared = {"model": MODEL, **ASKED, "arguments": FURTHER}
    ray = validate(RayEngine, {"kind": "ray", "replicas": 3, **shared}, "engine")
    alone = validate(VllmEngine, {"kind": "vllm", **shared}, "engine")
    assert engine_arguments(ray.replica) == engine_arguments(alone)


def test_unknown_arguments_are_all_named_with_the_nearest_known() -> None:
    data = {"max_num_seq": 4, "no_resemblance_to_anything": 1, "enforce_eager": True}
    with pytest.raises(CombinedError) as caught:
        start_engine(VllmEngine(kind="vllm", model=MODEL, arguments=data))
    first, second = caught.value.lines
    assert first.startswith("engine.arguments.max_num_seq: ")
    assert first.endswith("did you mean max_num_seqs?")
    assert second.endswith("remove it")


def test_prompts_are_read_whole_on_a_cpu_unless_asked_otherwise() -> None:
    section = VllmEngine(kind="vllm", model=MODEL)
    assert engine_arguments(section)["enable_chunked_prefill"] is False
    given = VllmEngine(kind="vllm", model=MODEL, arguments={"enable_chunked_prefill": True})
    assert engine_arguments(given)["enable_chunked_prefill"] is True
