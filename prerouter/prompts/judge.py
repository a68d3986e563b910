"""What a judge is shown and how its replies are read: the 0-4 rubrics and the faithfulness steps.

No router ever sees these prompts: they hold gold answers. A reply is taken whole or not at all: a
grade is a JSON number of a JSON object, so no word of a sentence can be taken for one.
"""

from __future__ import annotations

import string
from collections.abc import Sequence
from typing import Any

from prerouter.core.protocols import FinishReason
from prerouter.core.records import Count, Identifier, Message, Record, Reference, Route
from prerouter.prompts.encoding import encode_json
from prerouter.prompts.render import PromptForm, fill_template
from prerouter.prompts.trace import (
    TraceError,
    TraceReason,
    bare_reply,
    checked_text,
    load_object,
    object_schema,
)
from prerouter.recipe.judge import HIGHEST_GRADE

MAX_REASON_CHARACTERS = 800
MAX_CLAIMS = 40
MAX_CLAIM_CHARACTERS = 400


class Judgement(Record):
    """One readable judgement. `routes` are those whose answer it is: two routes that say the same
    of one question are judged once, and so score the same."""

    case_id: Identifier
    routes: tuple[Route, ...]
    repeat: Count
    grade: Count
    reason: str
    judge: Identifier
    prompt_tokens: Count
    completion_tokens: Count
    prompt_hash: str


def rubric_of(reference: Reference) -> PromptForm:
    """The rubric that a question is judged by (Pre-Route, section 1: Judge)."""
    return "judge_answer" if reference.answerable else "judge_abstention"


def render_judge(question: str, reference: Reference, answer: str) -> tuple[Message, ...]:
    """The prompt that asks for a grade. The answer stands last, so that what is the same for all
    answers to a question begins the prompt. The choices of a multiple-choice question are shown by
    their letters. Nothing tells the route.
    """
    shown: dict[str, Any] = {"question": question}
    if reference.answerable:
        if reference.choices:
            letters = string.ascii_uppercase
            shown["choices"] = dict(zip(letters, reference.choices, strict=False))
        shown["reference_answer"] = reference.answer
    shown["answer"] = answer
    return fill_template(rubric_of(reference), {"judged": encode_json(shown)})


def grade_schema() -> dict[str, Any]:
    """JSON schema of a judgement; the reason comes before the grade that it is to bear out."""
    return object_schema(
        {
            "reason": {"type": "string", "minLength": 1, "maxLength": MAX_REASON_CHARACTERS},
            "grade": {"type": "integer", "enum": list(range(HIGHEST_GRADE + 1))},
        }
    )


def parse_grade(text: str, finish_reason: FinishReason) -> tuple[int, str]:
    """Grade and reason of a whole reply. Raises TraceError with the reason to refuse it."""
    value = _read(text, finish_reason, ["reason", "grade"])
    grade = value["grade"]
    if type(grade) is not int or not 0 <= grade <= HIGHEST_GRADE:
        raise TraceError(TraceReason.WRONG_SHAPE, f"grade is {grade!r:.40}")
    reason = checked_text("reason", value["reason"], MAX_REASON_CHARACTERS).strip()
    if not reason:
        raise TraceError(TraceReason.WRONG_SHAPE, "reason is blank")
    return grade, reason


def render_claims(question: str, answer: str) -> tuple[Message, ...]:
    """The prompt that asks for the claims of an answer."""
    shown = {"question": question, "answer": answer}
    return fill_template("judge_claims", {"judged": encode_json(shown), "limit": MAX_CLAIMS})


def claims_schema() -> dict[str, Any]:
    claim = {"type": "string", "minLength": 1, "maxLength": MAX_CLAIM_CHARACTERS}
    return object_schema({"claims": {"type": "array", "items": claim, "maxItems": MAX_CLAIMS}})


def parse_claims(text: str, finish_reason: FinishReason) -> tuple[str, ...]:
    """The claims, none where the answer makes none. Raises TraceError."""
    claims = _read(text, finish_reason, ["claims"])["claims"]
    if not isinstance(claims, list) or len(claims) > MAX_CLAIMS:
        raise TraceError(TraceReason.WRONG_SHAPE, f"claims is no list of {MAX_CLAIMS} at most")
    found = tuple(checked_text("a claim", claim, MAX_CLAIM_CHARACTERS).strip() for claim in claims)
    if not all(found):
        raise TraceError(TraceReason.WRONG_SHAPE, "a claim is blank")
    return found


def render_support(passages: Sequence[str], claims: Sequence[str]) -> tuple[Message, ...]:
    """The prompt that asks which claims the passages support."""
    shown = {"passages": _numbered(passages), "claims": _numbered(claims)}
    return fill_template("judge_support", {"judged": encode_json(shown)})


def support_schema() -> dict[str, Any]:
    verdict = object_schema({"claim": {"type": "integer"}, "supported": {"type": "boolean"}})
    return object_schema({"verdicts": {"type": "array", "items": verdict, "maxItems": MAX_CLAIMS}})


def parse_support(text: str, finish_reason: FinishReason, claims: int) -> tuple[bool, ...]:
    """A verdict for each of so many claims, in their order. Raises TraceError."""
    verdicts = _read(text, finish_reason, ["verdicts"])["verdicts"]
    if not isinstance(verdicts, list) or len(verdicts) != claims:
        raise TraceError(TraceReason.WRONG_SHAPE, f"verdicts is no list of {claims}")
    found = []
    for number, verdict in enumerate(verdicts, 1):
        if not isinstance(verdict, dict) or list(verdict) != ["claim", "supported"]:
            raise TraceError(TraceReason.WRONG_SHAPE, f"verdict {number} has other keys")
        if type(verdict["claim"]) is not int or verdict["claim"] != number:
            raise TraceError(TraceReason.WRONG_SHAPE, f"verdict {number} is of another claim")
        if not isinstance(verdict["supported"], bool):
            raise TraceError(TraceReason.WRONG_SHAPE, f"verdict {number} is not true or false")
        found.append(verdict["supported"])
    return tuple(found)


def _read(text: str, finish_reason: FinishReason, keys: list[str]) -> dict[str, Any]:
    _, rest = bare_reply(text, finish_reason)
    value = load_object(rest)
    if list(value) != keys:
        raise TraceError(TraceReason.WRONG_SHAPE, f"keys {', '.join(value)[:80]!r}")
    return value


def _numbered(texts: Sequence[str]) -> dict[str, str]:
    return {str(number): text for number, text in enumerate(texts, 1)}
