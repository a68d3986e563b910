"""Calibrated routers in the report, beside what they were before."""

from __future__ import annotations

from dataclasses import replace

import pytest
from matplotlib.figure import Figure as Canvas

from prerouter.core.records import Reject, Split
from prerouter.measures.tuning import calibrate, tune
from prerouter.recipe.calibrate import CalibrateSection
from prerouter.reporting.contents import Figure, Table
from prerouter.reporting.material import Material
from prerouter.reporting.sections.calibration import calibration_of
from prerouter.reporting.sections.plane import plane
from tests.measures.matched import Evaluation, evaluation
from tests.reporting.made import material

N = 60
FOUND = ("student_decide", "decision_tree")


@pytest.fixture
def made() -> Material:
    """Two routers that were calibrated, one that could not be, one that was not to be."""
    given = evaluation(
        [(0.2, 0.8) if i % 3 == 0 else (0.6, 0.4) for i in range(N)],
        dict.fromkeys((*FOUND, "classifier", "random_forest"), "R" * N),
        p_lc={
            name: [((i * step) % 10) / 10 + 0.05 for i in range(N)]
            for name, step in zip(
                (*FOUND, "classifier", "random_forest"), (1, 3, 7, 9), strict=True
            )
        },
    )
    section = CalibrateSection(min_cases=4, routers=(*FOUND, "classifier"))
    cases = {Split.VALIDATION: given.cases}
    done = [
        calibrate(section, name, given.decisions[name], given.labels, given.scores, cases)
        for name in FOUND
    ]
    tuned = {
        f"{one.router}_tuned": tune(
            given.decisions[one.router],
            f"{one.router}_tuned",
            one.temperature.temperature,
            one.threshold.point.threshold,
        )
        for one in done
    }
    all_of_them = {**given.decisions, **tuned}
    found = material(Evaluation(all_of_them, given.labels, given.scores, given.cases))
    return replace(
        found,
        recipe=found.recipe.model_copy(update={"calibrate": section}),
        calibrated=done,
        uncalibrated=[
            Reject(stage="calibrate", key="classifier", reason="not_calibrated", detail="why so")
        ],
    )


def test_before_and_after_stand_in_one_panel(made: Material) -> None:
    section = calibration_of(made)
    (figure,) = [part for part in section.parts if isinstance(part, Figure)]
    canvas = Canvas()
    figure.paint(canvas)
    shown_axes = [axes for axes in canvas.axes if axes.get_visible()]
    lines = {axes.get_title(): len(axes.collections) for axes in shown_axes}
    shown = [text.get_text() for text in canvas.legends[0].get_texts()]
    assert lines == {"student_decide": 2, "decision_tree": 2, "classifier": 1, "random_forest": 1}
    assert shown == ["as the router gives it", "calibrated"]
    scores = next(p for p in section.parts if isinstance(p, Table) and p.name == "calibration")
    assert {row[0].text for row in scores.rows} == set(made.routers)


def test_each_is_told_in_words_and_so_is_one_that_was_refused(made: Material) -> None:
    words = calibration_of(made).words
    for name in FOUND:
        assert any(line.startswith(f"{name}_tuned is {name} after its log-odds") for line in words)
    assert "Not calibrated: why so." in words


def test_a_curve_is_not_drawn_twice(made: Material) -> None:
    section = plane([("all", made)])
    assert any(
        line.startswith("Curves: student_decide, decision_tree, classifier, random_forest,")
        for line in section.words
    )
    points = next(p for p in section.parts if isinstance(p, Table) and p.name == "plane-points")
    assert "student_decide_tuned" in {row[0].text for row in points.rows}
