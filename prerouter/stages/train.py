"""train: kept traces to examples, examples to a student."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prerouter.core.records import (
    Example,
    RoutingCase,
    Split,
    SplitAssignment,
    Trace,
)
from prerouter.engines.embedded import resolve_model
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.teach import PromptPart
from prerouter.recipe.train import TrainSection
from prerouter.runs.model_files import list_model_files, lost_model_files, model_inputs
from prerouter.runs.stage import Stage, StageRun
from prerouter.training.examples import make_example
from prerouter.training.sft import MODEL_DIR, train_student


def make_examples(
    traces: Iterable[Trace],
    cases: Mapping[str, RoutingCase],
    sides: Mapping[str, Split],
    section: TrainSection,
    without: tuple[PromptPart, ...],
) -> list[Example]:
    """The examples of each kept trace of the training and validation splits, in their order: as
    many of each mode as `section.mix` says. `cases` goes by case id, `sides` by question id."""
    examples = []
    for trace in traces:
        case = cases[trace.case_id]
        side = sides[case.question_id]
        assert side is not Split.TEST, "the filter keeps no test case"
        for mode, count in section.mix.counts.items():
            if count:
                made = make_example(
                    case, trace, side, section.prompt, section.metadata, without, mode
                )
                examples += [made] * count
    return examples


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, run.recipe.train
    assert section is not None
    cases = {case.case_id: case for case in run.read(recipe.cases_file, RoutingCase)}
    sides = {a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)}
    without = recipe.teach.prompt.without if recipe.teach else ()
    examples = make_examples(run.read("filter/rows.jsonl", Trace), cases, sides, section, without)
    run.write("examples.jsonl", examples)
    by_split = {
        split: [example for example in examples if example.split is split]
        for split in (Split.TRAIN, Split.VALIDATION)
    }
    report = train_student(
        by_split[Split.TRAIN],
        by_split[Split.VALIDATION],
        section,
        resolve_model(section.model),
        run.folder,
        recipe.seed,
        recipe.name,
        run.progress,
    )
    run.write("rejects.jsonl", report.rejects)
    run.write("rows.jsonl", list_model_files(run.folder / MODEL_DIR))
    run.model, run.revision = section.model, section.revision
    run.report.update(report.model_dump(mode="json", exclude={"rejects"}))


def _inputs(recipe: Recipe) -> dict[str, str]:
    section = recipe.train
    assert section is not None
    return {"student prompt": prompt_hash(section.prompt), **model_inputs(section.model)}


def _lost(recipe: Recipe) -> list[str]:
    folder = recipe.run_dir / "train"
    return lost_model_files(folder / "rows.jsonl", folder / MODEL_DIR)


STAGE = Stage(
    name="train",
    sections=lambda recipe: {
        "train": recipe.train,
        "teach.prompt.without": list(recipe.teach.prompt.without) if recipe.teach else [],
    },
    parents=lambda recipe: (recipe.cases_file, "cases/split.jsonl", "filter/rows.jsonl"),
    run=_run,
    inputs=_inputs,
    lost=_lost,
    packages=("torch", "transformers", "trl", "peft", "accelerate"),
)
