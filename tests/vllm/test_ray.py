"""The ray engine: the teach stage over a real vLLM in a Ray worker, which is killed on the way."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.protocols import GenerationRequest, Sampling, SilentProgress
from prerouter.core.records import Message, Reject, Trace
from prerouter.engines.start import start_engine
from prerouter.recipe.base import validate
from prerouter.recipe.engine import RayEngine
from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, teach
from tests.vllm.traces import MAX_MODEL_LEN, MODEL

ray = pytest.importorskip("ray")

SAMPLES = 2


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, object_store_memory=100_000_000, logging_level="ERROR")
    yield
    ray.shutdown()


def engine_section(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "ray",
        "address": "local",
        "model": MODEL,
        "dtype": "bfloat16",
        "max_model_len": MAX_MODEL_LEN,
        "gpus_per_replica": 0,
        "cpus_per_replica": 2,
        "batch_size": 4,
        "concurrent_batches": 2,
        "arguments": {"enforce_eager": True},
        **changes,
    }


def replicas() -> list[psutil.Process]:
    """The processes of this session's cluster that hold a vLLM engine."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            title = " ".join(process.cmdline())
            if title.startswith("ray::") and "Replica" in title:
                found.append(process)
    return found


class KillsAReplicaOnce(SilentProgress):
    """Ends the worker's process once some of the traces are there."""

    def __init__(self) -> None:
        self.done = 0
        self.killed: list[psutil.Process] = []

    def advance(self, steps: int = 1) -> None:
        self.done += steps
        if self.done >= 5 and not self.killed:
            self.killed = replicas()
            for process in self.killed:
                process.kill()


def test_a_killed_replica_costs_no_trace(repository: Path, tmp_path: Path) -> None:
    recipe = validate(
        Recipe,
        {
            "name": "ray",
            "runs_dir": str(tmp_path),
            "cases": {
                "source": "sample",
                "path": str(repository / "data" / "sample"),
                "answer_models": [{"name": "reader-4k", "context_window": 4096}],
            },
            "split": {"train": 0.9, "validation": 0.05, "test": 0.05},
            "teach": {
                "teacher": "engine",
                "engine": engine_section(),
                "prompt": {"paradigm": "direct"},
                "splits": ["validation"],
                "samples": SAMPLES,
                "max_tokens": 60,
                "max_failed_share": 0.5,
            },
        },
        "recipe",
    )
    execute(cases.STAGE, recipe, SilentProgress())
    progress = KillsAReplicaOnce()
    execute(teach.STAGE, recipe, progress)
    assert len(progress.killed) == 1
    traces = list(read_rows(recipe.run_dir / "teach" / "rows.jsonl", Trace))
    rejects = list(read_rows(recipe.run_dir / "teach" / "rejects.jsonl", Reject))
    # A small model may fail to write a trace; none failed to be asked.
    assert "call_failed" not in {reject.reason for reject in rejects}
    assert len(traces) + len(rejects) == progress.done > 20
    assert len(traces) > 20
    keys = [(trace.case_id, trace.sample) for trace in traces]
    assert len(set(keys)) == len(keys)
    assert {sample for _, sample in keys} == set(range(SAMPLES))
    assert all(trace.prompt_tokens and trace.completion_tokens for trace in traces)
    assert read_manifest(recipe.run_dir / "teach") is not None
    # The next stage finds the machine's memory free: nothing of a replica outlives it.
    deadline = time.monotonic() + 20
    while replicas() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not replicas()


def request(text: str) -> GenerationRequest:
    return GenerationRequest((Message(role="user", content=text),))


def test_one_bad_request_costs_that_request_only() -> None:
    engine = start_engine(validate(RayEngine, engine_section(batch_size=3), "engine"))
    asked = [
        request("Name a colour."),
        request("word " * 5000),
        request("half a character: \ud800"),
        request("Name a fish."),
    ]
    done = dict(engine.generate(asked, Sampling(max_tokens=4, entropy_tokens=2)))
    assert (done[1].error or "").startswith("prompt too long: 50")
    assert done[2].error == "the prompt holds text that has no tokens"
    assert [done[index].completion_tokens for index in (0, 3)] == [4, 4]
    assert [len(done[index].entropies) for index in (0, 3)] == [2, 2]
    assert engine.count_tokens(asked[0].messages) == done[0].prompt_tokens
    assert set(engine.info.versions) >= {"prerouter", "ray"}


def test_a_section_that_vllm_refuses_is_told_once() -> None:
    section = engine_section(arguments={"enforce_eger": True})
    engine = start_engine(validate(RayEngine, section, "engine"))
    with pytest.raises(
        CombinedError, match=r"arguments.enforce_eger: .*did you mean enforce_eager"
    ):
        list(engine.generate([request("a"), request("b")], Sampling(max_tokens=2)))


def test_a_replica_that_no_machine_can_hold_is_refused_at_once() -> None:
    section = validate(RayEngine, engine_section(gpus_per_replica=None), "engine")
    with pytest.raises(StageError, match=r"takes 1 GPUs and 2 CPUs.*have 0 GPUs and 2 CPUs"):
        start_engine(section)
