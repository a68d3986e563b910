"""People's scores of answers, which a judge is measured against."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from prerouter.core.errors import InputError
from prerouter.core.records import ROUTES, Route
from prerouter.recipe.cases import Scale
from prerouter.recipe.judge import HumanScores
from prerouter.recipe.recipe import Recipe
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.table_cells import Cells, find_columns, shown
from prerouter.sources.table_files import read_table


@dataclass(frozen=True)
class HumanScore:
    """`place` is where it stands in its file."""

    case_id: str
    route: Route
    score: float
    place: str


def read_human_scores(section: HumanScores, scale: tuple[float, float]) -> tuple[HumanScore, ...]:
    """All scores of a CSV, JSONL or Parquet file. Raises a CombinedError with every bad row: one
    without a case, a route or a score on the scale, and a second score of the same answer."""
    problems = Problems(skip_bad=False, stage="score")
    table = read_table(section.path, problems, section)
    columns = find_columns(table, section, ["case_id", "route", "score"], "score.human")
    found: dict[tuple[str, Route], HumanScore] = {}
    for row in table.rows:
        cells = Cells(row, columns)
        case_id, route = cells.filled("case_id"), _route(cells)
        score = cells.score("score", Scale(low=scale[0], high=scale[1]), "mend it")
        if not cells.found and case_id is None:
            cells.refuse("case_id", RejectReason.MISSING_FIELD, "is blank", "a case's id")
        if not cells.found and score is None:
            cells.refuse("score", RejectReason.MISSING_FIELD, "is blank", "a score")
        if cells.found or case_id is None or route is None or score is None:
            problems.refuse(*cells.found, raw=row.raw)
            continue
        earlier = found.get((case_id, route))
        if earlier is not None:
            what = f"scores {route.value} of {case_id!r} again, after {earlier.place}"
            problem = Problem(RejectReason.DUPLICATE, row.place, what, "one row a case and route")
            problems.refuse(problem, raw=row.raw)
            continue
        found[case_id, route] = HumanScore(case_id, route, score, row.place)
    problems.stop(str(section.path))
    return tuple(found.values())


def check_known(scores: Sequence[HumanScore], cases: Collection[str], path: Path) -> None:
    """Raises a CombinedError where scores are of cases that the run doesn't have."""
    strange = [score for score in scores if score.case_id not in cases]
    if strange:
        problems = Problems(skip_bad=False, stage="score")
        for score in strange:
            what = f"scores {score.case_id!r}, of which there is no case"
            accepted = "a case_id as in cases/rows.jsonl"
            problems.refuse(Problem(RejectReason.SCORE_WITHOUT_CASE, score.place, what, accepted))
        problems.stop(str(path))


def missing_human_scores(recipe: Recipe) -> list[InputError]:
    """An error where the recipe names a file of human scores that isn't there."""
    section = recipe.score.human if recipe.score else None
    if section is None or section.path.is_file():
        return []
    accepted = "scores as CSV, JSONL or Parquet"
    return [InputError(str(section.path), "no such file", accepted, "mend score.human.path")]


def _route(cells: Cells) -> Route | None:
    name = (cells.filled("route") or "").upper()
    if name in ROUTES:
        return Route(name)
    if not cells.found:
        what = f"is {shown(cells.value('route'))}"
        cells.refuse("route", RejectReason.MISSING_FIELD, what, " or ".join(ROUTES))
    return None
