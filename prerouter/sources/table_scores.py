"""Paired scores that stand in a file beside the cases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prerouter.core.errors import InputError
from prerouter.core.records import ArmScore, Route, RoutingCase
from prerouter.recipe.cases import Scale, ScoreFile
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.table_cells import Cells, find_columns
from prerouter.sources.table_files import read_table
from prerouter.sources.table_rows import SCORES, read_scores


def join_scores(
    section: ScoreFile, scale: Scale, cases: Sequence[RoutingCase], problems: Problems
) -> dict[str, dict[Route, ArmScore]]:
    """Both arms' scores by case id. A row names its case by question id and answer model; the
    latter may be absent where the question has one case only.
    """
    table = read_table(section.path, problems, section)
    columns = find_columns(table, section, ["question_id"], "cases.scores")
    require_a_score(columns, section.path, "cases.scores")
    of_question: dict[str, list[RoutingCase]] = {}
    for case in cases:
        of_question.setdefault(case.question_id, []).append(case)
    scores: dict[str, dict[Route, ArmScore]] = {}
    placed: dict[str, str] = {}
    for row in table.rows:
        cells = Cells(row, columns)
        question_id = cells.identifier("question_id")
        model = cells.identifier("answer_model")
        arms = read_scores(cells, scale)
        found = [
            case
            for case in of_question.get(question_id or "", [])
            if model is None or case.answer_model.name == model
        ]
        if not cells.found:
            cells.found += _mistakes(row.place, question_id, model, found, placed)
        if cells.found:
            problems.refuse(*cells.found, raw=row.raw, key=question_id or "")
            continue
        case_id = found[0].case_id
        placed[case_id] = row.place
        scores[case_id] = arms
    return scores


def require_a_score(columns: dict[str, str], path: Path, place: str) -> None:
    """A file of scores without a column of scores has the wrong names."""
    if not any(key in columns for key in SCORES.values()):
        raise InputError(
            str(path),
            "has neither a column 'rag_score' nor 'lc_score'",
            "a score for each route, empty where there is none",
            f"write `{place}: {{rag_score: NAME, lc_score: NAME}}`",
        )


def _mistakes(
    place: str,
    question_id: str | None,
    model: str | None,
    found: Sequence[RoutingCase],
    placed: dict[str, str],
) -> list[Problem]:
    named = f"question {question_id!r}" + (f" and model {model!r}" if model else "")
    if not found:
        what = f"scores {named}, of which there is no case"
        accepted = "a question_id and answer_model of the cases"
        return [Problem(RejectReason.SCORE_WITHOUT_CASE, place, what, accepted)]
    if len(found) > 1:
        what = f"scores {named}, of which there are {len(found)} cases"
        advice = "add a column answer_model" if model is None else "give each case a question_id"
        return [Problem(RejectReason.SEVERAL_ANSWER_MODELS, place, what, "one case", advice)]
    if found[0].case_id in placed:
        what = f"scores {named} again, after {placed[found[0].case_id]}"
        return [Problem(RejectReason.DUPLICATE, place, what, "one row a case")]
    return []
