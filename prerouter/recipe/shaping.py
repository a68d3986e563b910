"""What of a section shapes a stage's rows, and what only says how it is run: of an engine's, and of
`retrieval`.

Replies are paid for. A stage whose fingerprint leaves out what isn't told here as shaping keeps
them when a server moves, or when a run is made gentler after it failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from prerouter.recipe.engine import EngineSection

_SIZES = ("tensor_parallel_size", "pipeline_parallel_size")

# A key that isn't here shapes replies: one that is forgotten costs calls, never a wrong row.
HOW_IT_RUNS: dict[str, tuple[str, ...]] = {
    "transformers": ("batch_size",),
    "vllm": (*_SIZES, "data_parallel_size"),
    "ray": (
        *_SIZES,
        "address",
        "replicas",
        "gpus_per_replica",
        "cpus_per_replica",
        "batch_size",
        "concurrent_batches",
    ),
    "openai": (
        "base_url",
        "api_key_variable",
        "concurrency",
        "timeout_seconds",
        "max_attempts",
        "cut_off_attempts",
        "backoff_seconds",
        "max_wait_seconds",
    ),
}

# vLLM's own arguments that are turned when memory runs out or a GPU idles.
MEMORY = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens", "enforce_eager")

# Of `retrieval`: where its vectors are kept and how many are made at once.
_KEPT = ("cache_dir", "batch_size")
_MILVUS_AT = ("uri", "token_variable")


def shaping(section: BaseModel, engine: EngineSection | None, *grows: str) -> dict[str, Any]:
    """The keys of a stage's section that shape its rows. Left out are how its `engine` is run, the
    limit on failures, and `grows`: counts that, when raised, ask only for what isn't there yet."""
    left_out: dict[str, Any] = {"max_failed_share": True, "engine": not_shaping(engine)}
    return section.model_dump(mode="json", exclude=left_out | dict.fromkeys(grows, True))


def not_shaping(engine: EngineSection | None) -> dict[str, Any]:
    """What `model_dump(exclude={"engine": ...})` leaves out of a section that holds `engine`."""
    if engine is None:
        return {}
    left_out: dict[str, Any] = dict.fromkeys(HOW_IT_RUNS[engine.kind], True)
    return left_out | {"arguments": dict.fromkeys(MEMORY, True)}


def shaping_retrieval(retrieval: Mapping[str, Any]) -> dict[str, Any]:
    """What of `retrieval`, as plain data, decides what is found."""
    milvus = retrieval.get("milvus")
    return {
        **{key: value for key, value in retrieval.items() if key not in _KEPT},
        "milvus": milvus and {key: it for key, it in milvus.items() if key not in _MILVUS_AT},
    }
