"""classify: labels to a student with a classification head, which writes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prerouter.core.records import Label, RoutingCase, Split, SplitAssignment, StudentMode
from prerouter.engines.embedded import resolve_model
from prerouter.prompts.render import render_student
from prerouter.recipe.recipe import Recipe
from prerouter.runs.model_files import list_model_files
from prerouter.runs.stage import Stage, StageRun
from prerouter.training.classifier import LabelledPrompt, train_classifier
from prerouter.training.resume import MODEL_DIR
from prerouter.training.student_files import lost_student, student_inputs


def labelled_prompts(
    labels: Iterable[Label],
    cases: Mapping[str, RoutingCase],
    sides: Mapping[str, Split],
    recipe: Recipe,
) -> dict[Split, list[LabelledPrompt]]:
    """What is learnt from, by split, in the order of the labels: every labelled case there is."""
    section = recipe.classify
    assert section is not None
    found: dict[Split, list[LabelledPrompt]] = {split: [] for split in Split}
    for label in labels:
        case = cases[label.case_id]
        prompt = render_student(case, section.prompt, section.metadata, StudentMode.DECIDE)
        side = recipe.learning_side(case, sides[case.question_id])
        found[side].append(LabelledPrompt(case.case_id, prompt, label.route))
    return found


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, run.recipe.classify
    assert section is not None
    cases = {case.case_id: case for case in run.read(recipe.cases_file, RoutingCase)}
    sides = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    rows = labelled_prompts(run.read("label/rows.jsonl", Label), cases, sides, recipe)
    report = train_classifier(
        rows[Split.TRAIN],
        rows[Split.VALIDATION],
        section,
        resolve_model(section.model),
        run.folder,
        recipe.seed,
        recipe.name,
        run.progress,
    )
    if not run.leads:
        return
    run.write("rejects.jsonl", report.rejects)
    run.write("rows.jsonl", list_model_files(run.folder / MODEL_DIR))
    run.model, run.revision = section.model, section.revision
    run.report.update(report.model_dump(mode="json", exclude={"rejects"}))


STAGE = Stage(
    name="classify",
    sections=lambda recipe: {"classify": recipe.classify, **recipe.unseen},
    parents=lambda recipe: (recipe.cases_file, "cases/split.jsonl", "label/rows.jsonl"),
    run=_run,
    inputs=lambda recipe: student_inputs(recipe.classify),
    lost=lambda recipe: lost_student(recipe.run_dir / "classify"),
    packages=("torch", "transformers", "peft", "accelerate"),
    shared=True,
)
