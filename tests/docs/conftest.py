"""A published router and a service, as the pages' Python finds them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prerouter.core.records import Label, RagConfig, Route, StudentMode
from prerouter.publishing.checkpoint import write_router
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.guideline import GuidelineRouter
from tests.prompts.cases import full_case
from tests.router_config import router_config
from tests.serving.running import running
from tests.tiny_model import make_tiny_model


@pytest.fixture(scope="session")
def router(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two random layers that name a route at once: its decisions are whole, and mean nothing."""
    config = router_config(
        rag=RagConfig(chunk_tokens=150, overlap_tokens=30),
        modes=(StudentMode.DECIDE, StudentMode.EXPLAIN),
        fallback=Route.RAG,
    )
    folder = tmp_path_factory.mktemp("router")
    model = make_tiny_model(folder / "model")
    return write_router(model, folder / "router", config, "---\nlicense: mit\n---\n# Card\n")


@pytest.fixture(scope="session")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A decision tree that was fitted on one case: it says LC to everything."""
    folder = tmp_path_factory.mktemp("tree")
    case = full_case()
    label = Label(case_id=case.case_id, route=Route.LC, margin=1.0)
    ClassicalRouter("decision_tree", 13).fit([(case, label)]).save(folder)
    return folder


@pytest.fixture
def service() -> Iterator[str]:
    """The address of a service, whose router are the guideline's rules."""
    with running(GuidelineRouter()) as address:
        yield address
