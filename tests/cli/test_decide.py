from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from prerouter.cli.decide import Request, make_case, to_json
from prerouter.core.errors import CombinedError
from prerouter.core.records import Decision, DecisionFailure, MetadataSetting, RagConfig, Route
from prerouter.routers.learned import LearnedRouter

REQUEST = Request(
    router=Path("router"),
    question="Who?",
    document=Path("document.txt"),
    answer_model="reader",
    context_window=None,
    title=None,
    document_type=None,
    task_type=None,
    document_tokens=1000,
    chunk_tokens=None,
    overlap_tokens=None,
    top_k=None,
    mode=None,
    threshold=None,
    engine="transformers",
)


def router() -> LearnedRouter:
    """A router that is asked what it was trained for, and for nothing that takes its model."""
    return LearnedRouter(
        "student",
        cast(Any, None),
        "compact",
        MetadataSetting.FULL,
        False,
        10,
        head_characters=5,
        rag=RagConfig(chunk_tokens=200, overlap_tokens=40, top_k=3),
    )


def test_what_is_not_given_is_as_the_router_was_trained() -> None:
    case = make_case(replace(REQUEST, top_k=9), "Ada wrote it.", router())
    assert case.rag == RagConfig(chunk_tokens=200, overlap_tokens=40, top_k=9)
    assert case.document.head is not None
    assert len(case.document.head) <= 5
    assert case.document.tokens == 1000


@pytest.mark.parametrize(
    ("request_", "option"),
    [
        (replace(REQUEST, question=""), "--question"),
        (replace(REQUEST, answer_model=""), "--answer-model"),
        (replace(REQUEST, answer_model="m" * 10_000), "--answer-model"),
        (replace(REQUEST, overlap_tokens=200), "--overlap-tokens"),
        (replace(REQUEST, document_tokens=-1), "--document-tokens"),
    ],
)
def test_a_mistake_names_the_option_that_holds_it(request_: Request, option: str) -> None:
    with pytest.raises(CombinedError) as caught:
        make_case(request_, "Ada wrote it.", router())
    [line] = caught.value.lines
    assert line.startswith(f"{option}: ")
    assert len(line) < 200


def test_json_without_a_route_tells_the_fallback() -> None:
    failed = Decision(case_id="case", router="student", failure=DecisionFailure.CUT_OFF, raw="{")
    assert json.loads(to_json(failed, Route.LC)) == {
        "router": "student",
        "failure": "cut_off",
        "raw": "{",
        "calls": 0,
        "prompt_tokens": 0,
        "completion_tokens": 0,
        "seconds": 0.0,
        "fallback": "LC",
    }
    taken = Decision(case_id="case", router="student", route=Route.RAG)
    shown = json.loads(to_json(taken, Route.LC))
    assert shown["route"] == "RAG"
    assert "fallback" not in shown
