"""Routers that decide after retrieval: a recipe says what they lack before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.core.records import Route
from prerouter.recipe.base import apply_overrides, validate
from prerouter.recipe.recipe import Recipe

ENGINE = {"kind": "transformers", "model": "m"}
ANSWERED: dict[str, Any] = {
    "name": "mine",
    "cases": {"source": "table", "path": "mine.parquet"},
    "retrieval": {},
    "answer": {"reader": "engine", "engine": ENGINE, "entropy_tokens": 30},
    "score": {},
    "route": {"routers": ["always_rag"]},
}


def load(*changes: str) -> Recipe:
    return validate(Recipe, apply_overrides(ANSWERED, list(changes)), "r.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["answer.engine={kind: openai, model: m, base_url: 'http://a/v1'}"],
            "a server tells its likeliest tokens only",
        ),
        (["route.routers=[edar]", "answer.entropy_tokens=0"], "edar need answer.entropy_tokens"),
        (["route.routers=[edar]", "answer=null", "score=null"], "edar need answer.entropy_tokens"),
        (["route.routers=[always_long_rag]"], "always_long_rag need LONG_RAG in answer.routes"),
        (["route.routers=[long_rag_self_route]"], "need LONG_RAG in answer.routes"),
        (
            ["route.routers=[self_route_verdict]", "answer={reader: evidence}"],
            "self_route_verdict asks the model of answer.engine",
        ),
        (["route.routers=[edar_prompted]"], "needs route.checks.query_types.engine"),
        (
            ["route.routers=[self_route_verdict]", "answer.engine.kind=ray"],
            "kind `ray` gives no probability: set route.checks.verdict_by: reply",
        ),
        (
            ["route.routers=[edar_prompted]",
             "route.checks.query_types.engine={kind: ray, model: m}"],
            "set route.checks.query_types.ask_by: reply",
        ),
        (["route.routers=[pre_route_check]"], "route.checks.pre_route guideline is not among"),
        (["route.checks={tau: 1.2, tau_rule: elbow}"], "tau is given: leave out tau_rule"),
        (["route.checks={min_share: 0.9}"], "min_share belongs to tau_rule `least_cost`"),
        (
            ["route.checks.pre_route=pre_route_check", "route.routers=[pre_route_check]"],
            "a check itself",
        ),
        (
            ["route.routers=[edar]", "route.checks.split=test", "evaluate.split=test"],
            "choose tau on one, measure on another",
        ),
        (
            ["route.routers=[edar, always_rag]", "calibrate.routers=[edar]"],
            "calibrate.routers edar gives no p_lc",
        ),
        (
            ["route.routers=[self_route_verdict]", "calibrate.routers=[self_route_verdict]",
             "route.checks.verdict_by=reply"],
            "self_route_verdict needs verdict_by: probability",
        ),
        (
            ["route.routers=[self_route_verdict]", "calibrate.routers=[self_route_verdict]",
             "route.published={self_route_verdict_tuned: runs/a}"],
            "is the calibrated router's name",
        ),
        (["evaluate.fallback=LONG_RAG"], "evaluate.fallback LONG_RAG is not in answer.routes"),
        (
            ["answer.routes=[RAG, LONG_RAG, LC]", "label.routes=[RAG, LONG_RAG, LC]",
             "route.routers=[self_route_verdict]", "calibrate.routers=[self_route_verdict]"],
            "calibrate sets a threshold between two",
        ),
        (["route.published={student: runs/a}"], "student: the name of another router"),
        (["route.published={oracle: runs/a}"], "oracle: the name of another router"),
        (["route.published={'../a': runs/a}"], "route.published"),
        (["answer.routes=[RAG, LONG_RAG]"], "names RAG and LC at least"),
        (["answer.routes=[RAG, LC, LC]"], "and each route once"),
        (["answer.long_rag.top_k=2"], "long_rag says how LONG_RAG retrieves"),
        (["label.routes=[RAG, LONG_RAG, LC]"], "label.routes LONG_RAG: name them in answer.routes"),
        (
            ["answer.routes=[RAG, LONG_RAG, LC]", "answer.long_rag={unit: hierarchical, "
             "unit_tokens: 100, span_tokens: 200}"],
            "span_tokens must be smaller than unit_tokens",
        ),
        (
            ["answer.routes=[RAG, LONG_RAG, LC]", "label.routes=[RAG, LONG_RAG, LC]",
             "filter.traces=t.jsonl"],
            "traces end in RAG or LC",
        ),
    ],
)  # fmt: skip
def test_what_they_lack_is_told(changes: list[str], message: str) -> None:
    with pytest.raises(CombinedError) as caught:
        load(*changes)
    assert any(message in line for line in caught.value.lines), caught.value.lines


def test_routes_stand_from_cheap_to_dear_however_they_are_written() -> None:
    recipe = load("answer.routes=[LC, LONG_RAG, RAG]", "label.routes=[LC, LONG_RAG, RAG]")
    assert recipe.routes == recipe.label.routes == tuple(Route)
    assert load().routes == (Route.RAG, Route.LC)


def test_the_checked_router_may_be_a_published_one() -> None:
    recipe = load(
        "route.routers=[pre_route_check]",
        "route.published={mine: runs/a/publish/router}",
        "route.checks.pre_route=mine",
    )
    assert recipe.checked_router == "mine"
    assert recipe.checked_after_retrieval


def test_answers_brought_along_are_enough_for_self_route() -> None:
    recipe = load("answer=null", "retrieval=null", "route.routers=[always_rag, self_route]")
    assert recipe.checked_after_retrieval
    assert recipe.answers_file == "cases/answers.jsonl"


def test_a_word_that_is_written_can_come_from_any_engine() -> None:
    recipe = load(
        "route.routers=[self_route_verdict]", "answer.engine.kind=ray",
        "route.checks.verdict_by=reply",
    )  # fmt: skip
    assert recipe.answer is not None
