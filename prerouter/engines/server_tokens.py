"""Replies of vLLM's own endpoints, which give a model's tokens and their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ValidationError

from prerouter.core.errors import RecipeError


class _Tokens(BaseModel):
    count: int
    tokens: list[int]


class _Probability(BaseModel):
    logprob: float


class _Choice(BaseModel):
    prompt_logprobs: list[dict[int, _Probability] | None]


class _Completions(BaseModel):
    choices: list[_Choice]


def count_of(body: str, place: str) -> int:
    """Number of tokens in a reply of /tokenize."""
    return _tokens(body, place).count


def token_ids(body: str, place: str) -> list[int]:
    """Token ids in a reply of /tokenize."""
    return _tokens(body, place).tokens


def choice_log_probability(body: str, ending: Sequence[int], place: str) -> float:
    """Natural log-probability of the prompt's last tokens `ending`, from a reply of /completions
    that holds prompt_logprobs."""
    try:
        (choice,) = _Completions.model_validate_json(body).choices
        given = choice.prompt_logprobs[-len(ending) :]
        return sum(
            (place_of or {})[token].logprob for place_of, token in zip(given, ending, strict=True)
        )
    except (ValidationError, ValueError, KeyError):
        raise _unknown(place, "prompt_logprobs") from None


def _tokens(body: str, place: str) -> _Tokens:
    try:
        return _Tokens.model_validate_json(body)
    except ValidationError:
        raise _unknown(place, "/tokenize") from None


def _unknown(place: str, what: str) -> RecipeError:
    return RecipeError(
        place,
        f"gives no {what} as vLLM does",
        "a vLLM server",
        "count and score with kind: transformers or vllm",
    )
