"""What a chat completion's body says, taken whole or refused with a reason."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import BaseModel, Field, ValidationError, ValidatorFunctionWrapHandler, WrapValidator

from prerouter.core.errors import first_mistake
from prerouter.core.protocols import Completion, FinishReason
from prerouter.core.records import Count
from prerouter.engines.entropy_bound import entropy_at_least
from prerouter.engines.retries import ServerError
from prerouter.engines.thinking import part_thinking

_FINISHED: dict[str, FinishReason] = {"stop": "stop", "length": "length"}
_FINAL = frozenset({"content_filter", "tool_calls", "function_call"})
"""These say the same at every attempt; any other tells of the server."""


def _none_if_wrong(value: Any, read: ValidatorFunctionWrapHandler) -> Any:
    try:
        return read(value)
    except ValidationError:
        return None


Told = TypeVar("Told")
_IfTold = Annotated[Told | None, WrapValidator(_none_if_wrong)]
"""What is said beside a reply. A server that gets it wrong has not told, and its reply stands."""


class _Message(BaseModel):
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    refusal: str | None = None


class _Top(BaseModel):
    # Rounding can carry one a little above 0.
    logprob: Annotated[float, Field(le=0.01, allow_inf_nan=False)]


class _Token(BaseModel):
    top_logprobs: list[_Top]


class _Probabilities(BaseModel):
    content: list[_Token]


class _Choice(BaseModel):
    message: _Message
    finish_reason: str
    logprobs: _IfTold[_Probabilities] = None


class _Details(BaseModel):
    cached_tokens: _IfTold[Count] = None


class _Usage(BaseModel):
    prompt_tokens: _IfTold[Count] = None
    completion_tokens: _IfTold[Count] = None
    prompt_tokens_details: _IfTold[_Details] = None


class _Body(BaseModel):
    choices: list[_Choice]
    usage: _IfTold[_Usage] = None


@dataclass(frozen=True)
class Reply:
    """`cached_tokens` is the part of the prompt that the server did not compute anew, if told."""

    completion: Completion
    cached_tokens: int | None


def read_reply(body: str, *, thinking: bool, entropy_tokens: int = 0) -> Reply:
    """The reply to a request for one choice. Raises ServerError for anything less than that.

    Reasoning stands in `reasoning` or `reasoning_content` (the name changed between servers), or,
    where the server does not part it, between tags in the text. Null content at the token limit is
    an empty text: the model spent its tokens on thinking. Where the model stopped by itself, null
    content is a fault, with reasoning beside it or without, and so is empty content beside
    reasoning. Lower bounds of the entropies of the first `entropy_tokens` come from the tokens'
    top log-probabilities; a reply without them is a fault of the server's. The fault of a whole
    body holds the tokens that it was paid with.
    """
    try:
        parsed = _Body.model_validate_json(body)
    except ValidationError as error:
        raise ServerError(f"malformed reply: {_first_problem(error)}", passing=True) from None
    usage = parsed.usage or _Usage()
    if len(parsed.choices) != 1:
        _refuse(usage, f"{len(parsed.choices)} choices instead of 1")
    choice = parsed.choices[0]
    message = choice.message
    finish = _FINISHED.get(choice.finish_reason)
    if finish is None:
        # Letters only: of a server's own words, no more is shown than a reason has.
        told = "".join(sign for sign in choice.finish_reason[:40] if sign.isalpha() or sign == "_")
        _refuse(usage, f"finish_reason {told!r}", passing=choice.finish_reason not in _FINAL)
    if message.refusal:
        _refuse(usage, "the model refused to answer", passing=False)
    text, reasoning = message.content, message.reasoning or message.reasoning_content
    if finish == "stop":
        if reasoning and not (text or "").strip():
            _refuse(usage, "reasoning without content")
        if text is None:
            _refuse(usage, "neither content nor reasoning")
    if thinking and text and not reasoning:
        reasoning, text = part_thinking(text)
    bounds: tuple[float, ...] = ()
    if entropy_tokens:
        tokens = choice.logprobs.content[:entropy_tokens] if choice.logprobs else []
        if not tokens or not all(token.top_logprobs for token in tokens):
            _refuse(usage, "the reply has no top_logprobs", passing=False)
        bounds = tuple(
            entropy_at_least([top.logprob for top in token.top_logprobs]) for token in tokens
        )
    completion = Completion(
        text or "",
        finish,
        prompt_tokens=usage.prompt_tokens or 0,
        completion_tokens=usage.completion_tokens or 0,
        reasoning=reasoning or None,
        entropies=bounds,
        entropies_are_bounds=bool(bounds),
    )
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details else None
    if cached is not None and cached > completion.prompt_tokens:
        cached = None
    return Reply(completion, cached)


def _refuse(usage: _Usage, reason: str, *, passing: bool = True) -> NoReturn:
    fault = ServerError(reason, passing=passing)
    fault.prompt_tokens = usage.prompt_tokens or 0
    fault.completion_tokens = usage.completion_tokens or 0
    raise fault


def _first_problem(error: ValidationError) -> str:
    """Where and what, without the server's own text."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return "not JSON" if first["type"] == "json_invalid" else first_mistake(error)
