"""Rows of the paper's Table 3, printed from paired counts that reproduce them by construction.

Pre-Route (Chen et al., 2026, arXiv 2605.10235), LaRA, answer model Qwen3-235B without thinking.
"""

from __future__ import annotations

import pytest

from prerouter.measures.routing import Measure, RoutingRow, routing_table
from prerouter.reporting.sections.routing import routing
from prerouter.reporting.tables import render_markdown
from tests.measures.matched import Evaluation, evaluation
from tests.reporting.made import material

# QA, LC rate and accuracy as the paper prints them.
PRINTED = {
    "always_lc": ("3.46", None, "0.34"),
    "always_rag": ("3.32", None, "0.66"),
    "self_route": ("3.39", "41.1", "0.56"),
    "student": ("3.46", "24.6", "0.74"),
}


def table_3() -> Evaluation:
    """2,000 cases graded 0 to 4. LC gains a point on 680 (0.34), loses one on 400, and ties on 920.

    Scores of RAG add up to 6,640 (3.32) and those of LC to 280 more (3.46). Of Self-Route's 822 LC
    calls (41.1%) 311 gain and 171 lose: right on 311 + 1,320 - 511 = 1,120 (0.56), QA 6,780 (3.39).
    Of Pre-Route's 492 (24.6%) 326 gain and 46 lose: right on 326 + 1,320 - 166 = 1,480 (0.74), QA
    6,920 (3.46).
    """
    kinds = [(3, 4)] * 680 + [(4, 3)] * 400 + [(4, 4)] * 240 + [(3, 3)] * 680

    def calls(gain: int, lose: int, tie: int) -> str:
        parts = ((gain, 680), (lose, 400), (tie, 920))
        return "".join("L" * some + "R" * (of - some) for some, of in parts)

    return evaluation(
        [(rag / 4, lc / 4) for rag, lc in kinds],
        {
            "always_lc": "L" * 2000,
            "always_rag": "R" * 2000,
            "self_route": calls(311, 171, 340),
            "student": calls(326, 46, 120),
        },
    )


def graded(made: Evaluation) -> Evaluation:
    """The same on the judge's scale, 0 to 4."""
    scores = [
        score.model_copy(
            update={
                "high": 4.0,
                "arms": {
                    route: arm.model_copy(update={"score": 4 * (arm.score or 0.0)})
                    for route, arm in score.arms.items()
                },
            }
        )
        for score in made.scores
    ]
    return Evaluation(made.decisions, made.labels, scores, made.cases)


@pytest.fixture(scope="module")
def made() -> Evaluation:
    return graded(table_3())


@pytest.fixture(scope="module")
def rows(made: Evaluation) -> list[RoutingRow]:
    return routing_table(
        made.decisions, made.labels, made.scores, made.cases, resamples=100, seed=1
    )


@pytest.mark.parametrize("router", PRINTED)
def test_the_table_prints_the_papers_row(rows: list[RoutingRow], router: str) -> None:
    qa, lc_rate, accuracy = PRINTED[router]
    line = next(
        line for line in render_markdown(rows).splitlines() if line.startswith(f"| {router} ")
    )
    cells = [cell.strip().split(" ")[0] for cell in line.strip("|").split("|")]
    assert cells[1] == f"{qa}0"
    assert lc_rate is None or cells[2] == f"{lc_rate}%"
    assert cells[3] == f"{100 * float(accuracy):.1f}%"


@pytest.mark.parametrize("router", PRINTED)
def test_the_page_shows_the_papers_row(made: Evaluation, router: str) -> None:
    table = routing(material(made)).parts[0]
    assert table.kind == "table"
    headings = [column.heading for column in table.columns]
    row = next(row for row in table.rows if row[0].text == router)
    cells = dict(zip(headings, row, strict=True))
    qa, lc_rate, accuracy = PRINTED[router]
    assert cells["QA"].text == f"{qa}0"
    assert lc_rate is None or cells["LC rate"].text == f"{lc_rate}%"
    assert cells["Accuracy"].text == f"{100 * float(accuracy):.1f}%"
    assert cells["Cases"].value == 2000


def test_a_case_less_prints_another_row(made: Evaluation) -> None:
    """The fixture is tight: one decision the other way shows."""
    student = list(made.decisions["student"])
    last = student[-1].model_copy(update={"route": "LC"})
    changed = {**made.decisions, "student": [*student[:-1], last]}
    rows = routing_table(changed, made.labels, made.scores, made.cases, resamples=100)
    row = next(row for row in rows if row.router == "student")
    assert row.measures[Measure.LC_RATE].value == pytest.approx(0.2465)
