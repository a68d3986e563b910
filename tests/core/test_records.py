from __future__ import annotations

import math
from typing import Any

import pytest
from pydantic import ValidationError

from prerouter.core.records import (
    ROUTES,
    Answer,
    ArmScore,
    Decision,
    Label,
    PairedScore,
    RagConfig,
    Record,
    Reject,
    Route,
)

ARMS: dict[str, Any] = {"RAG": {"score": 1.0}, "LC": {"score": 0.0}}


def test_routes_are_declared_from_cheap_to_dear() -> None:
    assert ROUTES == (Route.RAG, Route.LC)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        (Label, {"case_id": "a", "route": "RAG", "margin": math.nan}),
        (Label, {"case_id": "a", "route": "RAG", "margin": math.inf}),
        (Label, {"case_id": "a", "route": "BOTH", "margin": 0}),
        (Answer, {"case_id": "a", "route": "RAG", "text": "x", "prompt_tokens": 2**53}),
        (Label, {"case_id": "", "route": "RAG", "margin": 0}),
        (Label, {"case_id": "a", "route": "RAG", "margin": 0, "score": 1}),
        (Answer, {"case_id": "a", "route": "RAG"}),
        (Answer, {"case_id": "a", "route": "RAG", "text": "x", "missing": "call_failed"}),
        (Answer, {"case_id": "a", "route": "RAG", "text": False}),
        (ArmScore, {}),
        (ArmScore, {"score": 1, "missing": "call_failed"}),
        (PairedScore, {"case_id": "a", "arms": ARMS, "judge": "f1", "low": 1, "high": 1}),
        (PairedScore, {"case_id": "a", "arms": {"RAG": {"score": 1}}, "judge": "f1"}),
        (PairedScore, {"case_id": "a", "arms": ARMS, "judge": "f1", "high": 0.5}),
        (Decision, {"case_id": "a", "router": "r"}),
        (Decision, {"case_id": "a", "router": "r", "route": "RAG", "failure": "unparsable"}),
        (Decision, {"case_id": "a", "router": "r", "route": "RAG", "p_lc": 1.5}),
        (Reject, {"stage": "teach", "key": "a", "reason": "Not an enum value"}),
        (RagConfig, {"chunk_tokens": 100, "overlap_tokens": 100}),
    ],
)
def test_what_is_not_a_record_is_refused(model: type[Record], fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(fields)


def test_records_do_not_change() -> None:
    label = Label(case_id="a", route=Route.RAG, margin=0)
    with pytest.raises(ValidationError, match="frozen"):
        label.margin = 1  # type: ignore[misc]
