"""train: kept traces to examples, examples to a student."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import StageError
from prerouter.core.records import (
    Decision,
    Example,
    Label,
    RoutingCase,
    Split,
    SplitAssignment,
    Trace,
)
from prerouter.engines.embedded import resolve_model
from prerouter.engines.transformers import TransformersModel
from prerouter.measures.traces import trace_key
from prerouter.prompts.trace import TraceError
from prerouter.recipe.recipe import STUDENTS, Recipe
from prerouter.recipe.route import RouteSection
from prerouter.recipe.teach import PromptPart
from prerouter.recipe.train import TrainSection
from prerouter.routers.learned import LearnedRouter
from prerouter.runs.model_files import list_model_files
from prerouter.runs.stage import Stage, StageRun
from prerouter.training.examples import make_example
from prerouter.training.resume import MODEL_DIR
from prerouter.training.sft import train_student
from prerouter.training.student_files import lost_student, student_inputs
from prerouter.training.watch import Watch, sample_by_stratum

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def make_examples(
    traces: Iterable[Trace],
    cases: Mapping[str, RoutingCase],
    sides: Mapping[str, Split],
    section: TrainSection,
    without: tuple[PromptPart, ...],
) -> list[Example]:
    """The examples of each kept trace of the training and validation splits, in their order: as
    many of each mode as `section.mix` says. `cases` goes by case id, `sides` by question id. Raises
    StageError for a trace that isn't of the student's form."""
    examples = []
    for trace in traces:
        case = cases[trace.case_id]
        side = sides[case.question_id]
        assert side is not Split.TEST, "the filter keeps no test case"
        for mode, count in section.mix.counts.items():
            if count:
                try:
                    made = make_example(
                        case, trace, side, section.prompt, section.metadata, without, mode
                    )
                except TraceError as error:
                    raise StageError(
                        f"train, trace {trace_key(trace)}",
                        f"has another form than the student writes: {error}",
                        "traces that `filter` kept for this recipe",
                        "run `prerouter filter` again",
                    ) from None
                examples += [made] * count
    return examples


def trained_as(recipe: Recipe) -> TrainSection | None:
    """`train`, where the mode that is looked at is that of the published student unless told."""
    section = recipe.train
    if section is None or section.watch is None or section.watch.mode:
        return section
    published = STUDENTS[recipe.student]
    if published is section.mix.modes[0]:
        return section  # as the section says by itself
    watch = section.watch.model_copy(update={"mode": published})
    return section.model_copy(update={"watch": watch})


def watch_of(
    recipe: Recipe,
    cases: Mapping[str, RoutingCase],
    sides: Mapping[str, Split],
    labels: Iterable[Label],
) -> Watch | None:
    """What is looked at while the student learns: it decides a sample of the labelled validation
    cases, by the router that it will be and the engine that it will run on."""
    section = trained_as(recipe)
    assert section is not None
    if section.watch is None:
        return None
    mode = section.watch.mode or section.mix.modes[0]
    held_out = [
        label
        for label in labels
        if (case := cases[label.case_id])
        and recipe.learning_side(case, sides[case.question_id]) is Split.VALIDATION
    ]
    sample = sample_by_stratum(
        held_out, lambda label: label.route.value, section.watch.cases, recipe.seed
    )
    looked_at = [cases[label.case_id] for label in sample]
    route = recipe.route or RouteSection(routers=("student",))
    without = recipe.teach.prompt.without if recipe.teach else ()

    def decide(model: Any, tokenizer: PreTrainedTokenizerBase) -> list[Decision]:
        router = LearnedRouter(
            "student",
            TransformersModel.of(model, tokenizer, batch_size=route.batch_size),
            section.prompt,
            section.metadata,
            section.thinking,
            route.max_tokens,
            mode=mode,
            without=without,
        )
        return router.decide(looked_at)

    ideal = {label.case_id: label.route for label in sample}
    return Watch(decide, ideal, section.watch.patience)


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, trained_as(run.recipe)
    assert section is not None
    cases = {case.case_id: case for case in run.read(recipe.cases_file, RoutingCase)}
    sides = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    without = recipe.teach.prompt.without if recipe.teach else ()
    traces = list(run.read("filter/rows.jsonl", Trace))
    examples = make_examples(traces, cases, sides, section, without)
    run.write("examples.jsonl", examples)
    by_split = {
        split: [example for example in examples if example.split is split]
        for split in (Split.TRAIN, Split.VALIDATION)
    }
    decided = {trace.case_id: trace.decision for trace in traces}
    validation = sample_by_stratum(
        by_split[Split.VALIDATION],
        lambda example: f"{decided[example.case_id]} {example.mode}",
        section.validation_examples or len(examples),
        recipe.seed,
    )
    labels = list(run.read("label/rows.jsonl", Label)) if reads_labels(section) else []
    report = train_student(
        by_split[Split.TRAIN],
        validation,
        section,
        resolve_model(section.model),
        run.folder,
        recipe.seed,
        recipe.name,
        run.progress,
        margins={label.case_id: label.margin for label in labels},
        watch=watch_of(recipe, cases, sides, labels),
    )
    if not run.leads:
        return
    run.write("rejects.jsonl", report.rejects)
    run.write("rows.jsonl", list_model_files(run.folder / MODEL_DIR))
    run.model, run.revision = section.model, section.revision
    run.report.update(report.model_dump(mode="json", exclude={"rejects"}))


def reads_labels(section: TrainSection | None) -> bool:
    """Whether training looks at more than the traces that were kept."""
    return section is not None and bool(section.watch or section.weights)


STAGE = Stage(
    name="train",
    sections=lambda recipe: {
        **recipe.unseen,
        "train": trained_as(recipe),
        "teach.prompt.without": list(recipe.teach.prompt.without) if recipe.teach else [],
    },
    parents=lambda recipe: (
        recipe.cases_file,
        "cases/split.jsonl",
        "filter/rows.jsonl",
        *(("label/rows.jsonl",) if reads_labels(recipe.train) else ()),
    ),
    run=_run,
    inputs=lambda recipe: student_inputs(recipe.train),
    lost=lambda recipe: lost_student(recipe.run_dir / "train"),
    packages=("torch", "transformers", "trl", "peft", "accelerate"),
    shared=True,
)
