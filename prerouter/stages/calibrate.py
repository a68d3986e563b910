"""calibrate: the temperature of each router's p_lc and the threshold on it, from the validation
split.

Both are measured again on the split that is evaluated, where nothing was fitted.
"""

from __future__ import annotations

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.records import (
    Decision,
    Label,
    PairedScore,
    Reject,
    RoutingCase,
    Split,
    SplitAssignment,
)
from prerouter.measures.tuning import Calibrated, calibrate
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
    run.progress.start("calibrate", len(section.routers))
    decisions: dict[str, list[Decision]] = {router: [] for router in section.routers}
    for decision in run.read("route/rows.jsonl", Decision):
        if decision.router in decisions:
            decisions[decision.router].append(decision)
    labels = list(run.read("label/rows.jsonl", Label))
    scores = list(run.read(recipe.scores_file, PairedScore))
    rows: list[Calibrated] = []
    refused: list[StageError] = []
    rejects: list[Reject] = []
    for router, given in decisions.items():
        try:
            rows.append(calibrate(section, router, given, labels, scores, cases))
        except StageError as why:
            place = f"calibrate, {router}"
            error = StageError(place, why.problem, why.accepted, why.next_step)
            refused.append(error)
            rejects.append(
                Reject(stage="calibrate", key=router, reason="not_calibrated", detail=error.line)
            )
        run.progress.advance()
    if not rows:
        raise CombinedError(refused)
    run.write("rows.jsonl", rows)
    run.write("rejects.jsonl", rejects)
    for done in rows:
        run.report[done.router] = _told(done)
    for reject in rejects:
        run.report[reject.key] = {"refused": reject.detail}
        run.progress.note(f"{reject.key} stays uncalibrated: {reject.detail}")


def _told(done: Calibrated) -> dict[str, object]:
    chosen = done.threshold
    return {
        "temperature": done.temperature.temperature,
        "threshold": chosen.point.model_dump(mode="json", exclude_none=True),
        "notes": [note for note in (done.temperature.note, chosen.note, chosen.caution) if note],
        "expected calibration error": {
            point.split.value: {
                "before": point.before.ece_equal_mass,
                "after": point.after.ece_equal_mass,
                "n": point.before.n,
                "undecided": point.undecided,
            }
            for point in done.measured
        },
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
