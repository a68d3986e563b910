"""publish: the student as a folder ready for the Hub, with the measured table on its card."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from typing import Any

from prerouter.core.errors import StageError
from prerouter.core.records import ModelFile, RoutingCase
from prerouter.measures.routing import POOLED, Measure, RoutingRow
from prerouter.measures.tuning import Calibrated
from prerouter.prompts.render import PROMPT_VERSION, prompt_hash
from prerouter.publishing.adapter import ADAPTER_WEIGHTS
from prerouter.publishing.cards import (
    CardData,
    CardMetric,
    CardPicture,
    CardTraining,
    RouterCard,
    render_router_card,
)
from prerouter.publishing.checkpoint import Provenance, RouterConfig, write_router
from prerouter.publishing.names import data_name, measure_name, plain_name, teacher_name
from prerouter.publishing.weights import checkpoint_sha256
from prerouter.recipe.recipe import STUDENTS, Recipe
from prerouter.reporting.tables import render_markdown, table_json
from prerouter.runs.manifest import Manifest, installed_versions, lineage
from prerouter.runs.model_files import list_model_files, lost_model_files
from prerouter.runs.rows import file_sha256
from prerouter.runs.stage import Stage, StageRun
from prerouter.stages.router_reports import emissions_of, figures_hash, reports_of
from prerouter.training.resume import MODEL_DIR
from prerouter.training.sft import ADAPTER_DIR

LIBRARIES = ("torch", "transformers", "trl", "peft")


def router_config(
    recipe: Recipe, teacher: str, parents: dict[str, str], calibrated: Calibrated | None = None
) -> RouterConfig:
    """What the folder has to know to decide as the student did in its run."""
    train, publish = recipe.train, recipe.publish
    assert train is not None
    assert publish is not None
    usual = STUDENTS[recipe.student]
    return RouterConfig(
        prompt_form=train.prompt,
        metadata=train.metadata,
        prompt_version=PROMPT_VERSION,
        prompt_hash=prompt_hash(train.prompt),
        without=recipe.teach.prompt.without if recipe.teach else (),
        head_characters=recipe.cases.head_characters,
        rag=recipe.rag,
        thinking=train.thinking,
        max_tokens=recipe.route.max_tokens if recipe.route else train.max_length,
        modes=(usual, *(mode for mode in train.mix.modes if mode is not usual)),
        temperature=calibrated.temperature.temperature if calibrated else 1.0,
        threshold=calibrated.threshold.point.threshold if calibrated else 0.5,
        fallback=publish.fallback,
        base_model=recipe.base_on_hub or plain_name(train.model),
        base_revision=train.revision,
        teacher=teacher,
        provenance=Provenance(
            recipe=recipe.name,
            seed=recipe.seed,
            parents=parents,
            versions=installed_versions(*LIBRARIES),
        ),
    )


def card_metrics(row: RoutingRow) -> list[CardMetric]:
    """The measured figures of the student, for the Hub's model-index."""
    names = {
        Measure.QA: "QA score of the chosen routes",
        Measure.LC_RATE: "LC rate",
        Measure.ACCURACY: "Route accuracy",
        Measure.BALANCED_ACCURACY: "Balanced route accuracy",
        Measure.LC_RECALL: "LC recall",
        Measure.GAP_RECOVERED: "Oracle gap recovered",
    }
    return [
        CardMetric(type=measure.value, name=name, value=measured.value)
        for measure, name in names.items()
        if (measured := row.measures[measure]).value is not None
    ]


def published_row(recipe: Recipe, rows: Sequence[RoutingRow]) -> RoutingRow:
    """The measured row of the router in the folder: the calibrated one, where its temperature and
    threshold stand in router.json and decide."""
    name: str = recipe.student
    if recipe.calibrate:
        name = recipe.calibrate.tuned.get(name, name)
    return next(row for row in rows if (row.router, row.answer_model) == (name, POOLED))


def make_card(
    recipe: Recipe,
    config: RouterConfig,
    manifests: Mapping[str, Manifest],
    rows: Sequence[RoutingRow],
    cases: Sequence[RoutingCase],
    pictures: Sequence[CardPicture] = (),
) -> RouterCard:
    """The card's context, every figure from a manifest or from the routing table."""
    publish, evaluate = recipe.publish, recipe.evaluate
    assert publish is not None
    assert evaluate is not None
    student = published_row(recipe, rows)
    yielded: dict[str, Any] = manifests["filter"].report["yield"].get("all", {}).get("all", {})
    return RouterCard(
        title=(publish.repo_id or recipe.name).rpartition("/")[2],
        repo_id=publish.repo_id,
        license=publish.license,
        language=publish.language,
        config=config,
        teacher_is_stand_in=recipe.teach is not None and recipe.teach.engine is None,
        training=_training(recipe, manifests["train"]),
        data=CardData(
            name=data_name(recipe),
            traces=_traces(recipe),
            license=recipe.dataset.source_license if recipe.dataset else None,
            answer_models=tuple(sorted({case.answer_model.name for case in cases})),
            metric=measure_name(recipe),
            min_margin=recipe.label.min_margin,
            kept_traces=manifests["filter"].files["rows.jsonl"].rows,
            all_traces=yielded.get("of", 0),
            test_split=evaluate.split.value,
            test_cases=student.n,
            test_documents=student.n_groups,
            unlabelled_cases=student.unlabelled,
        ),
        metrics=tuple(card_metrics(student)),
        table=render_markdown(rows),
        confidence=evaluate.confidence,
        collapsed=student.collapsed is not None,
        base_on_hub=recipe.base_on_hub,
        adapter=publish.adapter,
        calibrated_on=recipe.calibrate.split if recipe.calibrate and config.threshold_for else None,
        pictures=tuple(pictures),
        curves=bool(manifests["train"].report["losses"]),
        emissions=emissions_of(recipe, manifests["train"]),
        environment={"Python": platform.python_version()},
    )


def _traces(recipe: Recipe) -> str | None:
    """The data set of the traces, where both are known by name; a private one's is kept private."""
    dataset, publish = recipe.dataset, recipe.publish
    assert publish is not None
    if dataset is None or (dataset.private and not publish.private):
        return None
    return dataset.repo_id


def _training(recipe: Recipe, manifest: Manifest) -> CardTraining:
    train, report = recipe.train, manifest.report
    assert train is not None
    losses = report["losses"]
    return CardTraining(
        train_examples=report["train_examples"],
        validation_examples=report["validation_examples"],
        refused_examples=sum(manifest.rejects.values()),
        steps=report["steps"],
        epochs=report["epochs"],
        tokens_seen=report["tokens_seen"],
        final_loss=losses[-1]["loss"] if losses else None,
        eval_loss=report["eval_loss"],
        trainable_parameters=report["trainable_parameters"],
        total_parameters=report["total_parameters"],
        learning_rate=report["settings"].get("learning_rate"),
        max_length=train.max_length,
        dtype=train.dtype,
        lora_rank=train.lora.r if train.lora else None,
        seconds=None if report["resumed_from"] else report["seconds"],
        processes=report.get("processes", 1),
        versions=report["versions"],
    )


def own_calibration(run: StageRun) -> Calibrated | None:
    """The student's own: of another router's p_lc the folder takes nothing. StageError where the
    student was to be calibrated and could not be."""
    section = run.recipe.calibrate
    if section is None or "student_decide" not in section.routers:
        return None
    for done in run.read("calibrate/rows.jsonl", Calibrated):
        if done.router == "student_decide":
            return done
    raise StageError(
        "publish",
        "student_decide was not calibrated",
        "a router with the temperature and the threshold that the recipe asks for",
        "calibrate/rejects.jsonl says why; mend that, or leave it out of calibrate.routers (with "
        "train.watch.mode written out, where there is a watch, or the student is trained anew)",
    )


def _run(run: StageRun) -> None:
    recipe, publish = run.recipe, run.recipe.publish
    assert publish is not None
    manifests = lineage(recipe.run_dir, ("train", "evaluate"))
    rows = list(run.read("evaluate/rows.jsonl", RoutingRow))
    parents = {name: found.files["rows.jsonl"].sha256 for name, found in manifests.items()}
    calibrated = own_calibration(run)
    config = router_config(recipe, teacher_name(recipe), parents, calibrated)
    adapter_dir = recipe.run_dir / "train" / ADAPTER_DIR if publish.adapter else None
    if calibrated:
        # Of the student as it was trained, and as it decided what was calibrated on.
        trained = {file.path: file.sha256 for file in run.read("train/rows.jsonl", ModelFile)}
        if adapter_dir is not None and (adapter_dir / ADAPTER_WEIGHTS).is_file():
            trained = {ADAPTER_WEIGHTS: file_sha256(adapter_dir / ADAPTER_WEIGHTS)}
        config = config.model_copy(update={"threshold_for": checkpoint_sha256(trained)})
    reports, pictures = reports_of(recipe, manifests["train"])
    cases = list(run.read("cases/rows.jsonl", RoutingCase))
    card = make_card(recipe, config, manifests, rows, cases, pictures)
    folder = write_router(
        recipe.run_dir / "train" / MODEL_DIR,
        recipe.published_dir,
        config,
        render_router_card(card),
        {"evaluation.json": {"split": card.data.test_split, "rows": table_json(rows)}},
        reports,
        adapter_dir,
    )
    files = list_model_files(folder)
    run.write("rows.jsonl", files)
    run.report["folder"] = str(folder)
    run.report["bytes"] = sum(file.size for file in files)


STAGE = Stage(
    name="publish",
    # The card tells of the whole recipe, but not of where its run lies or what tokens cost.
    sections=lambda recipe: {
        "recipe": recipe.model_dump(mode="json", exclude={"runs_dir", "prices"})
    },
    parents=lambda recipe: (
        "cases/rows.jsonl",
        "train/rows.jsonl",
        *(("calibrate/rows.jsonl",) if recipe.calibrate else ()),
        "evaluate/rows.jsonl",
    ),
    run=_run,
    inputs=figures_hash,
    lost=lambda recipe: lost_model_files(
        recipe.run_dir / "publish" / "rows.jsonl", recipe.published_dir
    ),
    packages=LIBRARIES,
)
