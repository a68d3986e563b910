"""LaRA's compact form: queries.jsonl.gz, predictions/MODEL.jsonl.gz, documents.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prerouter.core.records import DocumentProfile, MissingReason, Route
from prerouter.sources.lara_documents import add_document
from prerouter.sources.lara_records import (
    DOCUMENT_TYPES,
    LENGTHS,
    LEVELS,
    Gathered,
    Question,
    Stratum,
    read_prediction,
)
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.text_files import HIGHEST_COUNT, JsonLine, head_of, read_json_lines

QUERIES = "queries.jsonl.gz"
_TEXTS = (
    "id",
    "context_length",
    "doc_type",
    "level",
    "file",
    "title",
    "question",
    "ground_truth",
    "order",
    "raw_type",
    "rights",
    "head",
)
_WORDS = {
    "context_length": LENGTHS,
    "doc_type": tuple(DOCUMENT_TYPES.values()),
    "level": tuple(LEVELS.values()),
}
_ARMS = {Route.RAG: ("rag_prediction", "rag_status"), Route.LC: ("lc_prediction", "lc_status")}
_STATUS = {"failed": MissingReason.CALL_FAILED, "missing": MissingReason.NOT_GIVEN}


def is_compact(root: Path) -> bool:
    return (root / QUERIES).is_file()


def read_compact(root: Path, head_characters: int, problems: Problems) -> Gathered:
    """Read the compact form; documents are read where the clone beside it holds their text."""
    gathered = Gathered(problems)
    for line in read_json_lines(root / QUERIES):
        _add_question(line, head_characters, gathered)
    for path in sorted((root / "predictions").glob("*.jsonl.gz")):
        gathered.counts["prediction_files"] += 1
        model = path.name.removesuffix(".jsonl.gz")
        for line in read_json_lines(path):
            _add_predictions(line, model, gathered)
    if (root / "documents.jsonl").is_file():
        for line in read_json_lines(root / "documents.jsonl"):
            _add_body(line, root, gathered)
    gathered.counts["documents_without_text"] = len(gathered.profiles) - len(gathered.bodies)
    return gathered


def _add_question(line: JsonLine, head_characters: int, gathered: Gathered) -> None:
    row = line.value
    if row is None:
        assert line.problem is not None
        gathered.problems.refuse(line.problem, raw=line.raw)
        return
    found = _mistakes(row, line.place)
    if found:
        gathered.problems.refuse(*found, raw=line.raw)
        return
    question = Question(
        stratum=Stratum(row["context_length"], row["doc_type"], row["level"]),
        file=row["file"],
        order=row["order"],
        question=row["question"],
        ground_truth=row["ground_truth"],
        raw_type=row["raw_type"],
        rights=row["rights"],
    )
    if question.id != row["id"]:
        what = f"the id {row['id']!r} is not that of its content ({question.id})"
        problem = Problem(RejectReason.CONFLICTING_QUESTION, line.place, what)
        gathered.problems.refuse(problem, raw=line.raw)
        return
    gathered.add_question(question, line.place, line.raw)
    if question.document_id not in gathered.profiles:
        gathered.profiles[question.document_id] = DocumentProfile(
            document_id=question.document_id,
            title=row["title"] or None,
            type=question.stratum.type,
            tokens=row["n_tokens"],
            head=head_of(row["head"], head_characters),
        )


def _mistakes(row: dict[str, Any], place: str) -> list[Problem]:
    found = [
        Problem(
            RejectReason.NOT_TEXT if key in row else RejectReason.MISSING_FIELD,
            place,
            f"`{key}` is not a text",
            "a text",
        )
        for key in _TEXTS
        if not isinstance(row.get(key), str)
    ]
    found += [
        Problem(RejectReason.MISSING_FIELD, place, f"`{key}` is {row[key]!r}", ", ".join(words))
        for key, words in _WORDS.items()
        if isinstance(row.get(key), str) and row[key] not in words
    ]
    if isinstance(row.get("question"), str) and not row["question"].strip():
        found.append(Problem(RejectReason.EMPTY_QUESTION, place, "`question` is blank", "a text"))
    if type(row.get("n_tokens")) is not int or not 0 <= row["n_tokens"] <= HIGHEST_COUNT:
        found.append(
            Problem(
                RejectReason.BAD_COUNT, place, "`n_tokens` is no count", f"0 to {HIGHEST_COUNT:,}"
            )
        )
    return found


def _add_predictions(line: JsonLine, model: str, gathered: Gathered) -> None:
    row = line.value
    if row is None:
        assert line.problem is not None
        gathered.problems.refuse(line.problem, raw=line.raw)
        return
    question_id = row.get("id")
    if not isinstance(question_id, str) or question_id not in gathered.questions:
        what = f"answers a question {question_id!r} that {QUERIES} does not hold"
        problem = Problem(RejectReason.ANSWER_WITHOUT_QUESTION, line.place, what)
        gathered.problems.refuse(problem, raw=line.raw)
        return
    for route, (prediction_key, status_key) in _ARMS.items():
        prediction = read_prediction(row.get(prediction_key))
        if prediction is None:
            what = f"`{prediction_key}` is {row[prediction_key]!r}"
            problem = Problem(RejectReason.NOT_TEXT, line.place, what, "a text or null")
            gathered.problems.refuse(problem, raw=line.raw, key=question_id)
            continue
        if prediction is MissingReason.NOT_GIVEN:
            prediction = _STATUS.get(str(row.get(status_key)), MissingReason.NOT_GIVEN)
            if prediction is MissingReason.NOT_GIVEN:
                continue
        gathered.add_answer(model, question_id, route, prediction, line.place)


def _add_body(line: JsonLine, root: Path, gathered: Gathered) -> None:
    row = line.value
    if row is None:
        assert line.problem is not None
        gathered.problems.refuse(line.problem, raw=line.raw)
        return
    document_id = f"{row.get('context_length')}/{row.get('doc_type')}/{row.get('file')}"
    path = root / "clone" / "datasets" / str(row.get("path"))
    if document_id not in gathered.profiles or not path.is_file():
        return
    if path.resolve().is_relative_to(root.resolve()):
        add_document(root, path, document_id, gathered, sha256=str(row.get("sha256")))
