"""One vLLM engine in a Ray worker, and the form in which requests and replies travel."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import queue
import threading
import traceback
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any

from prerouter.core.errors import (
    CombinedError,
    MissingDependencyError,
    PrerouterError,
    RecipeError,
)
from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.vllm import VllmModel
from prerouter.recipe.engine import VllmEngine


class Replica:
    """Answers blocks of requests, several at once, by one engine which waits for none of them.

    A section that can't be run is told in place of each reply. An engine that breaks ends this
    process, so that Ray starts another one and runs the blocks again.
    """

    def __init__(self, section: str, sampling: str) -> None:
        # An engine in a process of its own outlives a killed worker and keeps the GPU's memory.
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        self._section = VllmEngine.model_validate_json(section)
        self._sampling = Sampling(**json.loads(sampling))
        self._waiting: queue.SimpleQueue[tuple[GenerationRequest, Future[Completion]]] = (
            queue.SimpleQueue()
        )
        self._asked: dict[int, Future[Completion]] = {}
        # Loaded beside the first blocks, so that a model which ends its process each time it is
        # loaded counts among the tries of a block; Ray would start its worker again for ever.
        threading.Thread(target=self._work, daemon=True).start()

    def __call__(self, block: Mapping[str, Any]) -> dict[str, Any]:
        """Columns `index`, `request` to `index`, `reply`, row for row: where Ray runs a block
        again, it goes on by the places of its rows."""
        futures = [self._ask(unpack_request(str(packed))) for packed in block["request"]]
        try:
            replies = [pack_completion(future.result()) for future in futures]
        except PrerouterError as error:
            replies = [pack_refusal(error)] * len(futures)
        return {"index": block["index"], "reply": replies}

    def _ask(self, request: GenerationRequest) -> Future[Completion]:
        future: Future[Completion] = Future()
        self._waiting.put((request, future))
        return future

    def _work(self) -> None:
        try:
            model = VllmModel(self._section)
            for number, completion in model.stream(self._arriving(), self._sampling):
                self._asked.pop(number).set_result(completion)
        except (RecipeError, CombinedError, MissingDependencyError) as error:
            self._refuse(error)
        except BaseException:  # noqa: BLE001 -- nobody else in this process would notice
            traceback.print_exc()
            os._exit(1)

    def _arriving(self) -> Iterator[tuple[int, GenerationRequest] | None]:
        for number in itertools.count():
            while (arrived := self._next()) is None:
                yield None
            request, self._asked[number] = arrived
            yield number, request

    def _next(self) -> tuple[GenerationRequest, Future[Completion]] | None:
        try:
            return self._waiting.get(block=not self._asked)
        except queue.Empty:
            return None

    def _refuse(self, error: PrerouterError) -> None:
        for future in self._asked.values():
            future.set_exception(error)
        while True:
            self._waiting.get()[1].set_exception(error)


def pack_request(request: GenerationRequest) -> str:
    messages = [[message.role, message.content] for message in request.messages]
    # ASCII: a hostile text can hold half a character, which no column takes.
    return json.dumps({"messages": messages, "seed": request.seed})


def unpack_request(packed: str) -> GenerationRequest:
    data = json.loads(packed)
    messages = (Message(role=role, content=content) for role, content in data["messages"])
    return GenerationRequest(tuple(messages), data["seed"])


def pack_completion(completion: Completion) -> str:
    return json.dumps({"completion": dataclasses.asdict(completion)})


def pack_refusal(error: PrerouterError) -> str:
    errors = error.errors if isinstance(error, CombinedError) else [error]
    parts = [[one.place, one.problem, one.accepted, one.next_step] for one in errors]
    return json.dumps({"refusal": parts})


def unpack_reply(packed: str) -> Completion:
    """The completion. Raises CombinedError where the replica refused to run at all."""
    data = json.loads(packed)
    if "refusal" in data:
        raise CombinedError([RecipeError(*parts) for parts in data["refusal"]])
    completion = data["completion"]
    return Completion(**{**completion, "entropies": tuple(completion["entropies"])})
