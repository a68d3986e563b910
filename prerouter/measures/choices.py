"""Multiple choice: which letter an answer gives, as in LongBench-v2 (Bai et al., 2024)."""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Sequence
from functools import cache

from prerouter.measures.abstention import abstention
from prerouter.measures.words import fold


def choice(prediction: str, gold: str, choices: Sequence[str] = ()) -> float | None:
    """1.0 where the answer gives the gold choice, 0.0 where it gives another one or declines.

    `gold` is a letter or the text of one of the choices; letters run from A over the choices, A to
    D where their texts aren't known. An answer that says that the document does not tell, and
    names no letter, has chosen none: that is wrong, and dropping it would flatter the route that
    declines. None where a choice can't be read, where there are several, or where one is only
    ruled out: that is not scorable, because a spelling that we can't read is no evidence of a wrong
    answer. (LongBench-v2's own script counts all of these as wrong.) None also where gold names no
    choice.
    """
    letters = string.ascii_uppercase[: len(choices) or 4]
    wanted = _given(gold, letters, choices)
    if wanted is None:
        return None
    given = _given(prediction, letters, choices)
    if given is not None:
        return float(wanted == given)
    # "A" may be an article; the other letters stand alone as letters only.
    lettered = re.search(rf"\b[{letters[1:]}]\b|[(\[]A[)\]]", prediction)
    return 0.0 if lettered is None and abstention(prediction) else None


# Marks around a letter. Bounded: an answer may be nothing but marks, 31,000 of them.
_OPENING = r"[\s(\[{<*_$\"'`\u2018\u201c]{0,12}"
_CLOSING = r"[\s)\]}>*_$\"'`\u2019\u201d.:,;!\u3002]{0,12}"
# Han may follow a letter without a space; an apostrophe ends a quotation or begins "A's".
_ALONE = r"(?!(?![\u3000-\u9fff])\w|['\u2019]\w)"
_RIGHT = r"is\s+(?:the\s+)?(?:correct|right|best)\b"
_UNFIT = r"\s+(?:is|was|seems)(?:\s+not\b|n['\u2019]t\b|\s+(?:wrong|incorrect|false)\b)"


@cache
def _spellings(letters: str) -> tuple[re.Pattern[str], ...]:
    """Ways to give a letter, most explicit first; a small letter only where it can't be "a"."""
    any_case, capital = f"([{letters}{letters.lower()}])", f"([{letters}])"
    small = letters[1:].lower()
    another = rf"[(\[*_]{{0,4}}[{letters}{small}]{_ALONE}"
    # "A or B", "A/B" and "A, B." give several letters; "B, A being wrong" gives one.
    one = (
        rf"{_ALONE}(?![)\]*_\"']{{0,4}}\s*(?:(?:[/&\u6216\u548c\u3001]|\b(?:or|and)\b)\s*{another}"
        rf"|,\s*{another}[)\]*_]{{0,4}}\s*(?:[,.]|$|or\b|and\b)))"
    )
    # Behind "the answer is" a small letter is a letter; "a" only where nothing follows it.
    stated = rf"([{letters}{small}]|a(?=[)\]*_\"'.!]{{0,4}}\s*$)){one}"
    subject = r"\b(?:answer|choice|option)(?:\s+to\s+(?:the|this)\s+question)?[*_\"']{0,4}"
    verb = r"(?:\s+(?:is|was|would\s+be|should\s+be|must\s+be)\s*:?|\s*[:=>])"
    thought = r"\b(?:it\s+is|it['\u2019]s|it\s+must\s+be|I\s+think|I\s+would\s+say)"
    return (
        re.compile(rf"^{_OPENING}(?:(?i:answer|option|choice)\s{_OPENING})?{any_case}{_CLOSING}$"),
        re.compile(rf"\\boxed{{(?:\\text{{)?\s*{any_case}\s*}}"),
        re.compile(
            rf"(?i:{subject}{verb}(?:\s+(?:option|choice))?){_OPENING}{stated}"
            # Chinese: the answer is, choose.
            rf"|(?:\u7b54\u6848|\u9009\u62e9?)[\u662f\u4e3a]?\s?:?{_OPENING}{stated}"
        ),
        re.compile(
            rf"(?i:\b(?:choose|select|pick|go\s+with)(?:\s+(?:option|choice|answer))?){_OPENING}"
            rf"{capital}{one}|(?i:\b(?:answer|choice|option)){_OPENING}{capital}{_CLOSING}"
            rf"(?i:{_RIGHT})|(?i:{thought}(?:\s+(?:option|choice))?)\s{_OPENING}{capital}{one}"
            rf"|(?<!or )(?<!and )(?<!if )(?<!whether )\b{capital}[)\]*_\"']{{0,4}}\s(?i:{_RIGHT})"
        ),
        re.compile(
            rf"(?m)^[(\[*_]{{0,4}}{capital}[)\].:*]+(?=\s|$)(?!\s(?:and|or|&)\b|(?i:{_UNFIT}))"
        ),
    )


def _given(text: str, letters: str, choices: Sequence[str]) -> str | None:
    """The one letter that `text` gives: by its spelling, or as the words of one choice."""
    folded = fold(text)
    options = {letter: fold(words) for letter, words in zip(letters, choices, strict=False)}
    same = [letter for letter, option in options.items() if option == folded]
    if len(same) == 1:
        return same[0]
    plain = unicodedata.normalize("NFKC", text).strip()
    for spelling in _spellings(letters):
        found = {match[match.lastindex or 0].upper() for match in spelling.finditer(plain)}
        if found:
            return _only(found)
    quoted = {
        letter
        for letter, option in options.items()
        if f" {option} " in f" {folded} " and f" not {option} " not in f" {folded} "
    }
    return _only(quoted) if quoted else _in_brackets(plain, letters)


def _in_brackets(text: str, letters: str) -> str | None:
    """The letter that alone stands in brackets, unless the text rules one out."""
    bracketed = rf"[(\[]([{letters}])[)\]]"
    ruled_out = (
        rf"(?i:\b(?:not|nor|neither)\b|n['\u2019]t)\s(?:option\s)?{bracketed}|{bracketed}{_UNFIT}"
    )
    return None if re.search(ruled_out, text) else _only(set(re.findall(bracketed, text)))


def _only(letters: set[str]) -> str | None:
    return next(iter(letters)) if len(letters) == 1 else None
