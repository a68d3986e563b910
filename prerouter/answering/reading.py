"""Answering by a model: the questions of some documents, by each route."""

from __future__ import annotations

import hashlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace

from prerouter.answering.long_context import LongText, lc_prompt
from prerouter.answering.prompted import Prompted, answer_key, generate_answers
from prerouter.answering.rag import rag_prompt
from prerouter.answering.window import Window
from prerouter.core.protocols import Engine, Sampling
from prerouter.core.records import Answer, Reject, Route, RoutingCase
from prerouter.retrieval.retriever import Retriever


@dataclass(frozen=True)
class Asked:
    """A question that is due on one route. `choices` where it is a multiple-choice question."""

    case: RoutingCase
    route: Route
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnsweringModel:
    """One answering model with what it takes to put a document before it. `retrievers` hold one
    for RAG, and for LONG_RAG where that is asked for; the latter finds `long_top_k` units."""

    engine: Engine
    retrievers: Mapping[Route, Retriever]
    window: Window
    long_top_k: int | None = None
    entropy_tokens: int = 0
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0
    keep_cut_off: bool = False

    def answer(
        self, documents: Sequence[tuple[str, Sequence[Asked]]]
    ) -> Generator[Answer | Reject, None, None]:
        """Answers to the questions over each document's text, as they get done.

        Questions on one route go to the engine in one call, those over one document side by side,
        so that what they begin with alike is read once.
        """
        for route in Route:
            prompts = [
                prompt for text, asked in documents for prompt in self._prompts(text, asked, route)
            ]
            for thinking in (False, True):
                some = [it for it in prompts if it.case.answer_model.thinking is thinking]
                yield from generate_answers(
                    some, self.engine, self.sampling(thinking), keep_cut_off=self.keep_cut_off
                )

    def sampling(self, thinking: bool) -> Sampling:
        """How every answer is generated."""
        return Sampling(
            max_tokens=self.window.reply_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            entropy_tokens=self.entropy_tokens,
            thinking=thinking,
        )

    def _prompts(self, text: str, asked: Sequence[Asked], route: Route) -> list[Prompted]:
        due = [each for each in asked if each.route is route]
        if not due:
            return []
        if route is Route.LC:
            document = LongText(text, self.window.tokens.starts)
            prompts = [lc_prompt(each.case, document, self.window, each.choices) for each in due]
        else:
            retriever = self.retrievers[route]
            top_k = self.long_top_k if route is Route.LONG_RAG else None
            prompts = [
                rag_prompt(
                    each.case,
                    text,
                    retriever,
                    self.window,
                    each.choices,
                    route=route,
                    top_k=top_k,
                )
                for each in due
            ]
        return [self._seeded(prompt) for prompt in prompts] if self.temperature else prompts

    def _seeded(self, prompt: Prompted) -> Prompted:
        """A seed for one case on one route, the same whatever else is in the batch."""
        if prompt.request is None:
            return prompt
        text = f"{self.seed}|{answer_key(prompt.case.case_id, prompt.route)}"
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") >> 1
        return replace(prompt, request=replace(prompt.request, seed=seed))
