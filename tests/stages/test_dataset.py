"""The data set's folder as its users meet it: by `datasets.load_dataset`, without a network."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from datasets import DatasetDict, load_dataset
from huggingface_hub import DatasetCard

from prerouter.core.errors import CombinedError
from prerouter.core.protocols import Completion, SilentProgress
from prerouter.core.records import (
    ROUTES,
    Label,
    MetadataSetting,
    Rationale,
    Reject,
    Route,
    RoutingCase,
    Split,
    SplitAssignment,
    Step,
    Trace,
)
from prerouter.prompts.trace import format_trace
from prerouter.publishing.dataset import DatasetSummary
from prerouter.recipe.base import validate
from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows, write_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, dataset, filter, label, teach
from prerouter.training.examples import make_example

from .tables import GOLD, MODELS, Scripted, table_recipe

STAGES = (cases.STAGE, label.STAGE, teach.STAGE, filter.STAGE, dataset.STAGE)
SPEC = {"kind": "openai", "model": "/models/teacher-7b", "base_url": "http://127.0.0.1:1/v1"}
QUESTIONS = 40
SHARD_ROWS = 10


def answer(index: int, prompt: str) -> Completion:
    """The ideal route three times of four; every 13th reply is none."""
    number = int(re.findall(r"in part (\d+)", prompt)[-1])
    ideal = Route.LC if number % 2 else Route.RAG
    decision = ideal if index % 4 else next(route for route in ROUTES if route is not ideal)
    steps = {step: f"{step.value} of part {number}" for step in Step}
    trace = format_trace(Rationale(steps=steps, reflection="It stands."), decision)
    text = trace if index % 13 else "I can't tell."
    return Completion(text, "stop", 500 + index, 100, reasoning="thought about it")


def make_recipe(folder: Path, **changes: Any) -> Recipe:
    sections = {
        "teach": {"engine": SPEC, "samples": 2, "max_failed_share": 0.5, "keep_reasoning": True},
        "filter": {},
        "dataset": {
            "license": "cc-by-4.0",
            "source_license": "MIT",
            "prompt": "compact",
            "shard_rows": SHARD_ROWS,
        },
    }
    return table_recipe(folder, QUESTIONS, **(sections | changes))


def run(recipe: Recipe, *, skip_bad: bool = False) -> None:
    for stage in STAGES:
        if stage.name != "teach" or recipe.teach:
            execute(stage, recipe, SilentProgress(), skip_bad=skip_bad)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recipe]:
    recipe = make_recipe(tmp_path_factory.mktemp("dataset"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(teach, "start_engine", lambda _: Scripted(answer, SPEC["model"]))
        run(recipe)
        yield recipe


@pytest.fixture(scope="module")
def loaded(
    recipe: Recipe, tmp_path_factory: pytest.TempPathFactory
) -> tuple[DatasetDict, DatasetDict]:
    """The default configuration, and the traces."""
    cache = str(tmp_path_factory.mktemp("cache"))
    folder = str(recipe.dataset_dir)
    return load_dataset(folder, cache_dir=cache), load_dataset(folder, "traces", cache_dir=cache)


def kept_traces(recipe: Recipe) -> list[Trace]:
    return list(read_rows(recipe.run_dir / "filter" / "rows.jsonl", Trace))


def side_of(recipe: Recipe) -> dict[str, str]:
    sides = {
        each.question_id: each.split.value
        for each in read_rows(recipe.run_dir / "cases" / "split.jsonl", SplitAssignment)
    }
    return {
        case.case_id: sides[case.question_id]
        for case in read_rows(recipe.run_dir / "cases" / "rows.jsonl", RoutingCase)
    }


def test_examples_are_the_kept_traces_on_their_sides(
    recipe: Recipe, loaded: tuple[DatasetDict, DatasetDict]
) -> None:
    examples, _ = loaded
    sides = side_of(recipe)
    expected = Counter(
        (sides[trace.case_id], trace.case_id, trace.sample) for trace in kept_traces(recipe)
    )
    found = Counter(
        (split, row["case_id"], row["sample"]) for split, rows in examples.items() for row in rows
    )
    assert found == expected
    assert set(examples) == {"train", "validation"}


def test_an_example_is_what_a_student_would_be_trained_on(
    recipe: Recipe, loaded: tuple[DatasetDict, DatasetDict]
) -> None:
    [row, *_] = loaded[0]["train"]
    every = {c.case_id: c for c in read_rows(recipe.run_dir / "cases/rows.jsonl", RoutingCase)}
    [trace] = [
        trace
        for trace in kept_traces(recipe)
        if (trace.case_id, trace.sample) == (row["case_id"], row["sample"])
    ]
    case = every[trace.case_id]
    example = make_example(case, trace, Split.TRAIN, "compact", MetadataSetting.FULL)
    assert row["prompt"] == [message.model_dump() for message in example.prompt]
    assert row["completion"] == [message.model_dump() for message in example.completion]
    assert json.loads(row["completion"][0]["content"])["decision"] == row["label"]
    assert row["level"] == ("reasoning" if row["label"] == "LC" else "location")
    assert row["answer_model"] in MODELS
    assert row["teacher"] == "teacher-7b"


def test_every_trace_is_there_with_what_became_of_it(
    recipe: Recipe, loaded: tuple[DatasetDict, DatasetDict]
) -> None:
    _, traces = loaded
    written = list(read_rows(recipe.run_dir / "teach" / "rows.jsonl", Trace))
    rows = [row for split in traces.values() for row in split]
    assert len(rows) == len(written) > 40
    reasons = Counter(row["refused"] for row in rows if not row["kept"])
    refused = read_rows(recipe.run_dir / "filter" / "rejects.jsonl", Reject)
    assert reasons == Counter(reject.reason for reject in refused)
    assert {"disagrees", "enough_for_case"} <= set(reasons)
    assert sum(row["kept"] for row in rows) == len(kept_traces(recipe))
    by_key = {(trace.case_id, trace.sample): trace for trace in written}
    for row in rows:
        trace = by_key[row["case_id"], row["sample"]]
        assert row["decision"] == trace.decision.value
        assert row["efficiency"] == trace.rationale.steps[Step.EFFICIENCY]
        assert row["reasoning"] == trace.reasoning == "thought about it"
        assert row["prompt_tokens"] == trace.prompt_tokens
        assert row["question"].startswith("What is said in part")


def test_cases_without_a_label_have_none(loaded: tuple[DatasetDict, DatasetDict]) -> None:
    rows = [row for split in loaded[1].values() for row in split]
    last = [row for row in rows if row["question_id"] == f"q{QUESTIONS - 1:03}"]
    assert all(row["label"] is None for row in last)
    assert all(row["refused"] == "no_label" for row in last)


def test_no_gold_answer_goes_along(loaded: tuple[DatasetDict, DatasetDict]) -> None:
    for config in loaded:
        for split in config.values():
            assert GOLD not in str(split.to_list())


def test_no_shard_has_more_rows_than_asked_for(recipe: Recipe) -> None:
    rows = {
        path: pq.read_metadata(path).num_rows for path in recipe.dataset_dir.glob("*/*.parquet")
    }
    assert max(rows.values()) == SHARD_ROWS
    train = sorted(path.name for path in rows if path.match("traces/train-*"))
    assert train == [f"train-{number:05}.parquet" for number in range(len(train))]
    assert len(train) > 2


def summary(recipe: Recipe) -> DatasetSummary:
    return DatasetSummary.model_validate_json((recipe.dataset_dir / "report.json").read_bytes())


def test_the_report_counts_what_the_rows_say(
    recipe: Recipe, loaded: tuple[DatasetDict, DatasetDict]
) -> None:
    report = summary(recipe).report
    rows = [row for split in loaded[1].values() for row in split if row["label"]]
    for group in ("answer_model", "level", "label", "teacher", "sample"):
        for each in report.yields_by(group):
            of = [row for row in rows if str(row[group]) == each.value]
            assert each.of == len(of)
            assert each.agree == sum(row["decision"] == row["label"] for row in of)
            assert each.kept == sum(row["kept"] for row in of)
        assert sum(each.of for each in report.yields_by(group)) == len(rows)
    manifest = read_manifest(recipe.run_dir / "teach")
    assert manifest is not None
    assert report.failures == manifest.rejects
    assert report.failures["no_json"] > 0
    assert report.prompt_tokens is not None
    assert report.prompt_tokens.min == min(row["prompt_tokens"] for row in rows)


def test_the_card_says_where_it_comes_from(recipe: Recipe) -> None:
    text = (recipe.dataset_dir / "README.md").read_text("utf-8")
    data = DatasetCard(text).data
    assert data.license == "cc-by-4.0"
    assert [config["config_name"] for config in data.configs] == ["examples", "traces"]
    assert "`teacher-7b`" in text
    assert "/models/" not in text
    for told in ("2 a case, temperature 0.7, top-p 0.95", "MIT", "`mine`, 5", "holds replies"):
        assert told in text
    manifest = read_manifest(recipe.run_dir / "dataset")
    assert manifest is not None
    for count in manifest.report["splits"].values():
        assert f"| {count} |" in text


def test_a_second_run_does_nothing_and_a_lost_shard_is_written_again(recipe: Recipe) -> None:
    def contents() -> dict[Path, bytes]:
        return {p: p.read_bytes() for p in recipe.dataset_dir.rglob("*") if p.is_file()}

    before = contents()
    assert execute(dataset.STAGE, recipe, SilentProgress()).action == "passed over"
    lost = min(before)
    lost.unlink()
    (recipe.dataset_dir / "examples" / "stray.parquet").write_bytes(b"of an earlier version")
    outcome = execute(dataset.STAGE, recipe, SilentProgress())
    assert outcome.action == "done"
    assert "is gone" in outcome.why
    assert contents() == before


def own_traces(recipe: Recipe) -> list[Trace]:
    """Of a run's own traces some that no filter keeps."""
    sides = side_of(recipe)
    test_case = min(case for case, side in sides.items() if side == "test")
    first, second, *rest = kept_traces(recipe)
    bare = second.rationale.model_copy(update={"reflection": None})
    return [
        first,
        first,
        second.model_copy(update={"rationale": bare}),
        first.model_copy(update={"case_id": test_case}),
        first.model_copy(update={"case_id": "nobody's"}),
        *rest,
    ]


def test_own_traces_are_told_of_one_by_one(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    write_rows(path, own_traces(recipe))
    path.write_bytes(b"no trace\n" + path.read_bytes())
    own = make_recipe(tmp_path, teach=None, filter={"traces": str(path)})
    run(own, skip_bad=True)
    cache = str(tmp_path / "cache")
    traces = load_dataset(str(own.dataset_dir), "traces", cache_dir=cache)
    assert set(traces) == {"train", "validation", "test"}
    assert [row["refused"] for row in traces["test"]] == ["test_case"]
    reasons = Counter(row["refused"] for split in traces.values() for row in split)
    assert reasons["same_key"] == reasons["wrong_form"] == 1
    assert "unknown_case" not in reasons
    told = summary(own)
    assert told.outside == 1
    assert told.report.failures == {"unreadable_line": 1}
    assert told.report.refused["unknown_case"] == 1
    assert told.sampling is None
    [everything] = told.report.yields_by("all")
    # The same key, the wrong form, the test case and nobody's case have no part in it.
    assert everything.of == told.report.traces - 4
    examples = load_dataset(str(own.dataset_dir), cache_dir=cache)
    assert set(examples) == {"train", "validation"}
    sides = side_of(own)
    assert all(sides[row["case_id"]] == split for split in examples for row in examples[split])


def test_the_filters_yield_is_that_of_the_report(recipe: Recipe, tmp_path: Path) -> None:
    path = tmp_path / "traces.jsonl"
    disagrees = kept_traces(recipe)[-1]
    other = next(route for route in ROUTES if route is not disagrees.decision)
    write_rows(
        path,
        [*own_traces(recipe), disagrees.model_copy(update={"sample": 9, "decision": other})],
    )
    student = {"model": "some/student"}
    own = make_recipe(tmp_path, teach=None, train=student, filter={"traces": str(path)})
    run(own)
    manifest = read_manifest(own.run_dir / "filter")
    assert manifest is not None
    assert {"same_key", "wrong_form", "test_case", "disagrees"} <= set(manifest.rejects)
    report = summary(own).report
    for group, values in manifest.report["yield"].items():
        told = {each.value: (each.agree, each.of) for each in report.yields_by(group)}
        assert {value: (of["agree"], of["of"]) for value, of in values.items()} == told
    everything = manifest.report["yield"]["all"]["all"]
    assert everything["of"] == everything["agree"] + 1 == report.traces - 4


def test_a_data_set_without_an_example_says_so(recipe: Recipe, tmp_path: Path) -> None:
    class Notes(SilentProgress):
        def __init__(self) -> None:
            self.notes: list[str] = []

        def note(self, message: str) -> None:
            self.notes.append(message)

    path = tmp_path / "traces.jsonl"
    bare = {"reflection": None}
    write_rows(
        path,
        [
            trace.model_copy(update={"rationale": trace.rationale.model_copy(update=bare)})
            for trace in kept_traces(recipe)
        ],
    )
    own, notes = make_recipe(tmp_path, teach=None, filter={"traces": str(path)}), Notes()
    for stage in STAGES:
        if stage.name != "teach":
            outcome = execute(stage, own, notes)
    warning = f"none of {len(kept_traces(recipe))} traces was kept: there are no examples"
    assert outcome.manifest.report["warning"] == warning
    assert f"dataset: warning: {warning}" in notes.notes
    assert "there are no examples" in (own.dataset_dir / "README.md").read_text("utf-8")


@pytest.mark.parametrize("name", ["a/" + "x" * 300, "a/" + "x" * 95])
def test_a_name_too_long_for_the_hub_is_refused_by_the_recipe(recipe: Recipe, name: str) -> None:
    data = recipe.model_dump(mode="json", exclude_none=True)
    data["dataset"]["repo_id"] = name
    with pytest.raises(CombinedError, match=r"dataset\.repo_id"):
        validate(Recipe, data, "recipe.yaml")


def test_labels_are_those_of_the_run(recipe: Recipe, loaded: tuple[Any, DatasetDict]) -> None:
    labels = {
        each.case_id: each.route.value
        for each in read_rows(recipe.run_dir / "label" / "rows.jsonl", Label)
    }
    for split in loaded[1].values():
        for row in split:
            assert row["label"] == labels.get(row["case_id"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"filter": None}, "dataset needs `filter`"),
        ({"dataset": {}}, "dataset.license: missing"),
        ({"dataset": {"license": "Apache 2"}}, "dataset.license"),
        (
            {"teach": {"engine": SPEC, "prompt": {"paradigm": "direct"}}},
            "dataset holds six-step traces",
        ),
        (
            {"train": {"model": "m", "prompt": "guided"}},
            "dataset.prompt is train.prompt",
        ),
    ],
)
def test_a_recipe_that_can_not_be_run(recipe: Recipe, changes: dict[str, Any], told: str) -> None:
    data = recipe.model_dump(mode="json", exclude_none=True) | changes
    data = {key: value for key, value in data.items() if value is not None}
    with pytest.raises(CombinedError, match=re.escape(told)):
        validate(Recipe, data, "recipe.yaml")


@pytest.mark.parametrize(
    ("publish", "section", "named"),
    [
        ({}, {}, None),
        ({"repo_id": "you/router"}, {}, "you/router"),
        ({"repo_id": "you/router", "private": True}, {}, None),
        ({"repo_id": "you/router", "private": True}, {"private": True}, "you/router"),
    ],
)
def test_a_router_with_a_name_is_told_unless_it_is_more_private(
    tmp_path: Path, publish: dict[str, Any], section: dict[str, Any], named: str | None
) -> None:
    recipe = make_recipe(
        tmp_path,
        train={"model": "Qwen/Qwen3-1.7B"},
        route={},
        evaluate={},
        publish=publish,
        dataset={"license": "mit", **section},
    )
    assert dataset.STAGE.sections(recipe).get("router") == named
