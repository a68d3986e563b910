"""The data set's card and report, which stand beside its shards."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from markupsafe import Markup
from pydantic import Field

from prerouter.core.records import Count, MetadataSetting, RagConfig, Record
from prerouter.measures.traces import Lengths, TraceReport
from prerouter.publishing.cards import one_line, render_card
from prerouter.publishing.folder import CARD_FILE
from prerouter.publishing.shards import Config, SplitCount
from prerouter.runs.manifest import write_json

TEMPLATE = "dataset.md.jinja"
REPORT_FILE = "report.json"
TAGS = ("prerouter", "routing", "retrieval-augmented-generation", "long-context", "distillation")


class TeacherSampling(Record):
    """How a model was asked for traces. `revision` None is that which the name led to."""

    model: str
    revision: str | None = None
    engine: str
    paradigm: str
    without: tuple[str, ...] = ()
    metadata: MetadataSetting
    samples: Count
    temperature: float
    top_p: float
    max_tokens: Count
    thinking: bool
    honours_schema: bool | None = None


class DatasetSummary(Record):
    """All that the card says, and what `report.json` holds. Texts of strangers' are escaped where
    they are shown."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    repo_id: str | None = None
    router: Annotated[
        str | None,
        Field(pattern=r"^[\w.-]+/[\w.-]+$", description="trained on it, by its name on the Hub"),
    ] = None
    license: str
    source_license: str | None = None
    language: tuple[str, ...]
    source: Annotated[str, Field(description="where the cases come from")]
    teacher: str
    teacher_is_stand_in: bool
    sampling: Annotated[
        TeacherSampling | None, Field(description="None where no model was asked in this run")
    ] = None
    recipe: str
    seed: Count
    prompt_form: str
    student_prompt_hash: str
    metadata: MetadataSetting
    head_characters: Count
    rag: RagConfig
    answer_models: tuple[str, ...]
    metric: str
    min_margin: float
    splits: tuple[SplitCount, ...]
    outside: Annotated[Count, Field(description="traces of cases that the run does not hold")] = 0
    report: TraceReport
    versions: dict[str, str]


def finish_dataset(folder: Path, summary: DatasetSummary) -> None:
    """Write the card and the report beside the shards."""
    (folder / CARD_FILE).write_text(render_dataset_card(summary), encoding="utf-8")
    write_json(folder / REPORT_FILE, summary.model_dump(mode="json"))


def render_dataset_card(summary: DatasetSummary) -> str:
    """The card, with the YAML head by which `datasets` finds configurations and splits."""
    from huggingface_hub import DatasetCard

    return render_card(
        TEMPLATE,
        dataset_metadata(summary),
        DatasetCard,
        data=summary,
        report=summary.report,
        written={each.config.value for each in summary.splits},
        percent=_percent,
        tokens=_tokens,
    )


def dataset_metadata(summary: DatasetSummary) -> dict[str, Any]:
    """The metadata block of the card."""
    from huggingface_hub import DatasetCardData

    examples = sum(each.rows for each in summary.splits if each.config is Config.EXAMPLES)
    configs = [
        {
            "config_name": config.value,
            "data_files": [
                {"split": each.split.value, "path": f"{config.value}/{each.split.value}-*.parquet"}
                for each in summary.splits
                if each.config is config
            ],
            **({"default": True} if config is Config.EXAMPLES else {}),
        }
        for config in Config
        if any(each.config is config for each in summary.splits)
    ]
    data = DatasetCardData(
        license=summary.license,
        language=list(summary.language),
        pretty_name=one_line(summary.title),
        task_categories=["text-generation"],
        size_categories=[_size(examples)],
        tags=list(TAGS),
        configs=configs,
    )
    metadata: dict[str, Any] = data.to_dict()  # type: ignore[no-untyped-call]
    return metadata


def _size(rows: int) -> str:
    """The Hub's name for a number of rows."""
    bounds = {1_000: "n<1K", 10_000: "1K<n<10K", 100_000: "10K<n<100K", 1_000_000: "100K<n<1M"}
    return next((name for bound, name in bounds.items() if rows < bound), "1M<n<10M")


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}%" if whole else "n/a"


def _tokens(lengths: Lengths | None) -> Markup:
    """A row's cells: n, min, median, 95th percentile, max."""
    if lengths is None:
        return Markup("not measured | | | | ")
    figures = (lengths.min, lengths.median, lengths.p95, lengths.max)
    return Markup(" | ".join([str(lengths.n), *(f"{figure:.0f}" for figure in figures)]))  # noqa: S704
