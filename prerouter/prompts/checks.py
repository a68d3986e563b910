"""One-word questions to a model on the way to a route: do the passages suffice, is it a point."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.core.records import Message, RoutingCase
from prerouter.prompts.answer import question_values
from prerouter.prompts.render import PromptForm, fill_template

VERDICTS = ("answerable", "unanswerable")
"""What `render_verdict` asks for, in the order in which they are scored."""

QUERY_TYPES = ("point", "synthesis")
"""Point extraction and global synthesis (Olufadewa et al., 2026, arXiv 2609.35831)."""

CHECK_FORMS: tuple[PromptForm, ...] = ("verdict", "query_type")


def render_verdict(
    case: RoutingCase, passages: Sequence[str], options: Sequence[str] = ()
) -> tuple[Message, ...]:
    """Can the case's question be answered from these passages? (Self-Route as a verdict of its
    own; Li et al., 2024, arXiv 2407.16833). `options` of a multiple-choice question are part of
    what it asks."""
    values = {"passages": passages, "options": options, **question_values(case, ())}
    return fill_template("verdict", values)


def render_query_type(case: RoutingCase) -> tuple[Message, ...]:
    """Is it a point or much of the document that the question asks for?"""
    return fill_template("query_type", question_values(case, ()))
