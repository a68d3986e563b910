"""What people say of answers: a value for a case and route, read from a table of their own."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from prerouter.core.errors import InputError
from prerouter.core.records import Route
from prerouter.recipe.cases import Scale
from prerouter.recipe.judge import HumanScores, LabelledTriples, PeoplesTable
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.table_cells import Cells, find_columns, shown
from prerouter.sources.table_files import read_table

Value = TypeVar("Value")


@dataclass(frozen=True)
class Said(Generic[Value]):
    """`place` is where it stands in its file."""

    case_id: str
    route: Route
    value: Value
    place: str


def read_human_scores(
    section: HumanScores, scale: tuple[float, float], routes: Sequence[Route]
) -> tuple[Said[float], ...]:
    """Scores on the scale, of answers by the `routes`. Raises a CombinedError with all bad rows."""
    wanted = Scale(low=scale[0], high=scale[1])
    return read_said(
        section,
        "score",
        lambda cells: cells.score("score", wanted, "mend it"),
        routes,
        "score.human",
    )


def read_triples(section: LabelledTriples) -> tuple[Said[bool], ...]:
    """Whether the passages of a RAG or LONG_RAG answer answer its question. Raises a CombinedError
    with every bad row."""
    retrieved = [route for route in Route if route is not Route.LC]
    return read_said(
        section,
        "answerable",
        lambda cells: cells.boolean("answerable"),
        retrieved,
        "evaluate.triples",
    )


def read_said(
    section: PeoplesTable,
    key: str,
    value: Callable[[Cells], Value | None],
    routes: Sequence[Route],
    section_key: str,
) -> tuple[Said[Value], ...]:
    """All rows of a CSV, JSONL or Parquet file, whose column `key` is read by `value`. Raises a
    CombinedError with every bad row: one without a case, one of the `routes` or a value, and a
    second one of the same answer."""
    problems = Problems(skip_bad=False, stage=section_key.partition(".")[0])
    table = read_table(section.path, problems, section)
    columns = find_columns(table, section, ["case_id", "route", key], section_key)
    found: dict[tuple[str, Route], Said[Value]] = {}
    for row in table.rows:
        cells = Cells(row, columns)
        case_id, route, said = cells.filled("case_id"), _route(cells, routes), value(cells)
        if not cells.found and case_id is None:
            cells.refuse("case_id", RejectReason.MISSING_FIELD, "is blank", "a case's id")
        if not cells.found and said is None:
            cells.refuse(key, RejectReason.MISSING_FIELD, "is blank", "a value")
        if cells.found or case_id is None or route is None or said is None:
            problems.refuse(*cells.found, raw=row.raw)
            continue
        earlier = found.get((case_id, route))
        if earlier is not None:
            what = f"tells of {route.value} of {case_id!r} again, after {earlier.place}"
            problem = Problem(RejectReason.DUPLICATE, row.place, what, "one row a case and route")
            problems.refuse(problem, raw=row.raw)
            continue
        found[case_id, route] = Said(case_id, route, said, row.place)
    problems.stop(str(section.path))
    return tuple(found.values())


def check_known(said: Sequence[Said[Value]], cases: Collection[str], path: Path) -> None:
    """Raises a CombinedError where something is said of cases that the run doesn't have."""
    problems = Problems(skip_bad=False, stage=str(path))
    for each in said:
        if each.case_id not in cases:
            what = f"tells of {each.case_id!r}, of which there is no case"
            accepted = "a case_id as in cases/rows.jsonl"
            problems.refuse(Problem(RejectReason.SCORE_WITHOUT_CASE, each.place, what, accepted))
    problems.stop(str(path))


def missing_table(section: PeoplesTable | None, key: str) -> list[InputError]:
    """An error where the recipe names such a file and it isn't there."""
    if section is None or section.path.is_file():
        return []
    accepted = "a table as CSV, JSONL or Parquet"
    return [InputError(str(section.path), "no such file", accepted, f"mend {key}.path")]


def _route(cells: Cells, routes: Sequence[Route]) -> Route | None:
    name = (cells.filled("route") or "").upper()
    if name in routes:
        return Route(name)
    if not cells.found:
        what = f"is {shown(cells.value('route'))}"
        cells.refuse("route", RejectReason.MISSING_FIELD, what, " or ".join(routes))
    return None
