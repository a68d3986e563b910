"""Multiple choice: which letter an answer gives, as in LongBench-v2 (Bai et al., 2024)."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from functools import cache

from prerouter.measures.words import fold


def choice(prediction: str, gold: str, choices: Sequence[str] = ()) -> float | None:
    """1.0 where the answer gives the gold choice, 0.0 where it gives another one.

    `gold` is a letter or the text of one of the choices; letters run from A over the choices, A to
    D where their texts aren't known. None where the answer gives no choice, or several: that is
    not scorable, because a spelling that we can't read is no evidence of a wrong answer.
    (LongBench-v2's own script counts it as wrong.) None also where gold names no choice.
    """
    letters = string.ascii_uppercase[: len(choices) or 4]
    wanted = _given(gold, letters, choices)
    given = _given(prediction, letters, choices)
    return None if wanted is None or given is None else float(wanted == given)


@cache
def _spellings(letters: str) -> tuple[re.Pattern[str], ...]:
    """Ways to give a letter, most explicit first; a small letter only where it can't be "a"."""
    capital, any_case = f"([{letters}])", f"([{letters}{letters.lower()}])"
    opening = r"[\s(\[{*_\"'`\u2018\u201c]*"
    closing = r"[\s)\]}*_\"'`\u2019\u201d.:,;!]*"
    subject = r"\b(?:answer|choice|option)(?:\s+to\s+(?:the|this)\s+question)?[*_]*"
    alone = r"(?![\w'\u2019])"
    verb = r"(?:\s+(?:is|was|would\s+be|should\s+be|must\s+be)\s*:?|\s*[:=])"
    return (
        re.compile(rf"^{opening}{any_case}{closing}$"),
        re.compile(rf"\\boxed{{(?:\\text{{)?\s*{any_case}\s*}}"),
        re.compile(rf"(?i:{subject}{verb}(?:\s+(?:option|choice))?){opening}{capital}{alone}"),
        re.compile(
            rf"(?i:\b(?:choose|select|pick|go\s+with)(?:\s+(?:option|choice|answer))?){opening}"
            rf"{capital}{alone}|(?i:\b(?:answer|choice|option)){opening}{capital}{closing}"
            r"(?i:is\s+(?:the\s+)?(?:correct|right|best)\b)"
        ),
        re.compile(rf"(?m)^[(\[*_]{{0,4}}{capital}[)\].:*]+(?:\s|$)(?!(?:and|or|&)\b)"),
    )


def _given(text: str, letters: str, choices: Sequence[str]) -> str | None:
    """The one letter that `text` gives: by its spelling, or as the words of one choice."""
    folded = fold(text)
    options = {letter: fold(words) for letter, words in zip(letters, choices, strict=False)}
    same = [letter for letter, option in options.items() if option == folded]
    if len(same) == 1:
        return same[0]
    for spelling in _spellings(letters):
        found = {match[match.lastindex or 0].upper() for match in spelling.finditer(text.strip())}
        if found:
            return _only(found)
    quoted = {letter for letter, option in options.items() if f" {option} " in f" {folded} "}
    return _only(quoted or set(re.findall(rf"[(\[]([{letters}])[)\]]", text)))


def _only(letters: set[str]) -> str | None:
    return next(iter(letters)) if len(letters) == 1 else None
