"""One word out of two from a model, for each of some prompts."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from prerouter.core.protocols import Engine, GenerationRequest, Sampling
from prerouter.core.records import DecisionFailure
from prerouter.measures.calibration import from_odds
from prerouter.prompts.trace import TraceError, TraceReason, bare_reply
from prerouter.recipe.checks import AskBy

_MAX_REPLY_TOKENS = 16


@dataclass(frozen=True)
class Word:
    """The index of the word a model chose, and how likely the second one was against the first
    where that is known; or why there is none. What it took stands beside it."""

    chosen: int | None
    p_second: float | None = None
    failure: DecisionFailure | None = None
    raw: str | None = None
    prompt_tokens: int = 0
    completion_tokens: int = 0
    seconds: float = 0.0


def ask_word(
    engine: Engine, requests: Sequence[GenerationRequest], words: tuple[str, str], by: AskBy
) -> list[Word]:
    """One of two words for each request, in their order. Ties go to the first."""
    if not requests:
        return []
    return (
        _scored(engine, requests, words)
        if by is AskBy.PROBABILITY
        else _written(engine, requests, words)
    )


def _scored(
    engine: Engine, requests: Sequence[GenerationRequest], words: tuple[str, str]
) -> list[Word]:
    found = []
    for scores in engine.score_choices(requests, list(words)):
        if scores.error is not None:
            found.append(Word(None, failure=DecisionFailure.CALL_FAILED, raw=scores.error))
            continue
        first, second = scores.log_probabilities
        if first == second == -math.inf:
            failure = DecisionFailure.UNPARSABLE
            found.append(Word(None, failure=failure, raw="neither word is possible"))
            continue
        p_second = from_odds(second - first)
        found.append(
            Word(
                int(p_second > 0.5),
                p_second,
                prompt_tokens=scores.prompt_tokens,
                seconds=scores.seconds,
            )
        )
    return found


def _written(
    engine: Engine, requests: Sequence[GenerationRequest], words: tuple[str, str]
) -> list[Word]:
    schema = {
        "type": "object",
        "properties": {"word": {"type": "string", "enum": list(words)}},
        "required": ["word"],
        "additionalProperties": False,
    }
    sampling = Sampling(max_tokens=_MAX_REPLY_TOKENS, schema=schema)
    found: dict[int, Word] = {}
    for index, completion in engine.generate(requests, sampling):
        chosen, failure = None, None
        try:
            _, text = bare_reply(completion.text, completion.finish_reason)
            chosen = _read(text, words)
            failure = None if chosen is not None else DecisionFailure.UNPARSABLE
        except TraceError as error:
            failure = _FAILURES.get(error.reason, DecisionFailure.UNPARSABLE)
        found[index] = Word(
            chosen,
            failure=failure,
            raw=None if chosen is not None else completion.error or completion.text,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            seconds=completion.seconds,
        )
    return [found[index] for index in range(len(requests))]


_FAILURES = {
    TraceReason.CALL_FAILED: DecisionFailure.CALL_FAILED,
    TraceReason.CUT_OFF: DecisionFailure.CUT_OFF,
    TraceReason.ENDLESS_WHITE_SPACE: DecisionFailure.CUT_OFF,
}


def _read(text: str, words: tuple[str, str]) -> int | None:
    """The word that the reply is: as the schema has it, or bare. A sentence that holds one is none:
    "not answerable" is not "answerable"."""
    try:
        found = json.loads(text)
        text = str(found.get("word")) if isinstance(found, dict) else text
    except (ValueError, RecursionError):
        pass
    bare = re.sub(r"^\W+|\W+$", "", text).casefold()
    return words.index(bare) if bare in words else None
