"""LaRA as `git clone` leaves it: query files, prediction files and documents apart."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from prerouter.core.records import DocumentProfile, Route
from prerouter.sources.lara_documents import add_document, list_documents, title_of
from prerouter.sources.lara_records import (
    DOCUMENT_TYPES,
    Gathered,
    Question,
    Stratum,
    read_prediction,
    same_text,
)
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.text_files import (
    JsonLine,
    estimate_tokens,
    head_of,
    read_json_lines,
)

# Both spellings have been the repository's.
_DATA_FOLDERS = ("datasets", "dataset")
_ROUTES = {"rag": Route.RAG, "full": Route.LC}
_FOLDER_OF_TYPE = {kind: folder for folder, kind in DOCUMENT_TYPES.items()}


def is_clone(root: Path) -> bool:
    return _data_folder(root) is not None or (root / "evaluation" / "prediction").is_dir()


def _data_folder(root: Path) -> Path | None:
    folders = (root / name for name in _DATA_FOLDERS)
    return next((folder for folder in folders if folder.is_dir()), None)


def read_clone(root: Path, head_characters: int, problems: Problems) -> Gathered:
    """Read queries first, then predictions, then the documents that questions ask about."""
    gathered = Gathered(problems)
    asked = _read_queries(root, gathered)
    predicted = _read_predictions(root, gathered)
    gathered.counts["query_files_missing"] = len(predicted - asked)
    gathered.counts["query_files_without_predictions"] = len(asked - predicted)
    _read_documents(root, head_characters, gathered)
    return gathered


def _read_queries(root: Path, gathered: Gathered) -> set[Stratum]:
    data = _data_folder(root)
    strata: set[Stratum] = set()
    for path in sorted((data / "query").glob("*.jsonl")) if data else ():
        named = Stratum.of_file_name(path.stem)
        if named is None or named[0]:
            gathered.counts["files_not_recognised"] += 1
            continue
        strata.add(named[1])
        gathered.counts["query_files"] += 1
        for line in _good_lines(path, gathered):
            question = _question(line, named[1], "answer", gathered.problems)
            if question is not None:
                gathered.add_question(question, line.place, line.raw)
                assert line.value is not None
                gathered.counts["contexts_left_out"] += "context" in line.value
    return strata


def _good_lines(path: Path, gathered: Gathered) -> Iterator[JsonLine]:
    ended = True
    for line in read_json_lines(path):
        ended = line.ended
        if line.problem is not None:
            gathered.problems.refuse(line.problem, raw=line.raw)
        else:
            yield line
    gathered.counts["files_without_final_newline"] += not ended


def _question(
    line: JsonLine, stratum: Stratum, truth_key: str, problems: Problems
) -> Question | None:
    """The question of a query row (its gold answer under `answer`) or prediction row
    (`ground_truth`). The row's own type, level and length are not trusted, its `context` not read.
    """
    row = line.value
    assert row is not None
    found = []
    texts: dict[str, str] = {}
    for key in ("file", "question", truth_key):
        value = row.get(key)
        if isinstance(value, str) and value.strip():
            texts[key] = value
        else:
            reason = RejectReason.MISSING_FIELD if value is None else RejectReason.NOT_TEXT
            found.append(Problem(reason, line.place, f"`{key}` is not a text", "a text"))
    order = _order(row)
    if order is None:
        found.append(
            Problem(
                RejectReason.MISSING_FIELD,
                line.place,
                "tells no place in the document",
                "`context_order`, a number or a text, or `comp_parts`, two numbers",
            )
        )
    if found or order is None:
        problems.refuse(*found, raw=line.raw)
        return None
    raw_type = row.get("type")
    return Question(
        stratum=stratum,
        file=texts["file"],
        order=order,
        question=texts["question"],
        ground_truth=texts[truth_key],
        raw_type=raw_type if isinstance(raw_type, str) else "",
    )


def _order(row: dict[str, Any]) -> str | None:
    parts = row.get("comp_parts")
    if isinstance(parts, list) and parts and all(type(part) is int for part in parts):
        return ",".join(str(part) for part in parts)
    order = row.get("context_order")
    return str(order) if isinstance(order, str | int) and not isinstance(order, bool) else None


def _read_predictions(root: Path, gathered: Gathered) -> set[Stratum]:
    strata: set[Stratum] = set()
    rows: dict[tuple[str, Stratum], dict[Route, int]] = {}
    from_queries = frozenset(gathered.questions)
    otherwise: set[str] = set()
    for path in sorted((root / "evaluation" / "prediction").glob("*/*.jsonl")):
        # The folder names the model: one folder's files carry another model's name.
        model = path.parent.name
        named = Stratum.of_file_name(path.stem)
        kind, _, named_model = named[0].partition("_preds_") if named else ("", "", "")
        route = _ROUTES.get(kind)
        if named is None or route is None or not named_model:
            gathered.counts["files_not_recognised"] += 1
            continue
        stratum = named[1]
        strata.add(stratum)
        if named_model != model:
            otherwise.add(model)
        gathered.counts["prediction_files"] += 1
        lengths = rows.setdefault((model, stratum), dict.fromkeys(Route, 0))
        for line in _good_lines(path, gathered):
            lengths[route] += 1
            _add_prediction(line, model, route, stratum, from_queries, gathered)
    gathered.counts["model_folders_named_otherwise"] = len(otherwise)
    gathered.counts["prediction_file_pairs_of_unequal_length"] = sum(
        len(set(lengths.values())) > 1 for lengths in rows.values()
    )
    return strata


def _add_prediction(
    line: JsonLine,
    model: str,
    route: Route,
    stratum: Stratum,
    from_queries: frozenset[str],
    gathered: Gathered,
) -> None:
    question = _question(line, stratum, "ground_truth", gathered.problems)
    if question is None:
        return
    assert line.value is not None
    known = gathered.questions.get(question.id)
    if known is not None and not same_text(known.ground_truth, question.ground_truth):
        # The release contradicts itself: set aside and counted, since no user could mend it.
        what = f"answers question {question.id} but holds another ground truth than it"
        problem = Problem(RejectReason.ANSWER_WITHOUT_QUESTION, line.place, what)
        gathered.problems.set_aside(problem, raw=line.raw, key=question.id)
        return
    prediction = read_prediction(line.value.get("prediction"))
    if prediction is None:
        problem = Problem(
            RejectReason.NOT_TEXT,
            line.place,
            f"`prediction` is {line.value['prediction']!r}",
            "a text, or false for a failed call",
        )
        gathered.problems.refuse(problem, raw=line.raw, key=question.id)
        return
    if known is None:
        gathered.questions[question.id] = question
    if question.id not in from_queries:
        gathered.counts["answers_whose_query_is_missing"] += 1
    gathered.add_answer(model, question.id, route, prediction, line.place)


def _read_documents(root: Path, head_characters: int, gathered: Gathered) -> None:
    data = _data_folder(root)
    listings: dict[Path, dict[str, Path]] = {}
    for question in gathered.questions.values():
        document_id = question.document_id
        if document_id in gathered.profiles:
            continue
        path = None
        if data is not None:
            folder = data / question.stratum.length / _FOLDER_OF_TYPE[question.stratum.type]
            listing = listings.setdefault(folder, list_documents(folder, root))
            path = listing.get(unicodedata.normalize("NFC", question.file))
        body = None
        if path is not None:
            body = add_document(root, path, document_id, gathered)
        gathered.profiles[document_id] = DocumentProfile(
            document_id=document_id,
            title=title_of(question, body),
            type=question.stratum.type,
            tokens=estimate_tokens(len(body), question.stratum.type) if body else None,
            head=head_of(body, head_characters) if body else None,
        )
        gathered.counts["documents_without_text"] += body is None
