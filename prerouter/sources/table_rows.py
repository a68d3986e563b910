"""One row of a user's table: what it says, typed, before rows are held against each other."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from prerouter.core.records import AnswerModel, ArmScore, MissingReason, Route
from prerouter.recipe.cases import Scale, TableSource
from prerouter.sources.problems import RejectReason
from prerouter.sources.table_cells import Cells
from prerouter.sources.table_documents import DocumentFolder, FoundDocument
from prerouter.sources.text_files import head_of

SCORES = {Route.RAG: "rag_score", Route.LC: "lc_score"}
ANSWERS = {Route.RAG: "rag_answer", Route.LC: "lc_answer"}


@dataclass(frozen=True)
class Draft:
    """A row that is right in itself. `document` and `reference` hold what it says of them."""

    question_id: str
    derived_id: bool
    document_id: str
    question: str
    task_type: str | None
    document: dict[str, Any]
    found: FoundDocument | None
    reference: dict[str, Any]
    evidence: tuple[str, ...]
    models: tuple[AnswerModel, ...]
    scores: dict[Route, ArmScore]
    answers: dict[Route, str | MissingReason]


def draft_row(cells: Cells, section: TableSource, folder: DocumentFolder) -> Draft | None:
    """The row's content, or None with its mistakes in `cells.found`."""
    question = cells.text("question")
    if question is None or not question.strip():
        if not cells.found:
            cells.refuse("question", RejectReason.EMPTY_QUESTION, "is empty", "the question's text")
        question = ""
    found = folder.find(cells)
    given_id = cells.identifier("question_id")
    title, head = (cells.filled(key) or "" for key in ("title", "head"))
    document = {
        "title": head_of(title, len(title)),
        "type": cells.filled("document_type"),
        "tokens": cells.count("document_tokens"),
        "head": head_of(head, len(head)),
        "path": found.path if found else None,
    }
    document_id = cells.identifier("document_id") or _document_id(document, given_id, question)
    reference = {
        "answer": cells.filled("answer"),
        "answerable": cells.boolean("answerable"),
        "level": cells.filled("level"),
        "context_length": cells.filled("context_length"),
    }
    evidence = cells.texts("evidence")
    models = _models(cells, section)
    scores = read_scores(cells, section.scale)
    answers = {route: _answer(cells, key) for route, key in ANSWERS.items()}
    task_type = cells.filled("task_type")
    if len(models) > 1 and any(cells.value(key) is not None for key in _of_one_model()):
        cells.refuse(
            "question",
            RejectReason.SEVERAL_ANSWER_MODELS,
            f"has scores or answers, and {len(models)} answer models to give them to",
            "one answer model a row",
            "add a column answer_model",
        )
    if cells.found:
        return None
    return Draft(
        question_id=given_id or "question-" + digest(document_id, question),
        derived_id=given_id is None,
        document_id=document_id,
        question=question,
        task_type=task_type,
        document=document,
        found=found,
        reference=reference,
        evidence=evidence,
        models=models,
        scores=scores,
        answers=answers,
    )


def digest(*parts: str) -> str:
    """16 hex digits of SHA-256 over the parts, told apart."""
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


def read_scores(cells: Cells, scale: Scale) -> dict[Route, ArmScore]:
    scores = {}
    for route, key in SCORES.items():
        score = cells.score(key, scale)
        missing = MissingReason.NOT_GIVEN if score is None else None
        scores[route] = ArmScore(score=score, missing=missing)
    return scores


def _of_one_model() -> tuple[str, ...]:
    return (*SCORES.values(), *ANSWERS.values())


def _document_id(document: dict[str, Any], given_id: str | None, question: str) -> str:
    """What the document is known by: its path, else its title, else its head, else the question."""
    for name in ("path", "title", "head"):
        if document[name] is not None:
            return f"{name}-{digest(document[name])}"
    return f"document-of-{given_id or digest(question)}"


def _answer(cells: Cells, key: str) -> str | MissingReason:
    text = cells.text(key)
    if text is None:
        return MissingReason.NOT_GIVEN
    return text if text.strip() else MissingReason.EMPTY


def _models(cells: Cells, section: TableSource) -> tuple[AnswerModel, ...]:
    """The model that the row names, else all that the recipe names.

    What a row leaves open about its model is taken from the recipe's model of that name.
    """
    name = cells.identifier("answer_model")
    window = cells.count("context_window", least=1)
    thinking = cells.boolean("thinking")
    if name is not None:
        known = next((model for model in section.answer_models if model.name == name), None)
        if window is None and known is not None:
            window = known.context_window
        if thinking is None:
            thinking = known.thinking if known is not None else False
        return (AnswerModel(name=name, context_window=window, thinking=thinking),)
    if not section.answer_models and not cells.found:
        cells.refuse(
            "answer_model",
            RejectReason.NO_ANSWER_MODEL,
            "names no answer model, and neither does the recipe",
            "a model's name",
            "add a column answer_model, or `cases.answer_models: [{name: NAME}]`",
        )
    return section.answer_models
