"""The form of a reply: its JSON schema, its parser with every reason to refuse, its writer.

Only the model's own output is parsed, and a reply is taken whole or not at all: no decision is
looked for inside prose, inside thinking text or inside half a reply.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prerouter.core.protocols import FinishReason
from prerouter.core.records import ROUTES, Rationale, Route, Step
from prerouter.prompts.encoding import encode_json
from prerouter.recipe.teach import Paradigm, PromptPart

MAX_STEP_CHARACTERS = 800
"""Bounds a step and the reflection, so that seven of them stay under 2,048 tokens."""

MAX_REPLY_CHARACTERS = 50_000
"""Bounds what is parsed of a reply once its thinking text is off."""

_OPEN, CLOSE_THINKING = "<think>", "</think>"
_FENCED = re.compile(r"```(?:json)?[ \t]*\n(.*)\n[ \t]*```", re.DOTALL)
_LAST_LINE = re.compile(rf"[*_#> \t]*(?i:decision)[*_ \t]*:[*_ \t]*({'|'.join(ROUTES)})[*_. \t]*")


class TraceReason(StrEnum):
    """Why a reply is refused."""

    CALL_FAILED = "call_failed"
    CUT_OFF = "cut_off"
    ENDLESS_WHITE_SPACE = "endless_white_space"
    UNCLOSED_THINKING = "unclosed_thinking"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    NO_JSON = "no_json"
    INVALID_JSON = "invalid_json"
    WRONG_SHAPE = "wrong_shape"
    MISSING_STEP = "missing_step"
    BAD_DECISION = "bad_decision"


class TraceError(Exception):
    """A reply that is no trace."""

    def __init__(self, reason: TraceReason, detail: str = "") -> None:
        self.reason = reason
        self.detail = detail
        super().__init__(f"{reason.value}: {detail}" if detail else reason.value)


@dataclass(frozen=True)
class ParsedTrace:
    """A whole reply. `reasoning` is the thinking text that stood before it."""

    rationale: Rationale
    decision: Route
    reasoning: str | None = None


def trace_steps(without: Sequence[PromptPart] = ()) -> list[Step]:
    """The steps that stay, in order; `step_1` is the first of `Step`."""
    return [step for number, step in enumerate(Step, 1) if f"step_{number}" not in without]


def trace_keys(without: Sequence[PromptPart] = ()) -> list[str]:
    """The keys of a guided trace in the order they are written, decision last."""
    reflection = [] if "reflection" in without else ["reflection"]
    return [*(step.value for step in trace_steps(without)), *reflection, "decision"]


def trace_schema(without: Sequence[PromptPart] = ()) -> dict[str, Any]:
    """JSON schema of a guided trace. Bounded strings keep a constrained model from running on."""
    text = {"type": "string", "minLength": 1, "maxLength": MAX_STEP_CHARACTERS}
    keys = trace_keys(without)
    return object_schema({key: _DECISION if key == "decision" else text for key in keys})


def decision_schema() -> dict[str, Any]:
    """JSON schema of a direct answer: the decision alone."""
    return object_schema({"decision": _DECISION})


_DECISION: dict[str, Any] = {"type": "string", "enum": [route.value for route in ROUTES]}


def object_schema(properties: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of an object that has all of `properties` and nothing else."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def split_thinking(text: str) -> tuple[str | None, str]:
    """Thinking text and the rest, divided at the last closing tag.

    Some chat templates write the opening tag into the prompt, so a reply may hold the closing tag
    only. A tag inside a string of what is one JSON object as a whole divides nothing. Raises
    TraceError where a tag is opened and not closed.
    """
    if _OPEN in text or CLOSE_THINKING in text:
        with contextlib.suppress(TraceError):
            if len(text) <= MAX_REPLY_CHARACTERS and load_object(text.strip()):
                return None, text
    head, closed, rest = text.rpartition(CLOSE_THINKING)
    if _OPEN in rest:
        raise TraceError(TraceReason.UNCLOSED_THINKING, "thinking text has no closing tag")
    if not closed:
        return None, rest
    return head.strip().removeprefix(_OPEN).strip() or None, rest.lstrip()


def parse_trace(
    text: str,
    finish_reason: FinishReason,
    *,
    paradigm: Paradigm = "guided",
    without: Sequence[PromptPart] = (),
) -> ParsedTrace:
    """A reply as a trace. Raises TraceError with the reason.

    A guided or direct reply is one JSON object, in a code fence or not, of exactly the schema's
    keys in their order; an unconstrained one is free text whose last line is `Decision: RAG` or
    `Decision: LC`. A reply that ran to the token limit is refused even where it reads as whole.
    """
    reasoning, rest = bare_reply(text, finish_reason)
    if paradigm == "unconstrained":
        rationale, decision = _read_free_text(rest)
    else:
        keys = trace_keys(without) if paradigm == "guided" else ["decision"]
        rationale, decision = _read_object(load_object(rest), keys)
    return ParsedTrace(rationale, decision, reasoning)


def bare_reply(text: str, finish_reason: FinishReason) -> tuple[str | None, str]:
    """Thinking text and the reply without it. Raises TraceError for a reply that isn't whole."""
    if finish_reason == "error":
        raise TraceError(TraceReason.CALL_FAILED)
    if finish_reason == "length":
        blank = len(text) - len(text.rstrip())
        reason = TraceReason.ENDLESS_WHITE_SPACE if blank > 20 else TraceReason.CUT_OFF
        raise TraceError(reason, "the reply reached the token limit")
    reasoning, rest = split_thinking(text)
    rest = rest.strip()
    if not rest:
        raise TraceError(TraceReason.EMPTY)
    if len(rest) > MAX_REPLY_CHARACTERS:
        raise TraceError(TraceReason.TOO_LONG, f"{len(rest)} characters")
    return reasoning, rest


def format_trace(rationale: Rationale, decision: Route, without: Sequence[PromptPart] = ()) -> str:
    """The canonical completion that a student learns: one line of JSON, decision last.

    `parse_trace` gives back exactly what was written. Raises TraceError where the rationale lacks
    a step, has one too many, or has one that is too long.
    """
    written: dict[str, str] = {step.value: text for step, text in rationale.steps.items()}
    if rationale.reflection is not None:
        written["reflection"] = rationale.reflection
    written["decision"] = decision.value
    keys = trace_keys(without)
    ordered = {key: written.pop(key) for key in keys if key in written}
    _check_shape({**ordered, **written}, keys)
    return encode_json(ordered)


def load_object(text: str) -> dict[str, Any]:
    """The JSON object that a bare reply is, in a code fence or not. Raises TraceError."""
    fenced = _FENCED.fullmatch(text)
    if fenced:
        text = fenced.group(1).strip()
    if not text.startswith("{"):
        raise TraceError(TraceReason.NO_JSON, f"begins with {text[:20]!r}")
    try:
        value: dict[str, Any] = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise TraceError(TraceReason.INVALID_JSON, str(error)[:200]) from None
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise TraceError(TraceReason.WRONG_SHAPE, "a key stands twice")
    return value


def _read_object(value: dict[str, Any], keys: Sequence[str]) -> tuple[Rationale, Route]:
    _check_shape(value, keys)
    rationale = Rationale(
        steps={step: value[step.value] for step in Step if step.value in keys},
        reflection=value["reflection"] if "reflection" in keys else None,
    )
    return rationale, Route(value["decision"])


def _check_shape(value: dict[str, Any], keys: Sequence[str]) -> None:
    for key in keys:
        if key not in value:
            reason = TraceReason.BAD_DECISION if key == "decision" else TraceReason.MISSING_STEP
            raise TraceError(reason, f"no {key}")
    unknown = [key for key in value if key not in keys]
    if unknown:
        raise TraceError(TraceReason.WRONG_SHAPE, f"unknown key {unknown[0][:40]!r}")
    if list(value) != list(keys):
        raise TraceError(TraceReason.WRONG_SHAPE, "keys out of order")
    for key in keys:
        _check_value(key, value[key])


def _check_value(key: str, text: Any) -> None:
    if key == "decision":
        if text not in _DECISION["enum"]:
            raise TraceError(TraceReason.BAD_DECISION, f"got {str(text)[:40]!r}")
        return
    if not checked_text(key, text, MAX_STEP_CHARACTERS).strip():
        raise TraceError(TraceReason.MISSING_STEP, f"{key} is blank")


def checked_text(key: str, text: Any, limit: int) -> str:
    """`text` where it is one of at most `limit` whole characters. Raises TraceError."""
    if not isinstance(text, str):
        raise TraceError(TraceReason.WRONG_SHAPE, f"{key} is not text")
    if len(text) > limit:
        raise TraceError(TraceReason.WRONG_SHAPE, f"{key} has {len(text)} characters")
    if not text.isprintable() and any("\ud800" <= character <= "\udfff" for character in text):
        raise TraceError(TraceReason.WRONG_SHAPE, f"{key} holds half a character")
    return text


def _read_free_text(text: str) -> tuple[Rationale, Route]:
    reasoning, _, last = text.rpartition("\n")
    match = _LAST_LINE.fullmatch(last)
    if match is None:
        raise TraceError(TraceReason.BAD_DECISION, f"last line {last[:40]!r}")
    if not reasoning.strip():
        raise TraceError(TraceReason.MISSING_STEP, "no reasoning before the decision")
    return Rationale(free_text=reasoning.strip()), Route(match.group(1))
