from __future__ import annotations

from typing import Any, get_args

import pytest
from pydantic import TypeAdapter

from prerouter.recipe.engine import EngineSection, OpenAIEngine, RayEngine, VllmEngine
from prerouter.recipe.profile import ProfileSection
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.recipe.shaping import HOW_IT_RUNS, not_shaping, shaping_retrieval

SHAPING = {
    "kind",
    "model",
    "revision",
    "dtype",
    "max_model_len",
    "quantization",
    "arguments",
    "extra_body",
    "thinking_switch",
    "reply_limit_field",
    "entropies",
    "top_logprobs",
}


def engine(**fields: Any) -> EngineSection:
    made: EngineSection = TypeAdapter(EngineSection).validate_python({"model": "m", **fields})
    return made


def shown(**fields: Any) -> object:
    section = ProfileSection.model_validate({"engine": engine(**fields)})
    left_out = {"engine": not_shaping(section.engine)}
    return section.model_dump(mode="json", exclude=left_out)["engine"]


def test_every_key_of_every_engine_is_told_apart() -> None:
    kinds = [get_args(each)[0] for each in get_args(get_args(EngineSection)[0])]
    assert {RayEngine, VllmEngine, OpenAIEngine} < set(kinds)
    for kind in kinds:
        (name,) = get_args(kind.model_fields["kind"].annotation)
        left = set(kind.model_fields) - set(HOW_IT_RUNS[name])
        assert set(HOW_IT_RUNS[name]) <= set(kind.model_fields)
        assert left <= SHAPING, f"{name}: tell of {left - SHAPING} in recipe/shaping.py"


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "http://elsewhere/v1"},
        {"api_key_variable": "OTHER_KEY"},
        {"concurrency": 3},
        {"timeout_seconds": 9, "max_attempts": 2, "backoff_seconds": 3, "max_wait_seconds": 7},
    ],
)
def test_how_a_server_is_asked_shapes_nothing(changes: dict[str, Any]) -> None:
    spec = {"kind": "openai", "base_url": "http://here/v1"}
    assert shown(**(spec | changes)) == shown(**spec)


@pytest.mark.parametrize(
    "changes", [{"model": "other"}, {"extra_body": {"min_p": 0.1}}, {"thinking_switch": "none"}]
)
def test_what_a_server_is_told_shapes_its_reply(changes: dict[str, Any]) -> None:
    spec = {"kind": "openai", "base_url": "http://here/v1"}
    assert shown(**(spec | changes)) != shown(**spec)


def test_memory_shapes_nothing_and_other_arguments_do() -> None:
    assert shown(kind="vllm", arguments={"gpu_memory_utilization": 0.5}) == shown(kind="vllm")
    assert shown(kind="vllm", tensor_parallel_size=2) == shown(kind="vllm")
    assert shown(kind="vllm", arguments={"rope_scaling": {}}) != shown(kind="vllm")
    assert shown(kind="vllm", quantization="fp8") != shown(kind="vllm")


def found_by(**fields: Any) -> dict[str, Any]:
    return shaping_retrieval(RetrievalSection.model_validate(fields).model_dump(mode="json"))


def test_where_vectors_are_kept_shapes_nothing_and_how_they_are_searched_does() -> None:
    here = {"uri": "a.db", "m": 8}
    there = {"uri": "https://milvus:19530", "token_variable": "MILVUS_TOKEN", "m": 8}
    assert found_by(cache_dir="here", batch_size=8) == found_by(cache_dir="there")
    assert found_by(milvus=here) == found_by(milvus=there)
    assert found_by(milvus=here) != found_by(milvus=here | {"m": 16})
    assert found_by(milvus=here) != found_by()
    assert found_by(embedding="a") != found_by(embedding="b")
    # What is told once more is told the same.
    assert shaping_retrieval(found_by(milvus=here)) == found_by(milvus=here)
