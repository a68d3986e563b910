"""A table of answered questions, and an engine that grades by rule and keeps a list of its calls in
a file, which outlives a kill."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from prerouter.core.protocols import Completion

from .tables import Scripted

ENGINE = {"kind": "openai", "model": "big-judge", "base_url": "http://127.0.0.1:1/v1"}


def shown_in(prompt: str) -> dict[str, Any]:
    """The data of a judge's prompt, which stands between its delimiters and nowhere else."""
    first, data, last = prompt.split("\n")
    assert (first, last) == ("<judged>", "</judged>")
    loaded: dict[str, Any] = json.loads(data)
    return loaded


def reply(grade: Any, reason: str = "As it is.") -> str:
    return json.dumps({"reason": reason, "grade": grade})


Rule = Callable[[dict[str, Any]], Completion]


def by_answer(shown: dict[str, Any]) -> Completion:
    """The grade that an answer's last word spells; `prose`, `cut` and `down` are such replies."""
    word = shown["answer"].split()[-1]
    if word == "prose":
        return Completion("The answer is correct: grade 4.", "stop", 40, 7)
    if word == "cut":
        return Completion(reply(4)[:-4], "length", 40, 9)
    if word == "down":
        return Completion("", "error", error="503")
    return Completion(reply(int(word)), "stop", 40, 12)


class Judge(Scripted):
    """Answers by `rule`; `shown` is what it was shown so far, in the order of its replies."""

    def __init__(self, rule: Rule = by_answer, asked: Path | None = None) -> None:
        super().__init__(self._reply, "big-judge")
        self.rule = rule
        self.asked = asked
        self.shown: list[dict[str, Any]] = []

    def _reply(self, _: int, prompt: str) -> Completion:
        shown = shown_in(prompt)
        self.shown.append(shown)
        if self.asked:
            with self.asked.open("a") as file:
                file.write(f"{json.dumps(shown)}\n")
        return self.rule(shown)


def write_recipe(
    folder: Path, answers: Sequence[tuple[str | None, str | None]], **score: Any
) -> Path:
    """A question for each pair of RAG and LC answers, two to a document."""
    rows = [
        {
            "question": f"What is told in part {number}?",
            "question_id": f"q{number}",
            "document_id": f"d{number // 2}",
            "answer": f"gold {number}",
            "answer_model": "reader",
            "rag_answer": rag,
            "lc_answer": lc,
        }
        for number, (rag, lc) in enumerate(answers)
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    judge = {"engine": ENGINE, **score.pop("judge", {})}
    recipe = {
        "name": "judged",
        "seed": 3,
        "runs_dir": str(folder / "runs"),
        "cases": {"source": "table", "path": str(folder / "rows.jsonl")},
        "score": {"judge": judge, "max_failed_share": 1.0, **score},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path
