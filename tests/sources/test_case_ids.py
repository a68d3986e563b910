"""Case ids: two cases never share one, and ordinary names stand as they are."""

from __future__ import annotations

from itertools import product

import pytest

from prerouter.core.records import AnswerModel
from prerouter.sources.case_ids import case_id_of


@pytest.mark.parametrize(
    ("question", "name", "thinking", "expected"),
    [
        ("q1", "m1", False, "q1/m1"),
        ("q1", "m1", True, "q1/m1+thinking"),
        ("question 1: a+b", "Qwen/Qwen3-1.7B", False, "question 1: a+b/Qwen/Qwen3-1.7B"),
    ],
)
def test_ordinary_names_stand_as_they_are(
    question: str, name: str, thinking: bool, expected: str
) -> None:
    assert case_id_of(question, AnswerModel(name=name, thinking=thinking)) == expected


def test_no_two_cases_share_an_id() -> None:
    questions = ["a", "a/b", "a/b/c", "a%2Fb", "a%252Fb", "a/", "/a", "%", "a+thinking"]
    names = [
        "c",
        "b/c",
        "/c",
        "c+thinking",
        "c%2Bthinking",
        "c+thinking+thinking",
        "c%252Bthinking",
    ]
    cases = list(product(questions, names, (False, True)))
    ids = {case_id_of(q, AnswerModel(name=name, thinking=on)) for q, name, on in cases}
    assert len(ids) == len(cases)
