"""LongBench-v2 (Bai et al., 2024, arXiv 2412.15204): four-way multiple choice over long documents.

Read from the published `data.json` (data/sources.yaml says where it is from): one JSON list, a
record a question, with the document inside it.
"""

from __future__ import annotations

import codecs
import hashlib
from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError, from_json

from prerouter.core.errors import InputError
from prerouter.core.records import (
    AnswerModel,
    DocumentFile,
    DocumentProfile,
    RagConfig,
    Record,
    Reference,
    RoutingCase,
)
from prerouter.recipe.cases import LONGEST_ID, LongBenchV2Source
from prerouter.sources.case_ids import case_id_of
from prerouter.sources.loaded import Loaded
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.table_cells import shown
from prerouter.sources.text_files import estimate_tokens, head_of

# How often over a head's length is looked at, since white space is folded.
HEAD_FOLDING = 100
LIST = "the published data.json: one JSON list of records, UTF-8"


def _not_blank(text: str) -> str:
    if not text or text.isspace():
        raise PydanticCustomError("blank", "is blank")
    return text


_Text = Annotated[str, AfterValidator(_not_blank)]
_Name = Annotated[str, Field(max_length=LONGEST_ID), AfterValidator(_not_blank)]
# A case's id may spell each of its characters with three.
_Id = Annotated[str, Field(max_length=LONGEST_ID // 3), AfterValidator(_not_blank)]


class _Row(Record):
    id: _Id = Field(alias="_id")
    domain: _Name
    sub_domain: _Name
    difficulty: _Name
    length: _Name
    question: _Text
    choice_A: _Text  # noqa: N815 -- as the file spells them
    choice_B: _Text  # noqa: N815
    choice_C: _Text  # noqa: N815
    choice_D: _Text  # noqa: N815
    answer: Literal["A", "B", "C", "D"]
    context: _Text


_FIELDS = [field.alias or name for name, field in _Row.model_fields.items()]

_REASONS = {
    "missing": (RejectReason.MISSING_FIELD, "is not there", f"all of {', '.join(_FIELDS)}"),
    "extra_forbidden": (RejectReason.UNKNOWN_FIELD, "is no field", ", ".join(_FIELDS)),
    "string_type": (RejectReason.NOT_TEXT, "is {value}", "a text"),
    "string_too_long": (RejectReason.TOO_LONG, "has too many characters", "at most {limit}"),
    "literal_error": (RejectReason.BAD_LETTER, "is {value}", "A, B, C or D"),
    "blank": (RejectReason.EMPTY_FIELD, "is blank", "a text of words"),
}


def load_longbench_v2(section: LongBenchV2Source, rag: RagConfig, skip_bad: bool = False) -> Loaded:
    """Read `data.json` and cross its questions with the answer models, in the file's order.

    Questions over one and the same text share a document. `documents` names files that don't exist
    yet: the bodies stand in the JSON, and the `cases` stage writes them out of `bodies`. Lengths in
    tokens are estimated from the characters.

    A case's question is the question alone. Its four choices stand in the Reference, for the
    answering model's prompt and for scoring, and no router sees them: a student that learnt from
    open questions has met none, whoever asks a document seldom brings any, and what they add is
    how the answer is given, not where it stands. (Pre-Route doesn't say whether its router did.)

    `difficulty` is the Reference's level and `length` its context length; `sub_domain` is the
    document's type, and `domain` the task type where the recipe shows it.

    Raises InputError where the file is no JSON list, and a CombinedError with every bad record: a
    field that is missing, unknown, blank or no text, a letter other than A to D, an `_id` that
    stands there twice. With `skip_bad` such records are rejects instead.
    """
    problems = Problems(skip_bad)
    loaded = Loaded()
    counts: Counter[str] = Counter()
    places: dict[str, str] = {}
    profiles: dict[str, DocumentProfile] = {}
    for number, record in enumerate(_records(section.path), start=1):
        counts["records"] += 1
        place = f"{section.path}: record {number}"
        row = _row(record, place, problems, places)
        if row is None:
            continue
        places[row.id] = f"record {number}"
        body = row.context.removeprefix("\ufeff")
        content = body.encode()
        digest = hashlib.sha256(content).hexdigest()
        document_id = digest[:32]
        if document_id not in profiles:
            profiles[document_id] = _profile(document_id, row, body, section.head_characters)
            loaded.bodies[document_id] = body
            loaded.documents.append(
                DocumentFile(
                    document_id=document_id,
                    path=f"documents/{document_id}.txt",
                    sha256=digest,
                    characters=len(body),
                )
            )
        counts[f"domain {_name(row.domain)}"] += 1
        loaded.references.append(_reference(row))
        loaded.cases += [
            _case(row, profiles[document_id], model, section, rag)
            for model in section.answer_models
        ]
    problems.stop(str(section.path))
    loaded.rejects = problems.rejects
    counts.update(
        rows_rejected=len(loaded.rejects),
        questions=len(loaded.references),
        documents=len(loaded.documents),
        document_tokens_estimated=len(loaded.documents),
        cases=len(loaded.cases),
    )
    loaded.counts = {name: counts[name] for name in sorted(counts)}
    return loaded


def _records(path: Path) -> list[Any]:
    # Parsed from its bytes, once: as text a file with one emoji takes four bytes a character.
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from None
    try:
        records = from_json(data)
    except ValueError as error:
        raise InputError(str(path), f"is not JSON: {error}", LIST, "fetch the file again") from None
    if not isinstance(records, list):
        raise InputError(
            str(path), f"is a JSON {type(records).__name__}, not a list", LIST, "fetch data.json"
        )
    return records


def _row(record: object, place: str, problems: Problems, places: dict[str, str]) -> _Row | None:
    """The record, typed; None where it is refused, for every mistake in it."""
    if not isinstance(record, dict):
        what = f"is a JSON {type(record).__name__}, not an object"
        problem = Problem(RejectReason.UNREADABLE_LINE, place, what, "an object a question")
        problems.refuse(problem, raw=shown(record))
        return None
    known = record.get("_id")
    named = f"{place} ({shown(known)})" if isinstance(known, str) else place
    try:
        row = _Row.model_validate(record)
    except ValidationError as error:
        found = [_problem(details, named) for details in error.errors(include_url=False)]
    else:
        if row.id not in places:
            return row
        what = f"this _id stands at {places[row.id]} already"
        found = [Problem(RejectReason.DUPLICATE, named, what, "each question once")]
    # All but the document, which may be millions of characters.
    raw = ", ".join(f"{key}: {shown(record[key])}" for key in record if key != "context")
    problems.refuse(*found, raw=raw, key=known[:LONGEST_ID] if isinstance(known, str) else "")
    return None


def _problem(details: ErrorDetails, place: str) -> Problem:
    reason, what, accepted = _REASONS[details["type"]]
    field = str(details["loc"][0])
    if reason is RejectReason.EMPTY_FIELD and field == "question":
        reason = RejectReason.EMPTY_QUESTION
    limit = details.get("ctx", {}).get("max_length")
    # Of a field that is missing, the input is the whole record.
    value = "" if reason is RejectReason.MISSING_FIELD else shown(details["input"])
    return Problem(
        reason,
        place,
        f"{field if field in _FIELDS else shown(field)} {what.format(value=value)}",
        accepted.format(limit=limit),
        "mend the record, or leave it out with --skip-bad",
    )


def _name(text: str) -> str:
    return " ".join(text.split())


def _profile(document_id: str, row: _Row, body: str, head_characters: int) -> DocumentProfile:
    return DocumentProfile(
        document_id=document_id,
        type=_name(row.sub_domain),
        tokens=estimate_tokens(len(body)),
        # Folding white space through millions of characters would take longer than all the rest.
        head=head_of(body[: HEAD_FOLDING * head_characters], head_characters),
    )


def _reference(row: _Row) -> Reference:
    return Reference(
        question_id=row.id,
        answer=row.answer,
        choices=(row.choice_A, row.choice_B, row.choice_C, row.choice_D),
        level=_name(row.difficulty),
        context_length=_name(row.length),
        annotations={"domain": _name(row.domain)},
    )


def _case(
    row: _Row,
    profile: DocumentProfile,
    model: AnswerModel,
    section: LongBenchV2Source,
    rag: RagConfig,
) -> RoutingCase:
    return RoutingCase(
        case_id=case_id_of(row.id, model),
        question_id=row.id,
        group_id=profile.document_id,
        question=row.question,
        task_type=_name(row.domain) if section.task_type == "domain" else None,
        document=profile,
        answer_model=model,
        rag=rag,
    )
