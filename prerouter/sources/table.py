"""The user's own questions, and what they bring along: references, answers, paired scores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from prerouter.core.errors import InputError
from prerouter.core.records import (
    ROUTES,
    Answer,
    ArmScore,
    DocumentProfile,
    MissingReason,
    PairedScore,
    RagConfig,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.recipe.cases import TableSource
from prerouter.sources.case_ids import case_id_of
from prerouter.sources.loaded import Loaded
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.table_cells import Cells, find_columns
from prerouter.sources.table_documents import DocumentFolder, FoundDocument, Ledger, document_file
from prerouter.sources.table_evidence import with_evidence
from prerouter.sources.table_files import Table, TableRow, read_table
from prerouter.sources.table_rows import ANSWERS, SCORES, Draft, draft_row
from prerouter.sources.table_scores import join_scores
from prerouter.sources.text_files import estimate_tokens, head_of


@dataclass
class _Accepted:
    """Rows that agree with all before them."""

    drafts: list[Draft] = field(default_factory=list)
    documents: Ledger = field(default_factory=Ledger)
    references: Ledger = field(default_factory=Ledger)
    questions: Ledger = field(default_factory=Ledger)
    places: dict[str, str] = field(default_factory=dict)
    found: dict[str, FoundDocument] = field(default_factory=dict)


def load_table(section: TableSource, rag: RagConfig, skip_bad: bool = False) -> Loaded:
    """Read a CSV, JSONL or Parquet file of questions (and the score file beside it, if any).

    Only the question is required; every other column may be absent or empty. A document's length
    and head are taken from its file where the table doesn't give them (the length estimated from
    the characters), and evidence is looked up in it. Scores and answers that aren't there are
    missing, never zero; a case without either score has no PairedScore and is counted.

    Raises a CombinedError with every mistake of the file, the first ones in full. With `skip_bad`
    bad rows become rejects and the others go on; where two rows contradict each other, the first
    stands. What concerns the file as a whole is raised in both cases.
    """
    problems = Problems(skip_bad)
    table = read_table(section.path, problems, section.columns)
    columns = find_columns(table, section.columns, ["question"], "cases.columns")
    if "answer_model" not in columns and not section.answer_models:
        raise InputError(
            str(section.path),
            "names no answer model, and neither does the recipe",
            "a model that would answer, for every question or for each row",
            "write `cases.answer_models: [{name: NAME, context_window: TOKENS}]`, "
            "or add a column answer_model",
        )
    if section.scores is not None and any(key in columns for key in SCORES.values()):
        raise InputError(
            str(section.path),
            f"holds scores, and so does {section.scores.path}",
            "one place for scores",
            "take out cases.scores or the columns",
        )
    folder = DocumentFolder(section.documents or section.path.parent)
    read: list[tuple[Cells, Draft | None]] = []
    bodies: dict[str, str] = {}
    for row in table.rows:
        cells = Cells(row, columns)
        draft = draft_row(cells, section, folder)
        read.append((cells, draft))
        if draft is not None and draft.found is not None:
            bodies.setdefault(draft.document_id, draft.found.text.body)
    accepted = _Accepted()
    for cells, draft in read:
        row = cells.row
        if draft is not None and draft.evidence:
            # The path may stand in another row of the same document.
            draft = with_evidence(draft, cells, bodies.get(draft.document_id))
        mistakes = cells.found or (_disagreements(draft, row.place, accepted) if draft else [])
        if draft is None or mistakes:
            problems.refuse(*mistakes, raw=row.raw, key=draft.question_id if draft else "")
        else:
            _accept(draft, row, accepted)
    problems.stop(str(section.path))
    return _build(section, rag, table, columns, accepted, problems)


def _asked(draft: Draft) -> dict[str, str]:
    return {
        "the question": draft.question,
        "the document": draft.document_id,
        "the task type": draft.task_type or "",
    }


def _disagreements(draft: Draft, place: str, accepted: _Accepted) -> list[Problem]:
    found = []
    for reason, what, accepted_form, conflicts in (
        (
            RejectReason.CONFLICTING_QUESTION,
            f"question_id {draft.question_id!r}",
            "one question over one document for each question_id",
            accepted.questions.conflicts(draft.question_id, _asked(draft)),
        ),
        (
            RejectReason.CONFLICTING_REFERENCE,
            f"question_id {draft.question_id!r}",
            "one reference for each question_id",
            accepted.references.conflicts(draft.question_id, draft.reference),
        ),
        (
            RejectReason.CONFLICTING_DOCUMENT,
            f"document {draft.document_id!r}",
            "one title, type, length, head and path for each document",
            accepted.documents.conflicts(draft.document_id, draft.document),
        ),
    ):
        found += [
            Problem(reason, place, f"{what}: {conflict}", accepted_form) for conflict in conflicts
        ]
    if found:
        return found
    for model in draft.models:
        first = accepted.places.get(case_id_of(draft.question_id, model))
        if first is not None:
            what = f"question {draft.question_id!r} for {model.name} stands at {first} already"
            accepted_form = "each question once for each answer model"
            found.append(Problem(RejectReason.DUPLICATE, place, what, accepted_form))
    return found


def _accept(draft: Draft, row: TableRow, accepted: _Accepted) -> None:
    accepted.drafts.append(draft)
    accepted.documents.add(draft.document_id, draft.document, row.place)
    accepted.references.add(draft.question_id, draft.reference, row.place)
    accepted.questions.add(draft.question_id, _asked(draft), row.place)
    for model in draft.models:
        accepted.places[case_id_of(draft.question_id, model)] = row.place
    if draft.found is not None:
        accepted.found.setdefault(draft.document_id, draft.found)


def _build(
    section: TableSource,
    rag: RagConfig,
    table: Table,
    columns: dict[str, str],
    accepted: _Accepted,
    problems: Problems,
) -> Loaded:
    counts: Counter[str] = Counter()
    loaded = Loaded()
    profiles = {
        document_id: _profile(document_id, section, accepted, counts)
        for document_id in dict.fromkeys(draft.document_id for draft in accepted.drafts)
    }
    drafts: dict[str, Draft] = {}
    for draft in accepted.drafts:
        for model in draft.models:
            case = RoutingCase(
                case_id=case_id_of(draft.question_id, model),
                question_id=draft.question_id,
                group_id=draft.document_id,
                question=draft.question,
                task_type=draft.task_type,
                document=profiles[draft.document_id],
                answer_model=model,
                rag=rag,
            )
            loaded.cases.append(case)
            drafts[case.case_id] = draft
    if not loaded.cases:
        raise InputError(
            str(section.path),
            f"no good row is left: {len(problems.rejects)} were refused",
            next_step="run without --skip-bad to see why",
        )
    if section.scores is not None:
        arms = join_scores(section.scores, section.scale, loaded.cases, problems)
        problems.stop(str(section.scores.path))
        loaded.scores = _paired(loaded.cases, arms, section, counts)
    elif any(key in columns for key in SCORES.values()):
        arms = {case_id: draft.scores for case_id, draft in drafts.items()}
        loaded.scores = _paired(loaded.cases, arms, section, counts)
    if any(key in columns for key in ANSWERS.values()):
        loaded.answers = [
            _answer(case.case_id, route, drafts[case.case_id], counts)
            for case in loaded.cases
            for route in ROUTES
        ]
    loaded.references = [
        _reference(question_id, accepted.references)
        for question_id in dict.fromkeys(draft.question_id for draft in accepted.drafts)
    ]
    for document_id, found in accepted.found.items():
        loaded.documents.append(document_file(document_id, found))
        loaded.bodies[document_id] = found.text.body
    loaded.rejects = problems.rejects
    passages = [passage for reference in loaded.references for passage in reference.evidence]
    used = set(columns.values())
    counts.update(
        rows=len(table.rows),
        rows_rejected=len(loaded.rejects),
        columns_not_used=sum(column not in used for column in table.columns),
        cases=len(loaded.cases),
        questions=len(loaded.references),
        documents=len(profiles),
        documents_with_text=len(loaded.bodies),
        evidence_passages=len(passages),
        evidence_passages_without_place=sum(passage.start is None for passage in passages),
        question_ids_derived=sum(draft.derived_id for draft in accepted.drafts),
    )
    loaded.counts = {name: counts[name] for name in sorted(counts)}
    return loaded


def _paired(
    cases: Sequence[RoutingCase],
    arms_of: Mapping[str, dict[Route, ArmScore]],
    section: TableSource,
    counts: Counter[str],
) -> list[PairedScore]:
    """The pairs with one score at least; the other cases, and the missing arms, are counted."""
    pairs = []
    for case in cases:
        arms = arms_of.get(case.case_id)
        if arms is None or all(arm.score is None for arm in arms.values()):
            counts["cases_without_scores"] += 1
            continue
        for route, arm in arms.items():
            counts[f"{SCORES[route]}s_missing"] += arm.score is None
        scale = section.scale
        pairs.append(
            PairedScore(
                case_id=case.case_id, arms=arms, low=scale.low, high=scale.high, judge=section.judge
            )
        )
    return pairs


def _profile(
    document_id: str, section: TableSource, accepted: _Accepted, counts: Counter[str]
) -> DocumentProfile:
    title, kind, tokens, head = (
        accepted.documents.get(document_id, name) for name in ("title", "type", "tokens", "head")
    )
    found = accepted.found.get(document_id)
    if tokens is None and found is not None:
        tokens = estimate_tokens(len(found.text.body), kind)
        counts["document_tokens_estimated"] += 1
    if head is None and found is not None:
        head = found.text.body
    return DocumentProfile(
        document_id=document_id,
        title=title,
        type=kind,
        tokens=tokens,
        head=head_of(head, section.head_characters) if head is not None else None,
    )


def _answer(case_id: str, route: Route, draft: Draft, counts: Counter[str]) -> Answer:
    answer = draft.answers[route]
    if isinstance(answer, MissingReason):
        counts[f"{ANSWERS[route]}s_{answer.value}"] += 1
        return Answer(case_id=case_id, route=route, missing=answer)
    return Answer(case_id=case_id, route=route, text=answer)


def _reference(question_id: str, references: Ledger) -> Reference:
    answerable = references.get(question_id, "answerable")
    return Reference(
        question_id=question_id,
        answer=references.get(question_id, "answer"),
        answerable=True if answerable is None else answerable,
        level=references.get(question_id, "level"),
        context_length=references.get(question_id, "context_length"),
        evidence=references.get(question_id, "evidence") or (),
    )
