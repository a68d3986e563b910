"""Faithfulness by the ragas package: its prompts and its arithmetic, asked through our engines.

Its collections metric (ragas 0.4) takes any model that answers in a given pydantic form; here that
model is an Engine, held to the form's JSON schema and checked all the same. ragas asks for one
reply after the other, so a server's concurrency is not used. Its prompts hold the texts of
strangers as JSON, without the delimiters and the warning that ours have.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Generator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from prerouter.answering.faithfulness import (
    Faithfulness,
    NoFaithfulness,
    ReadAnswer,
    checked,
    refusal,
    without,
)
from prerouter.core.errors import MissingDependencyError
from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import Message, Reject
from prerouter.prompts.trace import TraceError, TraceReason, bare_reply, load_object
from prerouter.recipe.judge import FaithfulnessSection


def ragas_faithfulness(
    due: Sequence[ReadAnswer], engine: Engine, section: FaithfulnessSection
) -> Generator[Faithfulness | Reject, None, None]:
    """ragas' faithfulness of each answer, in their order. A reply that can't be read is a Reject.

    Raises MissingDependencyError where ragas isn't there, or the langchain beside it is one that
    it can't be imported with.
    """
    # It reports its use to its makers unless told not to; whoever wants it to sets it otherwise.
    os.environ.setdefault("RAGAS_DO_NOT_TRACK", "true")
    try:
        from ragas.metrics.collections import Faithfulness as RagasMetric
    except ImportError:
        raise MissingDependencyError("ragas", "ragas") from None
    model = _engine_model(engine, section)
    metric = RagasMetric(llm=model)
    for item in due:
        model.replies.clear()
        try:
            asyncio.run(
                metric.ascore(
                    user_input=item.question,
                    response=item.answer.text or "",
                    retrieved_contexts=list(item.passages),
                )
            )
            verdicts = _verdicts(model.replies)
        except TraceError as error:
            step = "claims" if not model.replies else "support"
            yield refusal(f"{item.key}|{step}", model.last, error)
            continue
        if verdicts:
            yield checked(item.answer, iter(verdicts))
        else:
            yield without(item.answer, NoFaithfulness.NO_CLAIMS)


def _verdicts(replies: Sequence[Any]) -> list[tuple[str, bool]]:
    """The claims that ragas went by, with its verdicts; it doesn't look whether any is left out."""
    made = replies[0].statements
    judged = replies[1].statements if len(replies) > 1 else []
    if len(judged) != len(made):
        detail = f"{len(judged)} verdicts for {len(made)} claims"
        raise TraceError(TraceReason.WRONG_SHAPE, detail)
    strange = next((each.verdict for each in judged if each.verdict not in (0, 1)), None)
    if strange is not None:
        raise TraceError(TraceReason.WRONG_SHAPE, f"a verdict is {strange}")
    return [(claim, each.verdict == 1) for claim, each in zip(made, judged, strict=True)]


def _engine_model(engine: Engine, section: FaithfulnessSection) -> Any:
    from ragas.llms.base import InstructorBaseRagasLLM

    class EngineModel(InstructorBaseRagasLLM):  # type: ignore[misc]
        """An Engine as ragas asks a model. `replies` are those to the answer in hand."""

        def __init__(self) -> None:
            self.replies: list[BaseModel] = []
            self.last = Completion("", "error")

        def generate(self, prompt: str, response_model: type[BaseModel]) -> BaseModel:
            sampling = Sampling(
                section.max_tokens,
                schema=response_model.model_json_schema(),
                thinking=section.thinking,
            )
            request = GenerationRequest((Message(role="user", content=prompt),))
            ((_, self.last),) = engine.generate([request], sampling)
            _, rest = bare_reply(self.last.text, self.last.finish_reason)
            try:
                reply = response_model.model_validate(load_object(rest), strict=True)
            except ValidationError as error:
                raise TraceError(TraceReason.WRONG_SHAPE, f"{error.error_count()} faults") from None
            self.replies.append(reply)
            return reply

        async def agenerate(self, prompt: str, response_model: type[BaseModel]) -> BaseModel:
            return self.generate(prompt, response_model)

    return EngineModel()
