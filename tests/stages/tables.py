"""A recipe over a small table of scored questions, and an engine that answers from a list."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any

from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message
from prerouter.recipe.cases import TableSource
from prerouter.recipe.recipe import Recipe

GOLD = "zqxgold"
LEVELS = ("location", "reasoning")
MODELS = ("reader-small", "reader-large")


def table_recipe(folder: Path, questions: int, **sections: Any) -> Recipe:
    """`questions` questions for two answer models over ten documents. RAG is the ideal route of
    those with an even number, LC of the others; the last question has no LC score. All answers
    hold `GOLD`."""
    rows = [
        {
            "question": f"What is said in part {number}?",
            "question_id": f"q{number:03}",
            "document_id": f"d{number % 10}",
            "title": f"Report {number % 10}",
            "document_type": "report",
            "document_tokens": 900 + number % 10,
            "head": f"Document {number % 10} begins here.",
            "answer": f"{GOLD} {number}",
            "level": LEVELS[number % 2],
            "answer_model": model,
            "context_window": 4096,
            "rag_score": 0.5,
            "lc_score": number % 2 if number < questions - 1 else None,
        }
        for number in range(questions)
        for model in MODELS
    ]
    path = folder / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    cases = {"source": "table", "path": str(path), "head_characters": 60}
    return Recipe.model_validate(
        {"name": "mine", "seed": 5, "runs_dir": str(folder / "runs"), "cases": cases, **sections}
    )


def with_task_types(recipe: Recipe) -> Recipe:
    """The level as the task type, which then tells the ideal route."""
    assert isinstance(recipe.cases, TableSource)
    columns = recipe.cases.columns.model_copy(update={"task_type": "level"})
    return recipe.model_copy(update={"cases": recipe.cases.model_copy(update={"columns": columns})})


class Scripted:
    """An engine whose replies `answer` makes of a request's number and prompt, last one first."""

    def __init__(
        self, answer: Callable[[int, str], Completion], model: str = "scripted-teacher"
    ) -> None:
        self.answer = answer
        self.model = model
        self.requests: list[GenerationRequest] = []
        self.sampling: Sampling | None = None
        self.closed = False
        self.honours: bool | None = True
        self.cached_share: float | None = None

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(kind="scripted", model=self.model)

    def honours_schema(self) -> bool | None:
        return self.honours

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return len(messages)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        self.requests, self.sampling = list(requests), sampling
        try:
            for index in reversed(range(len(requests))):
                yield index, self.answer(index, requests[index].messages[-1].content)
        finally:
            self.closed = True

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        return [[0.0] * len(choices) for _ in requests]
