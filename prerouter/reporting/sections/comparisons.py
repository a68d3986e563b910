"""Difference tests between routers on the same cases."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prerouter.measures.comparisons import (
    RESAMPLES,
    Comparison,
    PairedTest,
    PairedTestResult,
    compare_routers,
)
from prerouter.measures.outcomes import Outcomes
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import share
from prerouter.reporting.tables import fixed

_HEADINGS = {
    PairedTest.QA_BOOTSTRAP: "p, QA, bootstrap",
    PairedTest.QA_PAIRED_T: "p, QA, paired t",
    PairedTest.ACCURACY_BOOTSTRAP: "p, accuracy, bootstrap",
    PairedTest.ACCURACY_MCNEMAR: "p, accuracy, McNemar",
}


def comparisons(material: Material) -> Section:
    """Every pair that the recipe names, or every router against the best that is no student."""
    title, outcomes = "Difference tests", material.outcomes
    if outcomes is None:
        return Section("comparisons", title, ["No case has a label: nothing to compare."])
    asked, refused = _asked(material)
    others = [name for name in material.routers if not _is_student(material, name)]
    pairs = pairs_with_the_best(outcomes, material.routers, others) if asked is None else asked
    if not pairs:
        words = ["There are no two routers to compare.", *refused]
        return Section("comparisons", title, words)
    made = compare_routers(
        outcomes,
        pairs,
        confidence=material.section.confidence,
        seed=material.recipe.seed,
        min_cases=material.section.min_cases,
    )
    words = [
        "Differences are the first router less the second, on the same "
        f"{outcomes.n:,} cases. Each p is two-sided and corrected by Holm for "
        f"{len(made)} comparison{'' if len(made) == 1 else 's'}. The bootstrap draws "
        f"{RESAMPLES:,} resamples of documents, whatever evaluate.resamples is, so that a small p "
        "can be told; the t-test and McNemar's exact test take every case for itself, and are too "
        "sure of themselves where a document has many questions."
    ]
    if asked is None:
        words.append(
            f"Compared with {pairs[0][1]}, which has the best QA score on these cases of "
            f"{_among(others)}; evaluate.compare names other pairs."
        )
    if made[0].caution:
        words.append(f"{made[0].caution.capitalize()}.")
    words += refused
    return Section("comparisons", title, words, [_figure(made), _table(made)])


def _asked(material: Material) -> tuple[Sequence[tuple[str, str]] | None, list[str]]:
    """The pairs that the recipe names, if any, less those of a router that could not be calibrated,
    and these in words."""
    asked = material.section.compare
    absent = {material.tuned[reject.key] for reject in material.uncalibrated}
    if asked is None or not absent:
        return asked, []
    left_out = [f"{one} and {other}" for one, other in asked if {one, other} & absent]
    words = [f"Not compared, for want of a calibration: {'; '.join(left_out)}."] if left_out else []
    return [pair for pair in asked if not set(pair) & absent], words


def _is_student(material: Material, router: str) -> bool:
    """Whether it is a student, in whatever mode, tuned or published, or a check of one."""
    recipe = material.recipe
    if router == "pre_route_check":
        return _is_student(material, recipe.checked_router)
    if router.removesuffix("_tuned") == "probe_router":
        # A head on the student's own states, unless another model is named.
        return (
            recipe.train is not None and recipe.route is not None and not recipe.route.probe.model
        )
    published = recipe.route.published if recipe.route else ()
    return router.startswith("student") or router in published


def _among(others: Sequence[str]) -> str:
    if not others:
        return "all routers"
    return f"those that are no student ({', '.join(others)})"


def pairs_with_the_best(
    outcomes: Outcomes, routers: Sequence[str], others: Sequence[str]
) -> list[tuple[str, str]]:
    """Each router against the one of the `others` with the best QA score, the first one of equals.
    Where there are none, against the best of all."""
    among = others or routers
    scores = [round(float(np.mean(outcomes.qa_of(router))), 12) for router in among]
    best = among[int(np.argmax(scores))]
    return [(router, best) for router in routers if router != best]


def _figure(made: Sequence[Comparison]) -> Figure:
    names = [f"{each.one} less {each.other}" for each in made]
    one_other = len({each.other for each in made}) == 1
    said = "; ".join(
        f"{name} {fixed(each.qa.value or 0.0)}" for name, each in zip(names, made, strict=True)
    )
    return Figure(
        name="comparisons",
        title=f"Differences from {made[0].other}" if one_other else "Differences of routers",
        alternative=f"Differences with their intervals; in QA score: {said}. The table has all.",
        size=(8.2, 0.9 + 0.27 * len(made)),
        paint=charts.forest(
            [each.one for each in made] if one_other else names,
            [
                ("QA score", [charts.bar_of(each.qa) for each in made]),
                ("Accuracy", [charts.bar_of(each.accuracy) for each in made]),
            ],
            "Difference (right of 0: the first router is better)",
        ),
    )


def _table(made: Sequence[Comparison]) -> Table:
    return Table(
        name="comparisons",
        caption="Paired differences, with p by Holm's correction",
        columns=[
            Column("Router", numeric=False),
            Column("Against", numeric=False),
            Column("QA difference"),
            Column("Accuracy difference"),
            Column("Cohen's d_z of QA"),
            *(Column(heading) for heading in _HEADINGS.values()),
            Column("Cases"),
        ],
        rows=[
            [
                text_cell(each.one),
                text_cell(each.other),
                measured_cell(each.qa, fixed),
                measured_cell(each.accuracy, share),
                measured_cell(each.cohens_dz, fixed),
                *(_p(each.tests[test]) for test in _HEADINGS),
                count_cell(each.n),
            ]
            for each in made
        ],
    )


def _p(result: PairedTestResult) -> Cell:
    p = result.p_holm
    if p is None:
        return Cell("n/a", None, note=result.note)
    return Cell("< 0.0001" if p < 0.0001 else f"{p:.4f}", p, note=result.note)
