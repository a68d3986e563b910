"""calibrate: the temperature of a router's p_lc and the threshold on it, from the validation split.

Both are measured again on the split that is evaluated, where nothing was fitted.
"""

from __future__ import annotations

from prerouter.core.records import (
    Decision,
    Label,
    PairedScore,
    RoutingCase,
    Split,
    SplitAssignment,
)
from prerouter.measures.tuning import calibrate
from prerouter.runs.stage import Stage, StageRun


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, run.recipe.calibrate
    assert section is not None
    side = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    cases: dict[Split, list[RoutingCase]] = {section.split: []}
    if recipe.evaluate:
        cases[recipe.evaluate.split] = []
    for case in run.read("cases/rows.jsonl", RoutingCase):
        if side[case.question_id] is section.split:
            if recipe.learning_side(case, section.split) is section.split:
                cases[section.split].append(case)
        elif side[case.question_id] in cases:
            cases[side[case.question_id]].append(case)
    run.progress.start("calibrate", None)
    done = calibrate(
        section,
        [d for d in run.read("route/rows.jsonl", Decision) if d.router == section.router],
        list(run.read("label/rows.jsonl", Label)),
        list(run.read(recipe.scores_file, PairedScore)),
        cases,
    )
    run.write("rows.jsonl", [done])
    chosen = done.threshold
    run.report["temperature"] = done.temperature.temperature
    run.report["threshold"] = chosen.point.model_dump(mode="json", exclude_none=True)
    run.report["notes"] = [
        note for note in (done.temperature.note, chosen.note, chosen.caution) if note
    ]
    run.report["expected calibration error"] = {
        point.split.value: {
            "before": point.before.ece_equal_mass,
            "after": point.after.ece_equal_mass,
            "n": point.before.n,
            "undecided": point.undecided,
        }
        for point in done.measured
    }


STAGE = Stage(
    name="calibrate",
    sections=lambda recipe: {
        **recipe.unseen,
        "calibrate": recipe.calibrate,
        "evaluate.split": recipe.evaluate.split if recipe.evaluate else None,
    },
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/split.jsonl",
        "label/rows.jsonl",
        "route/rows.jsonl",
        recipe.scores_file,
    ),
    run=_run,
    packages=("numpy", "scipy"),
)
