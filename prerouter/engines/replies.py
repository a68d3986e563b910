"""What a chat completion's body says, taken whole or refused with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import BaseModel, Field, ValidationError

from prerouter.core.protocols import Completion, FinishReason
from prerouter.engines.retries import ServerError
from prerouter.engines.thinking import part_thinking

_FINISHED: dict[str, FinishReason] = {"stop": "stop", "length": "length"}


class _Message(BaseModel):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str


class _Details(BaseModel):
    cached_tokens: Annotated[int, Field(ge=0)] | None = None


class _Usage(BaseModel):
    prompt_tokens: Annotated[int, Field(ge=0)] = 0
    completion_tokens: Annotated[int, Field(ge=0)] = 0
    prompt_tokens_details: _Details | None = None


class _Body(BaseModel):
    choices: list[_Choice]
    usage: _Usage | None = None


@dataclass(frozen=True)
class Reply:
    """`cached_tokens` is the part of the prompt that the server did not compute anew, if told."""

    completion: Completion
    cached_tokens: int | None


def read_reply(body: str, *, thinking: bool) -> Reply:
    """The reply to a request for one choice. Raises ServerError for anything less than that.

    Reasoning stands in `reasoning` or `reasoning_content` (the name changed between servers), or,
    where the server does not part it, between tags in the text. Null content at the token limit is
    an empty text: the model spent its tokens on thinking. Where the model stopped by itself, null
    content is a fault, with reasoning beside it or without. A reply at the token limit is none: the
    same request would run into it again, and cost as much.
    """
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        raise ServerError(f"malformed reply: {_first_problem(error)}", passing=True) from None
    if len(parsed.choices) != 1:
        raise ServerError(f"{len(parsed.choices)} choices instead of 1", passing=True)
    choice = parsed.choices[0]
    message = choice.message
    if choice.finish_reason not in _FINISHED:
        # A content filter or a tool call says the same at every attempt.
        raise ServerError(f"finish_reason {choice.finish_reason[:40]!r}", passing=False)
    if message.refusal:
        raise ServerError("the model refused to answer", passing=False)
    finish = _FINISHED[choice.finish_reason]
    text, reasoning = message.content, message.reasoning or message.reasoning_content
    if text is None and finish == "stop":
        beside = "reasoning without content" if reasoning else "neither content nor reasoning"
        raise ServerError(beside, passing=True)
    if thinking and text and not reasoning:
        reasoning, text = part_thinking(text)
    usage = parsed.usage or _Usage()
    completion = Completion(
        text or "",
        finish,
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.completion_tokens,
        reasoning=reasoning or None,
    )
    details = usage.prompt_tokens_details
    return Reply(completion, details.cached_tokens if details else None)


def _first_problem(error: ValidationError) -> str:
    """Where and what, without the server's own text."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = "not JSON" if first["type"] == "json_invalid" else first["msg"]
    return f"{place}: {message}" if place else message
