from __future__ import annotations

import pytest

from prerouter.core.records import Route, StudentMode
from prerouter.probing.own_route import likelier, route_texts
from prerouter.recipe.probe_router import ProbePrompt


@pytest.mark.parametrize(
    ("log_probabilities", "route"),
    [
        ((-1.0, -2.0), Route.RAG),
        ((-2.0, -1.0), Route.LC),
        ((-1.0, -1.0), Route.RAG),
        ((float("nan"), -1.0), None),
        ((-1.0, float("nan")), None),
    ],
)
def test_the_likelier_route_and_the_cheap_one_of_a_tie(
    log_probabilities: tuple[float, float], route: Route | None
) -> None:
    assert likelier(log_probabilities) is route


@pytest.mark.parametrize(
    ("prompt", "mode", "lc"),
    [
        ("guided", "explain", '{"decision": "LC"}'),
        ("direct", "explain", '{"decision": "LC"}'),
        ("unconstrained", "explain", "Decision: LC"),
        ("compact", "explain", '{"decision": "LC"}'),
        ("compact", "decide", "LC"),
    ],
)
def test_routes_are_named_as_the_prompt_asks(prompt: ProbePrompt, mode: str, lc: str) -> None:
    rag = lc.replace("LC", "RAG")
    assert route_texts(prompt, StudentMode(mode)) == (rag, lc)
