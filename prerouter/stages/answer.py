"""answer: every case by both routes, document by document."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from prerouter.answering.evidence import answer_document
from prerouter.core.errors import InputError
from prerouter.core.records import (
    ROUTES,
    Answer,
    DocumentFile,
    MissingReason,
    Reference,
    RoutingCase,
)
from prerouter.runs.rows import file_sha256
from prerouter.runs.stage import Stage, StageRun


def answer_key(answer: Answer) -> str:
    return f"{answer.case_id}|{answer.route.value}"


def read_document(root: Path, file: DocumentFile) -> str:
    """A document's body. Raises InputError where it is not the one that the cases were made of."""
    path = root / file.path
    try:
        if file_sha256(path) != file.sha256:
            raise InputError(
                str(path),
                "was changed since the cases were made",
                next_step="run `prerouter cases` again with --force",
            )
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from None


def unread(cases: list[RoutingCase]) -> Iterator[Answer]:
    """Answers for cases whose document body is not at hand: missing, with that reason."""
    for case in cases:
        for route in ROUTES:
            yield Answer(case_id=case.case_id, route=route, missing=MissingReason.NO_DOCUMENT)


def _run(run: StageRun) -> None:
    assert run.recipe.answer is not None
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    references = {r.question_id: r for r in run.read("cases/references.jsonl", Reference)}
    files = {f.document_id: f for f in run.read("cases/documents.jsonl", DocumentFile)}
    root = run.recipe.document_root
    by_document: dict[str, list[RoutingCase]] = defaultdict(list)
    for case in cases:
        by_document[case.document.document_id].append(case)
    missing: Counter[str] = Counter()
    cut = 0
    with run.log(Answer, answer_key) as log:
        run.progress.start("answer", len(cases) * len(ROUTES))
        for document_id, members in by_document.items():
            due = [
                case
                for case in members
                if any(f"{case.case_id}|{route.value}" not in log.done for route in ROUTES)
            ]
            if not due:
                continue
            if document_id in files:
                body = read_document(root, files[document_id])
                pairs = [
                    (case, references.get(case.question_id) or _nothing_known(case)) for case in due
                ]
                answers = answer_document(body, pairs)
            else:
                answers = unread(due)
            for answer in answers:
                log.append(answer)
                run.progress.advance()
        log.sort([f"{case.case_id}|{route.value}" for case in cases for route in ROUTES])
    for answer in run.read("answer/rows.jsonl", Answer):
        cut += answer.document_cut
        if answer.missing:
            missing[f"{answer.route.value} {answer.missing.value}"] += 1
    run.model = "evidence reader (answers with the reference passages in its context)"
    run.report["missing_by_arm_reason"] = dict(sorted(missing.items()))
    run.report["documents_cut_to_the_window"] = cut


def _nothing_known(case: RoutingCase) -> Reference:
    return Reference(question_id=case.question_id)


STAGE = Stage(
    name="answer",
    sections=lambda recipe: {"answer": recipe.answer},
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/references.jsonl",
        "cases/documents.jsonl",
    ),
    run=_run,
    packages=("bm25s",),
)
