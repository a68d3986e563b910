"""The data set's card: a golden one, and one full of text from strangers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import DatasetCard
from markdown_it import MarkdownIt

from prerouter.core.records import MetadataSetting, RagConfig, Route, Split
from prerouter.measures.traces import (
    Agreement,
    Distinct,
    Lengths,
    NearRepeats,
    Source,
    TraceReport,
    TraceYield,
)
from prerouter.publishing.dataset import (
    DatasetSummary,
    TeacherSampling,
    dataset_metadata,
    render_dataset_card,
)
from prerouter.publishing.shards import Config, SplitCount

HOSTILE = "x\n---\nlicense: mit\n# <script>alert(1)</script> | [a](http://evil.example) `b` *c*"


def yielded(group: str, value: str, agree: int, kept: int, of: int) -> TraceYield:
    return TraceYield(group=group, value=value, agree=agree, kept=kept, of=of)


@pytest.fixture
def report() -> TraceReport:
    return TraceReport(
        traces=1192,
        kept=410,
        refused={"disagrees": 351, "enough_for_case": 399, "no_label": 32},
        failures={"cut_off": 5, "no_json": 3},
        sources=(Source(teacher="Qwen/Qwen3-235B-A22B", prompt_hash="ab" * 32, traces=1192),),
        yields=(
            yielded("all", "all", 809, 410, 1160),
            yielded("label", "LC", 200, 110, 400),
            yielded("label", "RAG", 609, 300, 760),
            yielded("level", "location", 809, 410, 1160),
        ),
        agreement=Agreement(cases=590, unanimous=472, mean_pairwise=0.8),
        distinct=Distinct(samples=1192, distinct=1190),
        prompt_tokens=Lengths(n=1192, min=1100, median=1204.5, p95=1350, max=1400),
        completion_tokens=None,
        near_repeats=NearRepeats(compared=1192, repeated=12, groups=5, largest=4),
    )


@pytest.fixture
def summary(report: TraceReport) -> DatasetSummary:
    counts = {
        (Config.EXAMPLES, Split.TRAIN): (270, 100),
        (Config.EXAMPLES, Split.VALIDATION): (30, 10),
        (Config.TRACES, Split.TRAIN): (700, 350),
        (Config.TRACES, Split.VALIDATION): (100, 42),
    }
    return DatasetSummary(
        title="lara-traces",
        repo_id="someone/lara-traces",
        license="cc-by-4.0",
        source_license="MIT",
        language=("en",),
        source="LaRA",
        teacher="Qwen/Qwen3-235B-A22B",
        teacher_is_stand_in=False,
        sampling=TeacherSampling(
            model="Qwen/Qwen3-235B-A22B",
            revision="8efa61729a43",
            engine="vllm",
            paradigm="guided",
            without=("reflection",),
            metadata=MetadataSetting.FULL,
            samples=2,
            temperature=0.7,
            top_p=0.95,
            max_tokens=2048,
            thinking=False,
            honours_schema=True,
        ),
        recipe="preroute",
        seed=13,
        prompt_form="guided",
        student_prompt_hash="cd" * 32,
        metadata=MetadataSetting.FULL,
        head_characters=600,
        rag=RagConfig(),
        answer_models=("gpt-4o", "qwen2.5-7b-instruct"),
        metric="token_f1",
        min_margin=0.0,
        splits=tuple(
            SplitCount(
                config=config,
                split=split,
                rows=rag + lc,
                decisions={Route.RAG: rag, Route.LC: lc},
            )
            for (config, split), (rag, lc) in counts.items()
        ),
        report=report,
        versions={"prerouter": "0.1.0", "pyarrow": "26.0.1"},
    )


def changed(summary: DatasetSummary, **report: Any) -> DatasetSummary:
    return summary.model_copy(update={"report": summary.report.model_copy(update=report)})


def test_the_card_reads_as_the_golden_one(summary: DatasetSummary, repository: Path) -> None:
    golden = repository / "tests" / "golden" / "dataset_card.md"
    assert render_dataset_card(summary) == golden.read_text(encoding="utf-8")


def test_the_hub_reads_configurations_and_splits(summary: DatasetSummary) -> None:
    data = DatasetCard(render_dataset_card(summary)).data
    examples, traces = data.configs
    assert examples["default"] is True
    assert "default" not in traces
    assert examples["data_files"] == [
        {"split": "train", "path": "examples/train-*.parquet"},
        {"split": "validation", "path": "examples/validation-*.parquet"},
    ]
    assert (data.license, data.pretty_name) == ("cc-by-4.0", "lara-traces")


@pytest.mark.parametrize(
    ("rows", "size"),
    [(0, "n<1K"), (999, "n<1K"), (1000, "1K<n<10K"), (100_000, "100K<n<1M"), (10**7, "1M<n<10M")],
)
def test_sizes_are_named_as_the_hub_does(summary: DatasetSummary, rows: int, size: str) -> None:
    split = SplitCount(config=Config.EXAMPLES, split=Split.TRAIN, rows=rows, decisions={})
    found = dataset_metadata(summary.model_copy(update={"splits": (split,)}))
    assert found["size_categories"] == [size]


def test_what_was_not_measured_is_said_to_be_so(summary: DatasetSummary) -> None:
    text = render_dataset_card(summary)
    assert "| completion | not measured |" in text
    assert "| prompt | 1192 | 1100 | 1204 | 1350 | 1400 |" in text
    none = Agreement(cases=0, unanimous=0, mean_pairwise=None)
    text = render_dataset_card(changed(summary, agreement=none, refused={}, failures={}))
    assert "No case has two traces" in text
    assert "Nothing was refused." in text
    assert "None" not in text.replace("**Replies that are no trace.** None.", "")


def test_a_configuration_without_rows_is_not_offered(summary: DatasetSummary) -> None:
    offered = 'load_dataset(name, "examples")'
    assert offered in render_dataset_card(summary)
    splits = tuple(each for each in summary.splits if each.config is Config.TRACES)
    text = render_dataset_card(summary.model_copy(update={"splits": splits}))
    assert offered not in text
    assert 'load_dataset(name, "traces")' in text
    assert "there are no examples" in text


def test_a_stand_in_is_named_as_such(summary: DatasetSummary) -> None:
    assert "stand-in" not in render_dataset_card(summary)
    update = {"teacher": "guideline", "teacher_is_stand_in": True, "sampling": None}
    text = render_dataset_card(summary.model_copy(update=update))
    assert "`guideline`: explicit rules over the metadata, a stand-in" in text
    assert "temperature" not in text


def test_text_of_strangers_is_shown_and_not_obeyed(summary: DatasetSummary) -> None:
    report = summary.report.model_copy(
        update={
            "yields": (yielded("level", HOSTILE, 1, 1, 1), yielded(HOSTILE, "x", 1, 1, 1)),
            "sources": (Source(teacher=HOSTILE, prompt_hash=HOSTILE, traces=1),),
            "refused": {HOSTILE: 1},
        }
    )
    sampling = summary.sampling and summary.sampling.model_copy(
        update={"model": HOSTILE, "revision": HOSTILE}
    )
    text = render_dataset_card(
        summary.model_copy(
            update={
                "title": HOSTILE[:200],
                "repo_id": None,
                "source_license": HOSTILE,
                "source": HOSTILE,
                "teacher": HOSTILE,
                "sampling": sampling,
                "answer_models": (HOSTILE,),
                "metric": HOSTILE,
                "report": report,
            }
        )
    )
    head, body = text.removeprefix("---\n").split("\n---\n", 1)
    assert yaml.safe_load(head)["license"] == "cc-by-4.0"
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    assert "<script" not in page
    assert 'href="http://evil' not in page
    assert page.count("<h1>") == 1
    assert page.count("<pre>") == 1
    compile(body.split("```python\n", 1)[1].split("```", 1)[0], "card", "exec")


def test_the_card_names_the_router_that_learnt_from_it(summary: DatasetSummary) -> None:
    assert "A router that learnt" not in render_dataset_card(summary)
    text = render_dataset_card(summary.model_copy(update={"router": "some_one/router"}))
    link = "[some\\_one/router](https://huggingface.co/some_one/router)"
    assert f"A router that learnt from them: {link}." in text
