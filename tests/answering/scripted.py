"""An answering model that reads its prompt by rule, and what a prompt shows of its document."""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Sequence
from typing import Any

from prerouter.answering.window import ModelTokens, Window
from prerouter.core.protocols import (
    ChoiceScores,
    Completion,
    EngineInfo,
    GenerationRequest,
    Sampling,
)
from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Message,
    RagConfig,
    RoutingCase,
)
from prerouter.retrieval.chunking import count_words, word_starts


def count_prompt(messages: Sequence[Message], thinking: bool) -> int:
    """Words and punctuation marks, and 5 tokens a turn for the chat template."""
    return sum(count_words(message.content) + 5 for message in messages) + 4 * thinking


def window(reply: int = 20, reserved: int = 128, longest: int | None = None) -> Window:
    return Window(ModelTokens(word_starts, count_prompt, longest), reply, reserved)


def make_case(question: str = "When?", case_id: str = "c", **changes: Any) -> RoutingCase:
    settings: dict[str, Any] = {
        "question_id": case_id,
        "group_id": "d",
        "document": DocumentProfile(document_id="d"),
        "answer_model": AnswerModel(name="reader", context_window=1000),
        "rag": RagConfig(chunk_tokens=60, overlap_tokens=10, top_k=3),
    }
    return RoutingCase(case_id=case_id, question=question, **{**settings, **changes})


def block(request: GenerationRequest, name: str) -> list[str]:
    """The lines of a block of the prompt, which opens once and closes once."""
    lines = request.messages[1].content.split("\n")
    opening, closing = f"<{name}>", f"</{name}>"
    assert sum(line.count(opening) for line in lines) == 1
    assert sum(line.count(closing) for line in lines) == 1
    return lines[lines.index(opening) + 1 : lines.index(closing)]


def shown(request: GenerationRequest) -> list[str]:
    """The document's pieces, or the passages, as the model can decode them."""
    if "<document>" in request.messages[1].content:
        return [json.loads(line) for line in block(request, "document") if line.startswith('"')]
    return [json.loads(line.partition(": ")[2]) for line in block(request, "excerpts")]


def question_of(request: GenerationRequest) -> str:
    (line,) = block(request, "question")
    question: str = json.loads(line)
    return question


def plain_reply(request: GenerationRequest) -> Completion:
    return Completion(f"Answer to: {question_of(request)}", "stop", 50, 4, seconds=0.5)


class ScriptedModel:
    """Gives the reply of `reply`, the last request first, and keeps what it was asked."""

    def __init__(self, reply: Callable[[GenerationRequest], Completion] = plain_reply) -> None:
        self._reply = reply
        self.calls: list[list[GenerationRequest]] = []
        self.samplings: list[Sampling] = []

    @property
    def requests(self) -> list[GenerationRequest]:
        return [request for call in self.calls for request in call]

    @property
    def info(self) -> EngineInfo:
        return EngineInfo(kind="scripted", model="scripted-reader")

    @property
    def cached_share(self) -> float | None:
        return 0.25

    def honours_schema(self) -> bool | None:
        return False

    def count_tokens(self, messages: Sequence[Message]) -> int:
        return count_prompt(messages, False)

    def generate(
        self, requests: Sequence[GenerationRequest], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        self.calls.append(list(requests))
        self.samplings.append(sampling)
        for index in reversed(range(len(requests))):
            yield index, self._reply(requests[index])

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        raise NotImplementedError
