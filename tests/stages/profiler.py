"""An engine that infers profiles by rule, plays faults by the words of a question, and keeps a
list of what it was asked in a file, which outlives a kill."""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from pathlib import Path

from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import Message


def data_of(request: GenerationRequest) -> dict[str, str]:
    first, data, last = request.messages[1].content.split("\n")
    assert (first, last) == ("<case>", "</case>")
    loaded: dict[str, str] = json.loads(data)
    return loaded


class Profiler:
    """Last request first. A question that holds `prose`, `cut` or `down` gets such a reply;
    `down` no longer where `healed`."""

    def __init__(self, asked: Path, *, healed: bool = False) -> None:
        self.asked = asked
        self.healed = healed
        self.prompts: list[str] = []
        self.sampling: Sampling | None = None

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(kind="scripted", model="small-profiler")

    @property
    def cached_share(self) -> float | None:
        return None

    def honours_schema(self) -> bool | None:
        return True

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return sum(len(message.content.split()) for message in messages)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        self.sampling = sampling
        for index in reversed(range(len(requests))):
            request = requests[index]
            self.prompts.append(str(request.messages))
            question = data_of(request)["question"]
            with self.asked.open("a") as file:
                file.write(f"{question}\n")
            yield index, self._reply(question)

    def _reply(self, question: str) -> Completion:
        whole = json.dumps(
            {"title": f"Title of: {question}", "document_type": "Report", "task_type": None}
        )
        if "prose" in question:
            return Completion("It is a report.", "stop", 40, 5)
        if "cut" in question:
            return Completion(whole[:30], "length", 40, 9)
        if "down" in question and not self.healed:
            return Completion("", "error", error="503")
        return Completion(whole, "stop", 40, 12)

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        return [[0.0] * len(choices) for _ in requests]
