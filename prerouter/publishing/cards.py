"""The router's card: every number from a typed context, every text of a user's escaped."""

from __future__ import annotations

import html
import json
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import yaml
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from pydantic import Field

from prerouter.core.errors import CheckpointError
from prerouter.core.records import Count, Record, Split
from prerouter.publishing.checkpoint import RouterConfig
from prerouter.publishing.emissions import Emissions
from prerouter.publishing.metadata import check_metadata

if TYPE_CHECKING:
    from huggingface_hub import RepoCard

TEMPLATE = "router.md.jinja"
TAGS = ("prerouter", "routing", "retrieval-augmented-generation", "long-context", "trl", "sft")

_MARKDOWN = re.compile(r"([\\`*_{}\[\]|~#])")
_CODE = str.maketrans("`|", "'/")
# GitHub-flavoured Markdown links a bare address and names an account without any bracket.
_AUTOLINK = {"://": "&#58;//", "www.": "www&#46;", "@": "&#64;"}


class CardMetric(Record):
    """One measured figure for the metadata's model-index."""

    type: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    name: str
    value: float


class CardTraining(Record):
    """How the student was trained. Losses in nats a completion token."""

    train_examples: Count
    validation_examples: Count
    refused_examples: Count
    steps: Count
    epochs: Annotated[float, Field(ge=0)]
    tokens_seen: Count
    final_loss: float | None = None
    eval_loss: float | None = None
    trainable_parameters: Count
    total_parameters: Count
    learning_rate: Annotated[float | None, Field(gt=0)] = None
    max_length: Annotated[int, Field(gt=0)]
    dtype: str
    lora_rank: Annotated[int | None, Field(gt=0)] = None
    seconds: Annotated[
        float | None, Field(ge=0, description="None where training was interrupted")
    ] = None
    processes: Annotated[int, Field(ge=1)] = 1
    versions: Annotated[dict[str, str], Field(description="libraries it was trained with")] = {}


class CardPicture(Record):
    """A picture that stands in the folder: its path there, and its title."""

    path: Annotated[str, Field(pattern=r"^(evaluation|training)/[\w.-]+\.(png|svg)$")]
    title: str


class CardData(Record):
    """Which cases were trained on and which were measured, by name and number."""

    name: str
    traces: Annotated[
        str | None,
        Field(pattern=r"^[\w.-]+/[\w.-]+$", description="the data set of traces, on the Hub"),
    ] = None
    license: Annotated[str | None, Field(description="of questions and documents")] = None
    answer_models: Annotated[tuple[str, ...], Field(min_length=1)]
    metric: str
    min_margin: Annotated[float, Field(ge=0)] = 0.0
    kept_traces: Count
    all_traces: Count
    test_split: str
    test_cases: Count
    test_documents: Count
    unlabelled_cases: Count


class RouterCard(Record):
    """All that the card says. `table` is Markdown of our own making; all else is escaped."""

    title: Annotated[str, Field(min_length=1, max_length=200)]
    repo_id: Annotated[str | None, Field(pattern=r"^[\w.-]+/[\w.-]+$")] = None
    license: Annotated[str, Field(pattern=r"^[a-z0-9.-]+$")]
    language: tuple[str, ...]
    config: RouterConfig
    teacher_is_stand_in: bool
    training: CardTraining
    data: CardData
    metrics: Annotated[tuple[CardMetric, ...], Field(min_length=1)]
    table: Annotated[str, Field(min_length=1)]
    confidence: Annotated[float, Field(gt=0, lt=1)]
    collapsed: bool = False
    base_on_hub: Annotated[str | None, Field(description="the base model's name there")] = None
    adapter: bool = False
    calibrated_on: Annotated[
        Split | None, Field(description="what temperature and threshold were chosen on, if so")
    ] = None
    pictures: tuple[CardPicture, ...] = ()
    curves: Annotated[bool, Field(description="whether training/losses.csv goes along")] = False
    emissions: Emissions | None = None
    environment: Annotated[dict[str, str], Field(description="what it was published with")] = {}


def render_router_card(card: RouterCard) -> str:
    """The card as Markdown with a YAML head that the Hub's own reader takes.

    Raises CheckpointError where the Hub's reader finds other metadata than was written.
    """
    from huggingface_hub import ModelCard

    return render_card(
        TEMPLATE,
        card_metadata(card),
        ModelCard,
        card=card,
        config=card.config,
        data=card.data,
        training=card.training,
        evaluation=[each for each in card.pictures if each.path.startswith("evaluation/")],
        curves=[each for each in card.pictures if each.path.startswith("training/")],
        versions=_versions(card),
        percent=f"{100 * card.confidence:g}",
        table=Markup(card.table.strip()),  # noqa: S704 -- Markup means: done, not to be escaped
    )


def render_card(
    template: str, metadata: dict[str, Any], reader: type[RepoCard], **context: object
) -> str:
    """`template` with the YAML head `metadata` and every text of the context escaped.

    Raises CheckpointError where the Hub would not take the metadata, or `reader`, the Hub's own,
    finds others than were written.
    """
    environment = Environment(  # noqa: S701 -- finalize escapes for Markdown and HTML at once
        loader=FileSystemLoader(_template_folders()),
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"code": _code, "python": _python, "shell": _shell, "done": Markup}
    check_metadata(metadata)
    head = yaml.safe_dump(metadata, sort_keys=False, allow_unicode=True, width=100)
    text = environment.get_template(template).render(
        head=Markup(head),  # noqa: S704
        **context,
    )
    _check_head(text, metadata, reader)
    return text


def card_metadata(card: RouterCard) -> dict[str, Any]:
    """The metadata block, with the measured figures as the Hub's model-index."""
    from huggingface_hub import EvalResult, ModelCardData

    data_name = one_line(card.data.name)
    results = [
        EvalResult(
            task_type="text-generation",
            task_name="RAG or long-context routing",
            dataset_type="custom",
            dataset_name=data_name,
            dataset_split=card.data.test_split,
            metric_type=metric.type,
            metric_name=one_line(metric.name),
            metric_value=round(metric.value, 4),
        )
        for metric in card.metrics
    ]
    traces = [card.data.traces] if card.data.traces else []
    related: dict[str, Any] = {}
    if card.base_on_hub:
        related["base_model_relation"] = "adapter" if card.adapter else "finetune"
    if card.emissions:
        related["co2_eq_emissions"] = card.emissions.metadata
    data = ModelCardData(
        license=card.license,
        language=list(card.language),
        library_name="peft" if card.adapter else "transformers",
        pipeline_tag="text-generation",
        base_model=card.base_on_hub,
        datasets=traces or None,
        tags=[*TAGS, *(("lora",) if card.adapter else ())],
        model_name=one_line(card.title),
        eval_results=results,
        **related,
    )
    metadata: dict[str, Any] = data.to_dict()  # type: ignore[no-untyped-call]
    return metadata


def escape(text: str) -> str:
    """Text of a stranger's as one line that Markdown and HTML show and do not obey."""
    escaped = _MARKDOWN.sub(r"\\\1", html.escape(one_line(text), quote=False))
    for found, entity in _AUTOLINK.items():
        escaped = re.sub(re.escape(found), entity, escaped, flags=re.IGNORECASE)
    return escaped


def _versions(card: RouterCard) -> list[tuple[str, str, str]]:
    """What was used: its name, its version at training, and at publishing."""
    trained = card.training.versions
    published = card.config.provenance.versions | card.environment
    names = sorted({*trained, *published}, key=str.casefold)
    return [(name, trained.get(name, ""), published.get(name, "")) for name in names]


def _finalize(value: Any) -> Any:
    return value if isinstance(value, Markup) else escape(str(value))


def _code(value: object) -> Markup:
    """`value` as a code span, without the characters that end one or end a table's cell."""
    return Markup("`" + one_line(str(value)).translate(_CODE) + "`")  # noqa: S704


def _python(value: object) -> Markup:
    """A Python literal that can't close the code block it stands in."""
    return Markup(json.dumps(one_line(str(value))).replace("`", "\\x60"))  # noqa: S704


def _shell(value: object) -> Markup:
    return Markup(shlex.quote(one_line(str(value)).replace("`", "'")))  # noqa: S704


def one_line(text: str) -> str:
    """`text` on one line, without characters that do not print."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _template_folders() -> list[Path]:
    """In an installed package, and in a checkout."""
    package = Path(__file__).parent
    return [package / "templates", package.parents[1] / "model_cards"]


def _check_head(text: str, metadata: dict[str, Any], reader: type[RepoCard]) -> None:
    found = reader(text).data.to_dict()  # type: ignore[no-untyped-call]
    if found != metadata:
        keys = sorted(k for k in {*found, *metadata} if found.get(k) != metadata.get(k))
        raise CheckpointError(
            "the card's metadata", f"the Hub would read {', '.join(keys)} in another way"
        )
