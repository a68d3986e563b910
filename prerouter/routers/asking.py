"""One word out of two from a model, for each of some prompts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from prerouter.core.protocols import Engine, GenerationRequest, Sampling
from prerouter.core.records import DecisionFailure
from prerouter.measures.calibration import from_odds
from prerouter.prompts.trace import TraceError, bare_reply
from prerouter.recipe.checks import AskBy
from prerouter.routers.failures import call_failure, no_odds, reply_failure, second_odds

_MAX_REPLY_TOKENS = 16


@dataclass(frozen=True)
class Word:
    """The index of the word a model chose, and how likely the second one was against the first
    where that is known; or why there is none. What it took stands beside it."""

    chosen: int | None
    p_second: float | None = None
    failure: DecisionFailure | None = None
    raw: str | None = None
    calls: int = 1
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
    # Each word whole: a model that was not trained to write one of them may begin something else.
    for scores in engine.score_choices(requests, list(words)):
        chosen, p_second, failure, raw = None, None, None, scores.error
        if scores.error is not None:
            failure = call_failure(scores.error)
        elif (odds := second_odds(scores.log_probabilities)) is None:
            failure, raw = DecisionFailure.UNPARSABLE, no_odds(scores.log_probabilities)
        else:
            p_second = from_odds(odds)
            chosen = int(p_second > 0.5)
        found.append(
            Word(
                chosen,
                p_second,
                failure,
                raw,
                scores.calls,
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
            failure = reply_failure(error.reason, completion.error)
        found[index] = Word(
            chosen,
            failure=failure,
            raw=None if chosen is not None else completion.error or completion.text,
            prompt_tokens=completion.prompt_tokens,
            completion_tokens=completion.completion_tokens,
            seconds=completion.seconds,
        )
    return [found[index] for index in range(len(requests))]


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
