"""evaluate: the routing table of one split and the report, from decisions, labels and scores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from prerouter.core.errors import InputError, StageError, first_mistake
from prerouter.core.records import (
    Answer,
    Decision,
    Label,
    PairedScore,
    Reference,
    Reject,
    Route,
    RoutingCase,
    SplitAssignment,
)
from prerouter.measures.importances import IMPORTANCES, Importances
from prerouter.measures.routing import RoutingRow, routing_table
from prerouter.measures.tuning import Calibrated, tune
from prerouter.recipe.prices import PriceTable, load_prices
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import EvaluateSection
from prerouter.reporting.material import Material
from prerouter.reporting.report import PAGE, write_report
from prerouter.reporting.sections.probes import missing_probes
from prerouter.reporting.sections.studies import missing_studies
from prerouter.reporting.tables import render_markdown, table_json
from prerouter.runs.manifest import MANIFEST, lineage, write_json
from prerouter.runs.rows import file_sha256
from prerouter.runs.stage import Stage, StageRun
from prerouter.sources.people import check_known, missing_table, read_triples

TABLE_JSON = "table.json"
TABLE_MARKDOWN = "table.md"
REPORT = "report"


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
    calibrated: list[Calibrated] = []
    if run.recipe.calibrate:
        calibrated += run.read("calibrate/rows.jsonl", Calibrated)
        for done in calibrated:
            name = run.recipe.calibrate.tuned[done.router]
            decisions[name] = tune(
                decisions[done.router],
                name,
                done.temperature.temperature,
                done.threshold.point.threshold,
            )
    run.progress.start("evaluate", None)
    labels = list(run.read("label/rows.jsonl", Label))
    scores = list(run.read(run.recipe.scores_file, PairedScore))
    rows = routing_table(
        decisions,
        labels,
        scores,
        cases,
        fallback=section.fallback,
        resamples=section.resamples,
        confidence=section.confidence,
        seed=run.recipe.seed,
        min_cases=section.min_cases,
        unseen_models=run.recipe.split.unseen_models,
    )
    write_json(run.folder / TABLE_JSON, {"split": section.split.value, "rows": table_json(rows)})
    (run.folder / TABLE_MARKDOWN).write_text(render_markdown(rows), encoding="utf-8")
    run.write("rows.jsonl", rows)
    run.report["split"] = section.split.value
    run.report["cases"] = len(cases)
    run.report["routers"] = list(decisions)
    if section.report:
        _write_report(run, rows, decisions, labels, scores, cases, calibrated)


def _write_report(
    run: StageRun,
    rows: list[RoutingRow],
    decisions: dict[str, list[Decision]],
    labels: list[Label],
    scores: list[PairedScore],
    cases: list[RoutingCase],
    calibrated: list[Calibrated],
) -> None:
    recipe = run.recipe
    assert recipe.evaluate is not None
    run.progress.start("evaluate: report", None)
    wanted = {case.case_id for case in cases}
    prices = _priced(recipe, cases)
    written = write_report(
        run.folder / REPORT,
        Material(
            recipe=recipe,
            section=recipe.evaluate,
            rows=rows,
            decisions=decisions,
            labels=[label for label in labels if label.case_id in wanted],
            scores=[score for score in scores if score.case_id in wanted],
            cases=cases,
            references=list(run.read("cases/references.jsonl", Reference)),
            answers={
                (answer.case_id, answer.route): answer
                for answer in run.read(recipe.answers_file, Answer)
                if answer.case_id in wanted
            },
            prices=prices,
            calibrated=calibrated,
            uncalibrated=list(run.read("calibrate/rejects.jsonl", Reject))
            if recipe.calibrate
            else [],
            manifests=lineage(
                recipe.run_dir, [file.partition("/")[0] for file in _parents(recipe)]
            ),
            importances=[_importances(path) for path in _importance_files(recipe)],
            triples=_triples(recipe.evaluate, run),
        ),
    )
    run.report["report"] = {
        "page": f"{REPORT}/{PAGE}",
        "bytes": written.size,
        "figures": written.figures,
        "files of numbers": written.files_of_numbers,
    }
    if written.note:
        run.report["report"]["note"] = written.note
        run.progress.note(f"evaluate: {written.note}")


def _triples(section: EvaluateSection, run: StageRun) -> dict[tuple[str, Route], bool] | None:
    if section.triples is None:
        return None
    said = read_triples(section.triples)
    known = {case.case_id for case in run.read("cases/rows.jsonl", RoutingCase)}
    check_known(said, known, section.triples.path)
    return {(each.case_id, each.route): each.value for each in said}


def _importance_files(recipe: Recipe) -> list[Path]:
    """Where the routers of the recipe that were fitted on features left what they rest on."""
    routers = recipe.route.routers if recipe.route else ()
    folder = recipe.run_dir / "route" / "routers"
    paths = [folder / name / IMPORTANCES for name in routers]
    return [path for path in paths if path.is_file()]


def _importances(path: Path) -> Importances:
    try:
        return Importances.model_validate_json(path.read_bytes())
    except ValidationError as error:
        accepted, way_on = "what `route` leaves", "run `prerouter route` with --force"
        raise InputError(str(path), first_mistake(error), accepted, way_on) from None


def _priced(recipe: Recipe, cases: Iterable[RoutingCase]) -> PriceTable:
    """The price table, where an answer model without a price of its own has that of the model
    which answers for it."""
    table, _ = load_prices(recipe.prices)
    models = dict(table.models)
    for name in dict.fromkeys(case.answer_model.name for case in cases):
        engine = recipe.answer.engine_of(name) if recipe.answer else None
        if engine and engine.model in models:
            models.setdefault(name, models[engine.model])
    return table.model_copy(update={"models": models})


def _parents(recipe: Recipe) -> tuple[str, ...]:
    calibrated = ("calibrate/rows.jsonl", "calibrate/rejects.jsonl") if recipe.calibrate else ()
    read = (
        "cases/rows.jsonl",
        "cases/split.jsonl",
        "label/rows.jsonl",
        "route/rows.jsonl",
        recipe.scores_file,
        *calibrated,
    )
    if not (recipe.evaluate and recipe.evaluate.report):
        return read
    # Its yield is told where there is one; the routers may have been trained elsewhere.
    filtered = recipe.filter and (recipe.run_dir / "filter" / MANIFEST).exists()
    return (
        *read,
        "cases/references.jsonl",
        recipe.answers_file,
        *(("filter/rows.jsonl",) if filtered else ()),
    )


def _inputs(recipe: Recipe) -> dict[str, str]:
    """Hashes of what the report reads beside the run."""
    section = recipe.evaluate
    if section is None or not section.report:
        return {}
    _, prices = load_prices(recipe.prices)
    for error in (
        *missing_probes(section.probes),
        *missing_studies(section.studies),
        *missing_table(section.triples, "evaluate.triples"),
    ):
        raise error
    said = {"evaluate.triples": file_sha256(section.triples.path)} if section.triples else {}
    return {
        "prices": file_sha256(prices),
        **said,
        **{f"evaluate.probes {path}": file_sha256(path) for path in section.probes},
        **{f"evaluate.studies {path}": file_sha256(path / MANIFEST) for path in section.studies},
        **{path.parent.name: file_sha256(path) for path in _importance_files(recipe)},
    }


def _lost(recipe: Recipe) -> list[str]:
    section = recipe.evaluate
    written = [TABLE_JSON, TABLE_MARKDOWN]
    if section and section.report:
        written.append(f"{REPORT}/{PAGE}")
    paths = [recipe.run_dir / "evaluate" / name for name in written]
    return [f"{path} is gone" for path in paths if not path.exists()]


STAGE = Stage(
    name="evaluate",
    sections=lambda recipe: {"evaluate": recipe.evaluate, **recipe.unseen},
    parents=_parents,
    run=_run,
    inputs=_inputs,
    lost=_lost,
    packages=("numpy", "scipy", "matplotlib"),
)
