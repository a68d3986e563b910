"""People's scores: read from any table, and refused with their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError
from prerouter.core.records import ROUTES, Route
from prerouter.recipe.judge import HumanScores, LabelledTriples
from prerouter.sources.people import Said, check_known, read_human_scores, read_triples

HEADER = "case_id,route,score\n"


def read(path: Path, text: str, **names: str) -> tuple[Said[float], ...]:
    path.write_text(text, "utf-8")
    section = HumanScores.model_validate({"path": path, **names})
    return read_human_scores(section, (0.0, 4.0), ROUTES)


def test_csv_and_jsonl_are_read_alike(tmp_path: Path) -> None:
    csv = read(tmp_path / "p.csv", HEADER + "c/1,RAG,3\nc/1,lc,0\nc/2,LC,2.5\n")
    assert [(it.case_id, it.route, it.value) for it in csv] == [
        ("c/1", Route.RAG, 3),
        ("c/1", Route.LC, 0),
        ("c/2", Route.LC, 2.5),
    ]
    rows = [{"id": it.case_id, "arm": it.route.value, "grade": it.value} for it in csv]
    lines = "".join(str(row).replace("'", '"') + "\n" for row in rows)
    jsonl = read(tmp_path / "p.jsonl", lines, case_id="id", route="arm", score="grade")
    assert [(it.case_id, it.route, it.value) for it in jsonl] == [
        (it.case_id, it.route, it.value) for it in csv
    ]


def test_scores_are_of_the_routes_that_the_recipe_has(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text(f"{HEADER}c,LONG_RAG,3\n", "utf-8")
    (said,) = read_human_scores(HumanScores(path=path), (0.0, 4.0), tuple(Route))
    assert said.route is Route.LONG_RAG
    with pytest.raises(CombinedError, match="'LONG_RAG'; RAG or LC"):
        read_human_scores(HumanScores(path=path), (0.0, 4.0), ROUTES)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("c,RAG,5", r"p.csv:2, column score: is '5', off the scale; a number from 0 to 4.*mend it"),
        ("c,RAG,-1", "off the scale"),
        ("c,RAG,good", "is 'good'; a number from 0 to 4"),
        ("c,RAG,nan", "is 'nan'; a number from 0 to 4"),
        ("c,RAG,", "p.csv:2, column score: is blank; a value"),
        ("c,both,3", "p.csv:2, column route: is 'both'; RAG or LC"),
        ("c,,3", "is None; RAG or LC"),
        (",RAG,3", "p.csv:2, column case_id: is blank; a case's id"),
        ("c,RAG,3\nc,rag,3", "p.csv:3: tells of RAG of 'c' again, after .*p.csv:2"),
    ],
)
def test_a_bad_row_is_an_error_with_its_place(tmp_path: Path, rows: str, message: str) -> None:
    with pytest.raises(CombinedError, match=message):
        read(tmp_path / "p.csv", f"{HEADER}{rows}\n")


def test_all_bad_rows_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(CombinedError) as refused:
        read(tmp_path / "p.csv", f"{HEADER}c,RAG,9\nd,RAG,1\ne,no,1\n")
    assert len(refused.value.lines) == 2


def test_a_missing_column_is_told_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(CombinedError, match=r"score.human: \{route: 'routes'\}"):
        read(tmp_path / "p.csv", "case_id,routes,score\nc,RAG,1\n")


def test_scores_of_unknown_cases_are_refused(tmp_path: Path) -> None:
    scores = read(tmp_path / "p.csv", f"{HEADER}c,RAG,1\nd,RAG,1\n")
    check_known(scores, {"c", "d"}, tmp_path)
    with pytest.raises(CombinedError, match=r"p.csv:3: tells of 'd', of which there is no case"):
        check_known(scores, {"c"}, tmp_path)


def test_triples_say_whether_passages_answer(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("case_id,route,answerable\nc,RAG,yes\nc,long_rag,0\nd,RAG,true\n", "utf-8")
    said = read_triples(LabelledTriples(path=path))
    assert [(it.case_id, it.route, it.value) for it in said] == [
        ("c", Route.RAG, True),
        ("c", Route.LONG_RAG, False),
        ("d", Route.RAG, True),
    ]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("c,LC,yes", "column route: is 'LC'; RAG or LONG_RAG"),
        ("c,RAG,perhaps", "column answerable: is 'perhaps'"),
        ("c,RAG,", "column answerable: is blank"),
    ],
)
def test_a_bad_triple_is_an_error_with_its_place(tmp_path: Path, row: str, message: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(f"case_id,route,answerable\n{row}\n", "utf-8")
    with pytest.raises(CombinedError, match=message):
        read_triples(LabelledTriples(path=path))
