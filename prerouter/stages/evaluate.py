"""evaluate: the routing table of one split, from decisions, labels and paired scores."""

from __future__ import annotations

from collections import defaultdict

from prerouter.core.errors import StageError
from prerouter.core.records import Decision, Label, PairedScore, RoutingCase, SplitAssignment
from prerouter.measures.routing import routing_table
from prerouter.measures.tuning import Calibrated, tune
from prerouter.reporting.tables import render_markdown, table_json
from prerouter.runs.manifest import write_json
from prerouter.runs.stage import Stage, StageRun

TABLE_JSON = "table.json"
TABLE_MARKDOWN = "table.md"


def _run(run: StageRun) -> None:
    section = run.recipe.evaluate
    assert section is not None
    side = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    cases = [
        case
        for case in run.read("cases/rows.jsonl", RoutingCase)
        if side[case.question_id] is section.split
    ]
    if not cases:
        raise StageError(
            "evaluate",
            f"the {section.split} split holds no case",
            next_step="bring more questions, or group the split by question",
        )
    wanted = {case.case_id for case in cases}
    decisions: dict[str, list[Decision]] = defaultdict(list)
    for decision in run.read("route/rows.jsonl", Decision):
        if decision.case_id in wanted:
            decisions[decision.router].append(decision)
    if run.recipe.calibrate:
        (calibrated,) = run.read("calibrate/rows.jsonl", Calibrated)
        decisions[run.recipe.calibrate.tuned] = tune(
            decisions[calibrated.router],
            run.recipe.calibrate.tuned,
            calibrated.temperature.temperature,
            calibrated.threshold.point.threshold,
        )
    run.progress.start("evaluate", None)
    rows = routing_table(
        decisions,
        list(run.read("label/rows.jsonl", Label)),
        list(run.read(run.recipe.scores_file, PairedScore)),
        cases,
        fallback=section.fallback,
        resamples=section.resamples,
        confidence=section.confidence,
        seed=run.recipe.seed,
        min_cases=section.min_cases,
    )
    write_json(run.folder / TABLE_JSON, {"split": section.split.value, "rows": table_json(rows)})
    (run.folder / TABLE_MARKDOWN).write_text(render_markdown(rows), encoding="utf-8")
    run.write("rows.jsonl", rows)
    run.report["split"] = section.split.value
    run.report["cases"] = len(cases)
    run.report["routers"] = list(decisions)


STAGE = Stage(
    name="evaluate",
    sections=lambda recipe: {"evaluate": recipe.evaluate},
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "cases/split.jsonl",
        "label/rows.jsonl",
        "route/rows.jsonl",
        recipe.scores_file,
        *(("calibrate/rows.jsonl",) if recipe.calibrate else ()),
    ),
    run=_run,
    lost=lambda recipe: [
        f"{path} is gone"
        for name in (TABLE_JSON, TABLE_MARKDOWN)
        if not (path := recipe.run_dir / "evaluate" / name).exists()
    ],
    packages=("numpy",),
)
