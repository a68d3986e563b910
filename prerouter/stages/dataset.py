"""dataset: the traces as Parquet files with a report and a card, ready for the Hub."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from prerouter.core.errors import StageError
from prerouter.core.records import (
    Label,
    MetadataSetting,
    Reference,
    Reject,
    Route,
    RoutingCase,
    Split,
    SplitAssignment,
    Trace,
)
from prerouter.measures.traces import NO_PART, JudgedTrace, TraceReport, report_traces, trace_key
from prerouter.prompts.render import StudentForm, prompt_hash
from prerouter.prompts.trace import TraceError
from prerouter.publishing.dataset import DatasetSummary, TeacherSampling, finish_dataset
from prerouter.publishing.names import data_name, measure_name, plain_name, teacher_name
from prerouter.publishing.shards import (
    Config,
    DatasetWriter,
    SplitCount,
    case_columns,
    example_row,
    trace_row,
)
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.teach import PromptPart
from prerouter.runs.manifest import Manifest, installed_versions, lineage
from prerouter.runs.model_files import list_model_files, lost_model_files
from prerouter.runs.rows import read_lines
from prerouter.runs.stage import Stage, StageRun
from prerouter.sources.problems import Problems, RejectReason
from prerouter.sources.traces import read_traces
from prerouter.training.examples import make_example


@dataclass(frozen=True)
class ExampleForm:
    """How the examples' prompts and completions are written."""

    prompt: StudentForm
    metadata: MetadataSetting
    without: tuple[PromptPart, ...]


@dataclass(frozen=True)
class KnownCases:
    """What is known of cases by case id, and of questions by question id."""

    cases: Mapping[str, RoutingCase]
    labels: Mapping[str, Route]
    sides: Mapping[str, Split]
    levels: Mapping[str, str]


def example_form(recipe: Recipe) -> ExampleForm:
    """As the student is trained, where one is; else by `dataset.prompt` and the teacher's."""
    section = recipe.dataset
    assert section is not None
    without = recipe.teach.prompt.without if recipe.teach else ()
    if recipe.train:
        return ExampleForm(recipe.train.prompt, recipe.train.metadata, without)
    metadata = recipe.teach.prompt.metadata if recipe.teach else MetadataSetting.FULL
    return ExampleForm(section.prompt or "guided", metadata, without)


def write_traces(
    judged: Iterator[tuple[Trace, str | None]],
    known: KnownCases,
    form: ExampleForm,
    writer: DatasetWriter,
) -> Iterator[JudgedTrace]:
    """Put each trace, given with the reason that refused it (None where it is kept), into the
    writer, and give it on with what is known of its case. One of no known case is given on only.
    """
    for trace, refused in judged:
        case = known.cases.get(trace.case_id)
        label = known.labels.get(trace.case_id)
        if case is None:
            yield JudgedTrace(trace, None, refused, {})
            continue
        side, level = known.sides[case.question_id], known.levels.get(case.question_id)
        columns = case_columns(case, level, label)
        if refused is None:
            try:
                example = make_example(case, trace, side, form.prompt, form.metadata, form.without)
            except TraceError:
                # The filter knows the form only where a student is trained.
                refused = "wrong_form"
            else:
                writer.add(Config.EXAMPLES, side, example_row(columns, trace, example))
        writer.add(Config.TRACES, side, trace_row(columns, case, trace, refused))
        groups = {
            "all": "all",
            "teacher": trace.teacher,
            "label": label.value if label else "unknown",
            "level": level or "unknown",
            "answer_model": case.answer_model.name,
            "sample": str(trace.sample),
        }
        yield JudgedTrace(trace, None if refused in NO_PART else label, refused, groups)


def _judged(run: StageRun) -> Iterator[tuple[Trace, str | None]]:
    """All traces that `filter` read, in their order, each with what it said of it."""
    recipe = run.recipe
    own = recipe.filter.traces if recipe.filter else None
    # What the filter was told to skip is skipped here as well.
    traces = (
        read_traces(own, Problems(skip_bad=True))
        if own
        else read_lines(recipe.run_dir / "teach" / "rows.jsonl", Trace)
    )
    kept = {trace_key(trace) for trace in run.read("filter/rows.jsonl", Trace)}
    reasons: dict[str, str] = {}
    if (recipe.run_dir / "filter" / "rejects.jsonl").exists():
        reasons = {each.key: each.reason for each in run.read("filter/rejects.jsonl", Reject)}
    for number, (trace, _) in enumerate(traces, start=1):
        run.progress.advance()
        key = trace_key(trace)
        # A key that stands twice is known by its number.
        refused = reasons.get(f"{key}#{number}") or (None if key in kept else reasons.get(key))
        if refused is None and key not in kept:
            raise StageError(
                "dataset", f"filter tells nothing of {key}", next_step="run filter with --force"
            )
        yield trace.model_copy(update={"teacher": plain_name(trace.teacher)}), refused


def summarise(
    recipe: Recipe,
    manifests: Mapping[str, Manifest],
    splits: tuple[SplitCount, ...],
    report: TraceReport,
    answer_models: set[str],
) -> DatasetSummary:
    """What the card says, every figure from a manifest, the report or the recipe."""
    section, form = recipe.dataset, example_form(recipe)
    assert section is not None
    written = sum(each.rows for each in splits if each.config is Config.TRACES)
    return DatasetSummary(
        title=(section.repo_id or f"{recipe.name} traces").rpartition("/")[2],
        repo_id=section.repo_id,
        router=_router(recipe),
        license=section.license,
        source_license=section.source_license,
        language=section.language,
        source=data_name(recipe),
        teacher=teacher_name(recipe),
        teacher_is_stand_in=recipe.teach is not None and recipe.teach.engine is None,
        sampling=_sampling(recipe, manifests["teach"]) if "teach" in manifests else None,
        recipe=recipe.name,
        seed=recipe.seed,
        prompt_form=form.prompt,
        student_prompt_hash=prompt_hash(form.prompt),
        metadata=form.metadata,
        head_characters=recipe.cases.head_characters,
        rag=recipe.rag,
        answer_models=tuple(sorted(answer_models)),
        metric=measure_name(recipe),
        min_margin=recipe.label.min_margin,
        splits=splits,
        outside=report.traces - written,
        report=report,
        versions=installed_versions("pyarrow"),
    )


def _router(recipe: Recipe) -> str | None:
    """The router's name on the Hub, where it is known and no more private than the data set."""
    publish, section = recipe.publish, recipe.dataset
    assert section is not None
    if publish is None or (publish.private and not section.private):
        return None
    return publish.repo_id


def _sampling(recipe: Recipe, manifest: Manifest) -> TeacherSampling | None:
    section = recipe.teach
    if section is None or section.engine is None:
        return None
    honours = manifest.report.get("honours_schema")
    return TeacherSampling(
        model=plain_name(section.engine.model),
        revision=manifest.revision,
        engine=section.engine.kind,
        paradigm=section.prompt.paradigm,
        without=section.prompt.without,
        metadata=section.prompt.metadata,
        samples=section.samples,
        temperature=section.temperature,
        top_p=section.top_p,
        max_tokens=section.max_tokens,
        thinking=section.thinking,
        honours_schema=honours if isinstance(honours, bool) else None,
    )


def _known(run: StageRun) -> KnownCases:
    return KnownCases(
        cases={case.case_id: case for case in run.read(run.recipe.cases_file, RoutingCase)},
        labels={label.case_id: label.route for label in run.read("label/rows.jsonl", Label)},
        sides={a.question_id: a.split for a in run.read("cases/split.jsonl", SplitAssignment)},
        levels={
            reference.question_id: reference.level
            for reference in run.read("cases/references.jsonl", Reference)
            if reference.level
        },
    )


def _run(run: StageRun) -> None:
    recipe, section = run.recipe, run.recipe.dataset
    assert section is not None
    known, folder = _known(run), recipe.dataset_dir
    manifests = lineage(recipe.run_dir, ("filter",))
    failures = manifests["teach"].rejects if "teach" in manifests else _bad_lines(manifests)
    run.progress.start("dataset", None)
    with DatasetWriter(folder, section.shard_rows) as writer:
        traces = write_traces(_judged(run), known, example_form(recipe), writer)
        report = report_traces(traces, failures)
    answer_models = {case.answer_model.name for case in known.cases.values()}
    finish_dataset(folder, summarise(recipe, manifests, writer.splits, report, answer_models))
    run.write("rows.jsonl", list_model_files(folder))
    run.report["folder"] = str(folder)
    run.report["splits"] = {
        f"{each.config.value}/{each.split.value}": each.rows for each in writer.splits
    }
    run.report["traces"] = report.model_dump(mode="json")
    if not report.kept:
        run.report["warning"] = f"none of {report.traces} traces was kept: there are no examples"
        run.progress.note(f"dataset: warning: {run.report['warning']}")


def _bad_lines(manifests: Mapping[str, Manifest]) -> dict[str, int]:
    """Lines of a file of own traces that the filter skipped."""
    reason = RejectReason.UNREADABLE_LINE.value
    return {name: n for name, n in manifests["filter"].rejects.items() if name == reason}


def _inputs(recipe: Recipe) -> dict[str, str]:
    return {"student prompt": prompt_hash(example_form(recipe).prompt)}


def _parents(recipe: Recipe) -> tuple[str, ...]:
    taught = ("teach/rows.jsonl", "teach/rejects.jsonl") if recipe.teach else ()
    return (
        recipe.cases_file,
        "cases/references.jsonl",
        "cases/split.jsonl",
        "label/rows.jsonl",
        *taught,
        "filter/rows.jsonl",
        "filter/rejects.jsonl",
    )


def _lost(recipe: Recipe) -> list[str]:
    rows: Path = recipe.run_dir / "dataset" / "rows.jsonl"
    return lost_model_files(rows, recipe.dataset_dir)


STAGE = Stage(
    name="dataset",
    # The card tells of all that came before it, and after it of a router's name alone.
    sections=lambda recipe: {
        "recipe": recipe.model_dump(
            mode="json", exclude={"runs_dir", "prices", "route", "evaluate", "publish"}
        ),
        **({"router": name} if (name := _router(recipe)) else {}),
    },
    parents=_parents,
    run=_run,
    inputs=_inputs,
    lost=_lost,
    packages=("pyarrow",),
)
