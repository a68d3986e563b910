"""The sample that ships: made-up documents and questions (data/README.md has the schema)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import Field, ValidationError

from prerouter.core.errors import CombinedError, InputError, PrerouterError, first_mistake
from prerouter.core.records import (
    AnswerModel,
    Count,
    DocumentFile,
    DocumentProfile,
    Evidence,
    Identifier,
    RagConfig,
    Record,
    Reference,
    RoutingCase,
)
from prerouter.measures.length_bands import length_band
from prerouter.recipe.cases import SampleSource
from prerouter.sources.case_ids import case_id_of
from prerouter.sources.loaded import Loaded

REMAKE = "run scripts/make_sample.py, or point cases.path at the whole sample"


class _DocumentRow(Record):
    # The id is a file's name too: nothing that could leave the folder.
    document_id: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=100)]
    title: str
    type: str
    tokens: Count
    characters: Count
    sha256: str


class _QuestionRow(Record):
    question_id: Identifier
    document_id: Identifier
    question: Annotated[str, Field(min_length=1)]
    answer: str | None
    answerable: bool
    level: str
    form: str
    evidence: tuple[Evidence, ...]


_Row = TypeVar("_Row", _DocumentRow, _QuestionRow)


def load_sample(section: SampleSource, rag: RagConfig) -> Loaded:
    """Read the sample and cross its questions with the answer models.

    Cases come question by question in the file's order. Raises a CombinedError that names every
    file and line which isn't as `scripts/make_sample.py` wrote it: the sample is whole or refused.
    """
    errors: list[PrerouterError] = []
    document_rows = _rows(section.path / "documents.jsonl", _DocumentRow, errors)
    question_rows = _rows(section.path / "questions.jsonl", _QuestionRow, errors)
    if errors:
        raise CombinedError(errors)
    loaded = Loaded()
    profiles: dict[str, DocumentProfile] = {}
    for row in document_rows[: section.documents]:
        path = section.path / "documents" / f"{row.document_id}.txt"
        body = _body(path, row, errors)
        if body is None:
            continue
        loaded.bodies[row.document_id] = body
        loaded.documents.append(
            DocumentFile(
                document_id=row.document_id,
                path=path.relative_to(section.path).as_posix(),
                sha256=row.sha256,
                characters=row.characters,
            )
        )
        profiles[row.document_id] = DocumentProfile(
            document_id=row.document_id,
            title=row.title,
            type=row.type,
            tokens=row.tokens,
            head=body[: section.head_characters],
        )
    known = {row.document_id for row in document_rows}
    for question in question_rows:
        if question.document_id not in known:
            place = f"{section.path / 'questions.jsonl'}: {question.question_id}"
            errors.append(
                InputError(place, f"no document {question.document_id}", next_step=REMAKE)
            )
        elif question.document_id in profiles:
            profile = profiles[question.document_id]
            errors += _misplaced(section.path, question, loaded.bodies[question.document_id])
            loaded.references.append(_reference(question, profile))
            loaded.cases += [
                _case(question, profile, model, section, rag) for model in section.answer_models
            ]
    if errors:
        raise CombinedError(errors)
    loaded.counts = {
        "documents": len(loaded.documents),
        "questions": len(loaded.references),
        "cases": len(loaded.cases),
        "unanswerable": sum(not reference.answerable for reference in loaded.references),
    }
    return loaded


def _rows(path: Path, model: type[_Row], errors: list[PrerouterError]) -> list[_Row]:
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror or error) if isinstance(error, OSError) else "not UTF-8"
        errors.append(InputError(str(path), f"can't be read ({reason})", next_step=REMAKE))
        return []
    rows = []
    for number, line in enumerate(lines, start=1):
        if not line:
            continue
        try:
            rows.append(model.model_validate_json(line))
        except ValidationError as error:
            problem = first_mistake(error, "row")
            errors.append(InputError(f"{path}:{number}", problem, "", REMAKE))
    return rows


def _body(path: Path, row: _DocumentRow, errors: list[PrerouterError]) -> str | None:
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or error
        errors.append(InputError(str(path), f"can't be read ({reason})", "", REMAKE))
        return None
    if hashlib.sha256(content).hexdigest() != row.sha256:
        errors.append(
            InputError(
                str(path),
                "is not the document that documents.jsonl names by its sha256",
                "a checkout that leaves line ends as they are",
                REMAKE,
            )
        )
        return None
    return content.decode("utf-8")


def _misplaced(root: Path, question: _QuestionRow, body: str) -> list[PrerouterError]:
    place = f"{root / 'questions.jsonl'}: {question.question_id}"
    return [
        InputError(place, f"evidence is not at {piece.start}..{piece.end}", "", REMAKE)
        for piece in question.evidence
        if body[piece.start : piece.end] != piece.text
    ]


def _reference(question: _QuestionRow, profile: DocumentProfile) -> Reference:
    return Reference(
        question_id=question.question_id,
        answer=question.answer,
        answerable=question.answerable,
        evidence=question.evidence,
        level=question.level,
        context_length=length_band(profile.tokens or 0),
        annotations={"form": question.form},
    )


def _case(
    question: _QuestionRow,
    profile: DocumentProfile,
    model: AnswerModel,
    section: SampleSource,
    rag: RagConfig,
) -> RoutingCase:
    return RoutingCase(
        case_id=case_id_of(question.question_id, model),
        question_id=question.question_id,
        group_id=profile.document_id,
        question=question.question,
        task_type=question.level if section.task_type == "level" else None,
        document=profile,
        answer_model=model,
        rag=rag,
    )
