"""A published folder behind `vllm serve`, as it is."""

from __future__ import annotations

import gc
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from prerouter.core.records import StudentMode
from prerouter.engines.embedded import resolve_model
from prerouter.engines.openai import OpenAIServer
from prerouter.publishing.checkpoint import write_router
from prerouter.recipe.engine import OpenAIEngine
from prerouter.routers.learned import LearnedRouter
from tests.router_config import router_config
from tests.vllm.serving import served
from tests.vllm.traces import MODEL, cases


def test_it_is_served_and_decides_as_in_process(repository: Path, tmp_path: Path) -> None:
    config = router_config()
    source = Path(resolve_model(MODEL))
    folder = write_router(source, tmp_path / "router", config, "---\n---\n# Card\n")
    asked = cases(8)
    here = LearnedRouter.from_pretrained(folder, mode=StudentMode.DECIDE, dtype="float32")
    expected = [decision.p_lc for decision in here.decide(asked)]
    with served(repository, str(folder), "router", tmp_path / "log") as address:
        there = LearnedRouter(
            "served",
            OpenAIServer(OpenAIEngine(kind="openai", model="router", base_url=address)),
            config.prompt_form,
            config.metadata,
            config.thinking,
            config.max_tokens,
            mode=StudentMode.DECIDE,
        )
        found = [decision.p_lc for decision in there.decide(asked)]
    assert len(set(expected)) == 8
    assert found == pytest.approx(expected, abs=1e-3)


def test_it_runs_on_vllm_in_process(tmp_path: Path) -> None:
    source = Path(resolve_model(MODEL))
    folder = write_router(source, tmp_path / "router", router_config(), "---\n---\n# Card\n")
    load = partial(LearnedRouter.from_pretrained, folder, dtype="float32")
    asked = cases(8)
    for mode in StudentMode:
        here, there = (load(mode=mode, engine=engine) for engine in ("transformers", "vllm"))
        expected = here.decide(asked)
        with ThreadPoolExecutor(1) as another:  # as `prerouter serve` asks
            found = another.submit(there.decide, asked).result()
        assert [d.case_id for d in found] == [case.case_id for case in asked]
        assert [d.prompt_tokens for d in found] == [d.prompt_tokens for d in expected]
        if mode is StudentMode.DECIDE:
            assert [d.p_lc for d in found] == pytest.approx([d.p_lc for d in expected], abs=1e-3)
        del there
        gc.collect()
