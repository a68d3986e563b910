"""Names on a card: what the scores are by, without any path of a machine."""

from __future__ import annotations

from typing import Any

import pytest

from prerouter.publishing.names import data_name, measure_name
from prerouter.recipe.recipe import Recipe


@pytest.mark.parametrize(
    ("score", "name"),
    [
        (None, "scores brought along"),
        ({"metric": "rouge_l"}, "rouge_l"),
        ("Qwen/Qwen3-235B-A22B", "Qwen/Qwen3-235B-A22B on a rubric of 0 to 4"),
        ("/home/me/models/Judge-7B", "Judge-7B on a rubric of 0 to 4"),
    ],
)
def test_what_the_scores_are_by(score: Any, name: str) -> None:
    if isinstance(score, str):
        score = {"judge": {"engine": {"kind": "transformers", "model": score}}}
    cases = {"source": "table", "path": "rows.jsonl"}
    recipe = Recipe.model_validate({"name": "r", "cases": cases, "score": score})
    assert measure_name(recipe) == name


@pytest.mark.parametrize(
    ("source", "name"),
    [("sample", "prerouter's sample"), ("lara", "LaRA"), ("longbench_v2", "LongBench-v2")],
)
def test_where_the_cases_come_from(source: str, name: str) -> None:
    cases: dict[str, Any] = {"source": source, "path": "data"}
    if source != "lara":
        cases["answer_models"] = [{"name": "m"}]
    assert data_name(Recipe.model_validate({"name": "r", "cases": cases})) == name
