"""route: every router decides every case of the splits asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial

from prerouter.core.protocols import Router
from prerouter.core.records import (
    Decision,
    Label,
    MetadataSetting,
    RoutingCase,
    Split,
    SplitAssignment,
    StudentMode,
)
from prerouter.engines.batches import chunk_of
from prerouter.engines.transformers import TransformersModel
from prerouter.measures.importances import IMPORTANCES
from prerouter.prompts.checks import CHECK_FORMS
from prerouter.prompts.render import prompt_hash
from prerouter.publishing.checkpoint import ROUTER_FILE
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import ClassicalKind, RouterName
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.classifier import ClassifierRouter
from prerouter.routers.fixed import AlwaysLc, AlwaysLongRag, AlwaysRag, TaskMajority
from prerouter.routers.guideline import GuidelineRouter, guideline_hash
from prerouter.routers.importances import permutation_importances
from prerouter.routers.learned import LearnedRouter
from prerouter.routers.probe import HeadSettings, ProbeAbout, ProbedModel, ProbeRouter
from prerouter.routers.skops_file import ABOUT_FILE, read_about
from prerouter.runs.manifest import write_json
from prerouter.runs.model_files import model_inputs
from prerouter.runs.rows import file_sha256
from prerouter.runs.stage import Stage, StageRun
from prerouter.stages.checked_routers import CheckedRouters, turn
from prerouter.training.watch import sample_by_stratum

Pairs = list[tuple[RoutingCase, Label]]


def decision_key(decision: Decision) -> str:
    return f"{decision.router}|{decision.case_id}"


def fit_classical(run: StageRun, kind: ClassicalKind, pairs: Pairs, others: Pairs) -> Router:
    """Fit a baseline on the training labels, and keep it beside the decisions with what it rests
    on, by the labels of the `others` that it decides. It sees the metadata that the student sees,
    where one is trained."""
    recipe = run.recipe
    assert recipe.route is not None
    metadata = recipe.train.metadata if recipe.train else MetadataSetting.FULL
    router = ClassicalRouter(kind, recipe.seed, recipe.route.embedding, metadata).fit(pairs)
    folder = run.folder / "routers" / kind
    router.save(folder)
    found = permutation_importances(router, others, recipe.seed)
    write_json(folder / IMPORTANCES, found.model_dump(mode="json"))
    return router


def fit_probe_router(run: StageRun, pairs: Pairs) -> Router:
    """Fit a head on the prompt states of the student, or of the model that `route.probe` names."""
    train, route = run.recipe.train, run.recipe.route
    assert route is not None
    probe = route.probe
    if probe.model is not None:
        probed = ProbedModel.of(
            probe.model,
            probe.revision,
            route.dtype,
            probe.prompt,
            probe.mode,
            probe.metadata,
            probe.thinking,
        )
    else:
        assert train is not None
        probed = ProbedModel.of(
            str(run.recipe.run_dir / "train" / "model"),
            None,
            route.dtype,
            train.prompt,
            # A guided prompt has the six steps whatever the mode, as the teacher's has.
            train.mix.modes[0] if train.prompt == "compact" else StudentMode.EXPLAIN,
            train.metadata,
            train.thinking,
        )
    router = ProbeRouter(
        probed,
        batch_size=route.batch_size,
        priced_as=None if probe.model is not None or train is None else train.model,
    )
    settings = HeadSettings(probe.head, probe.layer, probe.c, probe.folds, run.recipe.seed)
    count = probe.max_cases or len(pairs)
    learnt = sample_by_stratum(pairs, lambda pair: pair[1].route, count, run.recipe.seed)
    router.fit(learnt, settings, run.folder / "states")
    router.save(run.folder / "routers" / "probe_router")
    return router


def fit_majority(run: StageRun, pairs: Pairs) -> Router:
    router = TaskMajority.fit(pairs)
    folder = run.folder / "routers"
    folder.mkdir(exist_ok=True)
    write_json(folder / "task_majority.json", router.to_dict())
    return router


def start_student(run: StageRun, name: RouterName) -> Router:
    """The student in one of its modes, or the same model with the same prompt before it has learnt
    anything."""
    train, route = run.recipe.train, run.recipe.route
    assert train is not None
    assert route is not None
    trained = str(run.recipe.run_dir / "train" / "model")
    before = name == "student_before"
    engine = TransformersModel(
        train.model if before else trained,
        revision=train.revision if before else None,
        dtype=route.dtype,
        batch_size=route.batch_size,
    )
    return LearnedRouter(
        name,
        engine,
        train.prompt,
        train.metadata,
        train.thinking,
        route.max_tokens,
        mode=StudentMode.DECIDE if name == "student_decide" else StudentMode.EXPLAIN,
        without=run.recipe.teach.prompt.without if run.recipe.teach else (),
        chunk_size=chunk_of(route.batch_size),
        model=train.model,
    )


def start_classifier(run: StageRun) -> Router:
    """The student with a classification head."""
    section, route = run.recipe.classify, run.recipe.route
    assert section is not None
    assert route is not None
    return ClassifierRouter(
        run.recipe.run_dir / "classify" / "model",
        section.prompt,
        section.metadata,
        max_length=section.max_length,
        batch_size=route.batch_size,
        dtype=route.dtype,
        priced_as=section.model,
    )


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, run.recipe.route
    assert section is not None
    sides = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    labels = {label.case_id: label for label in run.read("label/rows.jsonl", Label)}
    cases = list(run.read(recipe.cases_file, RoutingCase))
    names = [*section.routers, *section.published]
    asked = {
        name: [case for case in cases if sides[case.question_id] in recipe.splits_of(name)]
        for name in names
    }
    pairs = [
        (case, labels[case.case_id])
        for case in cases
        if case.case_id in labels
        and recipe.learning_side(case, sides[case.question_id]) is Split.TRAIN
    ]
    others = [
        (case, labels[case.case_id])
        for case in cases
        if case.case_id in labels and sides[case.question_id] in {*section.splits} - {Split.TRAIN}
    ]
    checked = CheckedRouters(run, cases, sides)
    makers: dict[str, Callable[[], Router]] = {
        **{
            name: partial(
                LearnedRouter.from_pretrained,
                folder,
                name=name,
                dtype=section.dtype,
                batch_size=section.batch_size,
            )
            for name, folder in section.published.items()
        },
        **checked.makers(),
        "always_rag": AlwaysRag,
        "always_long_rag": AlwaysLongRag,
        "always_lc": AlwaysLc,
        "task_majority": lambda: fit_majority(run, pairs),
        "guideline": GuidelineRouter,
        "decision_tree": lambda: fit_classical(run, "decision_tree", pairs, others),
        "random_forest": lambda: fit_classical(run, "random_forest", pairs, others),
        "logistic_regression": lambda: fit_classical(run, "logistic_regression", pairs, others),
        "gradient_boosting": lambda: fit_classical(run, "gradient_boosting", pairs, others),
        "nearest_neighbours": lambda: fit_classical(run, "nearest_neighbours", pairs, others),
        "probe_router": lambda: fit_probe_router(run, pairs),
        "classifier": lambda: start_classifier(run),
        "student_before": lambda: start_student(run, "student_before"),
        "student": lambda: start_student(run, "student"),
        "student_decide": lambda: start_student(run, "student_decide"),
    }
    failures: dict[str, Counter[str]] = {}
    order = [f"{name}|{case.case_id}" for name in asked for case in asked[name]]
    with run.log(Decision, decision_key, due=order) as log:
        for name in sorted(names, key=turn):
            due = [case for case in asked[name] if f"{name}|{case.case_id}" not in log.done]
            run.progress.start(f"route: {name}", len(due))
            for decision in makers[name]().route(due) if due else ():
                log.append(decision)
                run.progress.advance()
        log.sort(order)
    for decision in run.read("route/rows.jsonl", Decision):
        counts = failures.setdefault(decision.router, Counter())
        counts[decision.route.value if decision.route else str(decision.failure)] += 1
    run.report |= checked.told()
    run.report["training_pairs"] = len(pairs)
    folder = run.folder / "routers" / "probe_router"
    if "probe_router" in names and (folder / ABOUT_FILE).is_file():
        run.report["probe_router_learnt_from"] = read_about(folder, ProbeAbout).trained_on
    run.report["decisions"] = {name: dict(sorted(c.items())) for name, c in failures.items()}
    if recipe.train:
        run.model = recipe.train.model


def _read_after_retrieval(recipe: Recipe) -> tuple[str, ...]:
    own = ("cases/references.jsonl", "cases/documents.jsonl")
    return (*own, recipe.answers_file, recipe.scores_file)


def _inputs(recipe: Recipe) -> dict[str, str]:
    inputs = {"guideline": guideline_hash()}
    for name, folder in recipe.route.published.items() if recipe.route else ():
        inputs[f"router {name}"] = file_sha256(folder / ROUTER_FILE)
    if recipe.route and "probe_router" in recipe.route.routers and recipe.route.probe.model:
        inputs |= model_inputs(recipe.route.probe.model)
        inputs["probed prompt"] = prompt_hash(recipe.route.probe.prompt)
    if recipe.checked_after_retrieval:
        inputs |= {f"prompt {form}": prompt_hash(form) for form in CHECK_FORMS}
    if recipe.classify and _classifies(recipe):
        inputs["classifier prompt"] = prompt_hash(recipe.classify.prompt)
    if recipe.train:
        inputs["student prompt"] = prompt_hash(recipe.train.prompt)
        if recipe.route and "student_before" in recipe.route.routers:
            inputs |= model_inputs(recipe.train.model)
    return inputs


def _classifies(recipe: Recipe) -> bool:
    return recipe.route is not None and "classifier" in recipe.route.routers


STAGE = Stage(
    name="route",
    sections=lambda recipe: {
        **recipe.unseen,
        "route": recipe.route,
        "train": recipe.train,
        "classify": recipe.classify if _classifies(recipe) else None,
        "calibrate.routers": sorted(recipe.calibrate.routers) if recipe.calibrate else None,
        "calibrate.split": recipe.calibrate.split.value if recipe.calibrate else None,
    },
    parents=lambda recipe: (
        recipe.cases_file,
        "cases/split.jsonl",
        "label/rows.jsonl",
        *(("train/rows.jsonl",) if recipe.train else ()),
        *(("classify/rows.jsonl",) if _classifies(recipe) else ()),
        *(_read_after_retrieval(recipe) if recipe.checked_after_retrieval else ()),
    ),
    run=_run,
    inputs=_inputs,
    packages=("torch", "transformers", "scikit-learn", "skops"),
    # An earlier version's `calibrate.router` named one.
    goes_on=("calibrate.routers", "calibrate.router", "calibrate.split"),
)
