"""What an answering model is asked on each route, with the text that it reads as data.

Both prompts show the text before the question. On the route LC, all questions over one document
then begin alike, and what an engine has read of it serves them all.
"""

from __future__ import annotations

import string
from collections.abc import Sequence

from prerouter.core.records import Message, RoutingCase
from prerouter.prompts.render import PromptForm, fill_template

DECLINE = "The document does not tell."
"""What a reader says that finds no answer in what it sees."""

ANSWER_FORMS: tuple[PromptForm, ...] = ("answer_rag", "answer_lc")


def render_rag(
    case: RoutingCase, passages: Sequence[str], choices: Sequence[str] = ()
) -> tuple[Message, ...]:
    """The case's question over passages, in the order given.

    With `choices` (26 at most), the reply is the letter of one.
    """
    values = question_values(case, choices)
    return fill_template("answer_rag", {"passages": passages, **values})


def render_lc(
    case: RoutingCase, pieces: Sequence[str], choices: Sequence[str] = ()
) -> tuple[Message, ...]:
    """The case's question over a document, in one piece or in two with the middle left out."""
    values = question_values(case, choices)
    return fill_template("answer_lc", {"pieces": pieces, **values})


def question_values(case: RoutingCase, choices: Sequence[str]) -> dict[str, object]:
    """What `question.jinja` shows, and what to reply where the document does not tell."""
    if len(choices) > len(string.ascii_uppercase):
        raise ValueError(f"{len(choices)} choices, and letters for 26 only")
    lettered = list(zip(string.ascii_uppercase, choices, strict=False))
    return {"question": case.question, "choices": lettered, "decline": DECLINE}
