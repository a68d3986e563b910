"""The *generated* metadata setting: what a small model is asked for, and its reply as a profile.

It sees the question and the document's head, as any caller has them, and none of the titles and
types that a data set brings along (Chen et al., 2026, arXiv 2605.10235: metadata m, generated).
"""

from __future__ import annotations

from typing import Any

from prerouter.core.protocols import FinishReason
from prerouter.core.records import Count, Identifier, Record, RoutingCase
from prerouter.prompts.trace import (
    TraceError,
    TraceReason,
    bare_reply,
    checked_text,
    load_object,
    object_schema,
)
from prerouter.recipe.profile import ProfileSection

MAX_TITLE_CHARACTERS = 200
MAX_TYPE_CHARACTERS = 60


class InferredProfile(Record):
    """What a model inferred about one question and its document. None is what it could not tell."""

    question_id: Identifier
    title: str | None = None
    document_type: str | None = None
    task_type: str | None = None
    model: Identifier
    prompt_tokens: Count
    completion_tokens: Count
    prompt_hash: str


def profile_schema(section: ProfileSection) -> dict[str, Any]:
    """JSON schema of the reply. A section's own types are an enum, other texts are bounded."""
    return object_schema(
        {
            "title": _text(MAX_TITLE_CHARACTERS),
            "document_type": _type(section.document_types),
            "task_type": _type(section.task_types),
        }
    )


def parse_profile(
    text: str, finish_reason: FinishReason, section: ProfileSection
) -> dict[str, str | None]:
    """`title`, `document_type` and `task_type` of a whole reply; None for null and for blank text.

    Types of the model's own are lower-cased, so that one type has one name. Raises TraceError with
    the reason for anything else than an object of the schema.
    """
    _, rest = bare_reply(text, finish_reason)
    value = load_object(rest)
    if list(value) != list(profile_schema(section)["properties"]):
        raise TraceError(TraceReason.WRONG_SHAPE, f"keys {', '.join(value)[:80]!r}")
    return {
        "title": _read("title", value["title"], MAX_TITLE_CHARACTERS),
        "document_type": _read_type(
            "document_type", value["document_type"], section.document_types
        ),
        "task_type": _read_type("task_type", value["task_type"], section.task_types),
    }


def with_profile(case: RoutingCase, profile: InferredProfile | None) -> RoutingCase:
    """`case` with the inferred title and types in place of its own; without any where there is no
    profile. What the source knew of them is gone in both."""
    title, document_type, task_type = None, None, None
    if profile is not None:
        title, document_type, task_type = profile.title, profile.document_type, profile.task_type
    document = case.document.model_copy(update={"title": title, "type": document_type})
    return case.model_copy(update={"document": document, "task_type": task_type})


def _text(limit: int) -> dict[str, Any]:
    return {"type": ["string", "null"], "maxLength": limit}


def _type(names: tuple[str, ...]) -> dict[str, Any]:
    if not names:
        return _text(MAX_TYPE_CHARACTERS)
    return {"type": ["string", "null"], "enum": [*names, None]}


def _read_type(key: str, text: object, names: tuple[str, ...]) -> str | None:
    found = _read(key, text, MAX_TYPE_CHARACTERS)
    if found is None or found in names:
        return found
    if names:
        raise TraceError(TraceReason.WRONG_SHAPE, f"{key} is {found!r}")
    return found.lower()


def _read(key: str, text: object, limit: int) -> str | None:
    return None if text is None else " ".join(checked_text(key, text, limit).split()) or None
