"""A loopback teacher: one guided trace for one prompt, whenever it is asked, and every fault.

A question that begins with the name of a fault and a number of attempts is played so; one that
begins with a way of thinking (`THINKING`) gets a trace with thinking text, which holds the same
trace with the other decision.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.engines.fault_server import FaultServer, reply, running_server

_QUESTION = re.compile(r'"question": "([^"]*)"')
_LONGEST_DELAY = 0.03

THINKING: dict[str, Callable[[str, str], dict[str, Any]]] = {
    "between_tags": lambda thought, text: reply(f"<think>\n{thought}\n</think>\n\n{text}"),
    "to_a_closing_tag": lambda thought, text: reply(f"{thought}\n</think>\n\n{text}"),
    "with_no_tag": lambda thought, text: reply(text),
    "left_open": lambda thought, text: reply(f"<think>\n{thought}\n\n{text}"),
    "in_reasoning": lambda thought, text: reply(text, reasoning=thought),
    "in_reasoning_content": lambda thought, text: reply(text, reasoning_content=thought),
}


class TeacherServer(FaultServer):
    def __init__(self) -> None:
        super().__init__()
        self.answered: list[str] = []

    def words_of(self, body: dict[str, Any]) -> str:
        prompt = super().words_of(body)
        question = _QUESTION.search(prompt)
        return question[1] if question else prompt

    def answer_to(self, body: dict[str, Any]) -> dict[str, Any]:
        fields = body["response_format"]["json_schema"]["schema"]["properties"]
        digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).digest()
        # Later requests overtake earlier ones, always the same.
        time.sleep(_LONGEST_DELAY * digest[0] / 255)
        written = {
            name: field["enum"][digest[1] % len(field["enum"])]
            if "enum" in field
            else f"{name} of {self.words_of(body)}"
            for name, field in fields.items()
        }
        self.answered.append(self.words_of(body))
        text = json.dumps(written)
        way = THINKING.get(self.words_of(body).split()[0])
        if way is None:
            return reply(text)
        other = {"RAG": "LC", "LC": "RAG"}[written["decision"]]
        return way(json.dumps(written | {"decision": other}), text)

    @property
    def asked(self) -> dict[str, int]:
        """Requests by question; what was asked about no case is left out."""
        return {words: count for words, count in self.seen.attempts.items() if words.endswith("?")}


@contextmanager
def teacher() -> Iterator[TeacherServer]:
    with running_server(TeacherServer) as server:
        yield server


def write_recipe(
    folder: Path, server: FaultServer, questions: Iterable[str], **changes: Any
) -> Path:
    """A recipe whose teacher is `server` and whose cases are `questions`, in their order."""
    (folder / "questions.jsonl").write_text(
        "".join(json.dumps({"question": text, "title": text}) + "\n" for text in questions)
    )
    engine = {
        "kind": "openai",
        "model": "some/teacher",
        "base_url": server.base_url,
        "concurrency": 4,
        "timeout_seconds": 5,
        "max_attempts": 3,
        "cut_off_attempts": 3,
        "backoff_seconds": 0.01,
        **changes.pop("engine", {}),
    }
    recipe = {
        "name": "taught",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "questions.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 8192}],
        },
        "teach": {
            "engine": engine,
            "splits": ["train", "validation", "test"],
            "max_failed_share": 0.2,
            **changes,
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path
