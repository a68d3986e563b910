from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from jinja2 import UndefinedError
from markdown_it import MarkdownIt

from prerouter.core.errors import CheckpointError
from prerouter.core.records import MetadataSetting, Split, StudentMode
from prerouter.publishing import cards
from prerouter.publishing.cards import (
    CardData,
    CardMetric,
    CardPicture,
    CardTraining,
    RouterCard,
    escape,
    render_router_card,
)
from prerouter.publishing.checkpoint import RouterConfig
from prerouter.publishing.emissions import Emissions

TABLE = """| router | QA | LC rate |
|---|---|---|
| always_rag | 0.612 [0.580, 0.641] | 0.000 |
| student | 0.688 [0.655, 0.719] | 0.273 |"""


@pytest.fixture
def card(config: RouterConfig) -> RouterCard:
    return RouterCard(
        title="Quickstart router",
        license="apache-2.0",
        language=("en",),
        config=config,
        teacher_is_stand_in=True,
        training=CardTraining(
            train_examples=141,
            validation_examples=19,
            refused_examples=2,
            steps=54,
            epochs=3.0,
            tokens_seen=105_433,
            final_loss=0.12345,
            eval_loss=0.2,
            trainable_parameters=4_884_480,
            total_parameters=139_399_488,
            learning_rate=3e-4,
            max_length=512,
            dtype="bfloat16",
            lora_rank=16,
        ),
        data=CardData(
            name="the shipped sample",
            answer_models=("reader-8k", "reader-32k"),
            metric="evidence_recall",
            kept_traces=160,
            all_traces=204,
            test_split="test",
            test_cases=82,
            test_documents=31,
            unlabelled_cases=0,
        ),
        metrics=(CardMetric(type="accuracy", name="route accuracy", value=0.7439),),
        table=TABLE,
        confidence=0.95,
        base_on_hub="HuggingFaceTB/SmolLM2-135M-Instruct",
    )


def test_the_card_reads_as_the_golden_one(card: RouterCard, repository: Path) -> None:
    golden = repository / "tests" / "golden" / "router_card.md"
    assert render_router_card(card) == golden.read_text(encoding="utf-8")


def test_the_hub_reads_the_metadata(card: RouterCard) -> None:
    data = ModelCard(render_router_card(card)).data
    assert data.library_name == "transformers"
    assert data.pipeline_tag == "text-generation"
    assert data.license == "apache-2.0"
    assert data.language == ["en"]
    assert data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert data.datasets is None
    (result,) = data.eval_results
    assert (result.metric_type, result.metric_value) == ("accuracy", 0.7439)
    assert (result.dataset_name, result.dataset_split) == ("the shipped sample", "test")


def test_the_stand_in_is_named_as_such(card: RouterCard) -> None:
    assert "`guideline`, explicit rules" in render_router_card(card)
    config = card.config.model_copy(update={"teacher": "Qwen/Qwen3-235B-A22B"})
    update = {"config": config, "teacher_is_stand_in": False}
    text = render_router_card(card.model_copy(update=update))
    assert "stands in for" not in text
    assert "Teacher: `Qwen/Qwen3-235B-A22B`, a language model" in text


def test_a_collapsed_router_is_named(card: RouterCard) -> None:
    assert "everything one way" not in render_router_card(card)
    assert "everything one way" in render_router_card(card.model_copy(update={"collapsed": True}))


@pytest.mark.parametrize(
    ("changes", "told", "untold"),
    [
        ({}, ["It writes six short steps"], ["names the route at once", "threshold="]),
        (
            {"modes": tuple(StudentMode), "temperature": 1.5, "threshold": 0.31234},
            ["or names the route at once", 'mode="decide"', "above 0.3123", "divided by 1.5"],
            [],
        ),
        (
            {"modes": (StudentMode.DECIDE, StudentMode.EXPLAIN)},
            [
                "It decides in one forward pass",
                'mode="explain"',
                "print(decision.route, decision.p_lc",
            ],
            ['mode="decide"'],
        ),
        (
            {"modes": (StudentMode.DECIDE,)},
            ["It names the route at once", "above 0.5", "print(decision.route, decision.p_lc)"],
            ["six short steps", "mode=", "log-odds", "reasoning", "decision.rationale", "chosen"],
        ),
        (
            {"metadata": MetadataSetting.GENERATED},
            ["title and types as a small model infers them"],
            [],
        ),
    ],
)
def test_the_card_tells_what_the_router_was_trained_to_do(
    card: RouterCard, changes: dict[str, Any], told: list[str], untold: list[str]
) -> None:
    config = card.config.model_copy(update=changes)
    text = " ".join(render_router_card(card.model_copy(update={"config": config})).split())
    assert all(words in text for words in told)
    assert not any(words in text for words in untold)


@pytest.mark.parametrize(
    ("temperature", "told"),
    [
        (1.0, "takes `LC` above 0.3123, a threshold chosen on the test split. `threshold=`"),
        (1.5, "once its log-odds are divided by 1.5, both chosen on the test split. `threshold=`"),
    ],
)
def test_where_the_threshold_was_chosen_is_told_where_it_was(
    card: RouterCard, temperature: float, told: str
) -> None:
    changes = {"modes": (StudentMode.DECIDE,), "temperature": temperature, "threshold": 0.31234}
    given = {"config": card.config.model_copy(update=changes)}
    text = render_router_card(card.model_copy(update={**given, "calibrated_on": Split.TEST}))
    assert told in " ".join(text.split())
    assert "chosen" not in render_router_card(card.model_copy(update=given)).split("## What")[0]


def test_numbers_that_are_missing_are_left_out(card: RouterCard) -> None:
    bare = {"final_loss": None, "eval_loss": None, "learning_rate": None, "lora_rank": None}
    training = card.training.model_copy(update=bare)
    text = render_router_card(card.model_copy(update={"training": training}))
    for words in ("None", "validation loss", "last training loss", "LoRA", "learning rate"):
        assert words not in text


MEASURED = Emissions(grams=12.3456, kilowatt_hours=0.04, country="France", hardware="1 x L4")


def test_what_is_known_beside_is_told(card: RouterCard) -> None:
    bare = render_router_card(card)
    for words in ("emissions", "CO2", "![", "losses.csv", "The traces", " s |"):
        assert words not in bare
    training = card.training.model_copy(
        update={"seconds": 61.4, "processes": 2, "versions": {"trl": "1.15.0", "peft": "0.20"}}
    )
    told = {
        "training": training,
        "data": card.data.model_copy(update={"traces": "you/my_traces"}),
        "pictures": (
            CardPicture(path="evaluation/plane.png", title="Cost | quality"),
            CardPicture(path="training/losses.png", title="Training loss"),
        ),
        "curves": True,
        "emissions": MEASURED,
        "environment": {"Python": "3.11.9"},
    }
    text = render_router_card(card.model_copy(update=told))
    data = ModelCard(text).data
    assert data.datasets == ["you/my_traces"]
    assert data.base_model_relation == "finetune"
    assert data.co2_eq_emissions == {
        "emissions": 12.35,
        "source": "CodeCarbon",
        "training_type": "fine-tuning",
        "geographical_location": "France",
        "hardware_used": "1 x L4",
    }
    for words in (
        "| time | 61 s in 2 processes |",
        "| emissions | 12.35 g of CO2 equivalent (0.04 kWh), measured by CodeCarbon |",
        "| trl | 1.15.0 | 1.16.0 |",
        "| peft | 0.20 |  |",
        "| Python |  | 3.11.9 |",
        "`training/losses.csv`",
    ):
        assert words in text
    page = MarkdownIt("commonmark").enable("table").render(text.split("\n---\n", 1)[1])
    assert '<img src="evaluation/plane.png" alt="Cost | quality" />' in page
    assert '<img src="training/losses.png"' in page
    assert '<a href="https://huggingface.co/datasets/you/my_traces">you/my_traces</a>' in page


def test_an_adapter_names_its_base_and_the_way_to_merge(card: RouterCard) -> None:
    text = render_router_card(card.model_copy(update={"adapter": True, "repo_id": "you/router"}))
    data = ModelCard(text).data
    assert (data.library_name, data.base_model_relation) == ("peft", "adapter")
    assert data.base_model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert "lora" in data.tags
    assert "(LoRA, rank 16, not merged)" in text
    assert "prerouter decide" not in text
    code = text.split("```python\n", 1)[1].split("```", 1)[0]
    compile(code, "card", "exec")
    assert 'name = "you/router"' in code
    assert "merge_and_unload" in code


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"license": "my-own"}, "license 'my-own' is none that it knows"),
        ({"language": ("english",)}, "language 'english' is no ISO 639 code"),
        ({"base_on_hub": "/home/me/base"}, "base_model '/home/me/base' is no repository"),
    ],
)
def test_what_the_hub_would_refuse_is_told_at_once(
    card: RouterCard, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(CheckpointError) as error:
        render_router_card(card.model_copy(update=changes))
    assert told in error.value.line


def test_text_of_strangers_is_shown_and_not_obeyed(card: RouterCard) -> None:
    hostile = "x\n---\nlicense: mit\n# <script>alert(1)</script> | [a](http://evil.example) `b` *c*"
    name = '"; rm -rf / #`\n```\n$(boom)'
    config = card.config.model_copy(update={"base_model": hostile, "teacher": hostile})
    data = card.data.model_copy(update={"name": hostile, "answer_models": (name,)})
    text = render_router_card(
        card.model_copy(update={"title": hostile[:200], "config": config, "data": data})
    )
    head, body = text.removeprefix("---\n").split("\n---\n", 1)
    assert yaml.safe_load(head)["license"] == "apache-2.0"
    page = MarkdownIt("commonmark", {"html": True}).enable("table").render(body)
    assert "<script" not in page
    assert "evil.example" in page
    assert 'href="http://evil' not in page
    assert page.count("<h1>") == 1
    assert page.count("<pre>") == 2
    shell = next(line for line in body.splitlines() if "--answer-model" in line)
    words = shlex.split(shell)
    assert "$(boom)" in words[words.index("--answer-model") + 1]
    compile(body.split("```python\n", 1)[1].split("```", 1)[0], "card", "exec")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Qwen3-1.7B", "Qwen3-1.7B"),
        ("a_b|c", r"a\_b\|c"),
        ("<b> & co", "&lt;b&gt; &amp; co"),
        ("two\nlines\u2028and\x1b[31m", r"two lines and \[31m"),
        ("see HTTP://x.y", "see HTTP&#58;//x.y"),
        ("WWW.x.y, @all", "www&#46;x.y, &#64;all"),
    ],
)
def test_escape(text: str, shown: str) -> None:
    assert escape(text) == shown


def test_a_name_that_the_template_misspells_is_an_error(
    card: RouterCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / cards.TEMPLATE).write_text("---\n{{ head }}---\n{{ card.titel }}")
    monkeypatch.setattr(cards, "_template_folders", lambda: [tmp_path])
    with pytest.raises(UndefinedError, match="titel"):
        render_router_card(card)


def test_a_template_that_spoils_the_metadata_is_an_error(
    card: RouterCard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / cards.TEMPLATE).write_text("---\n{{ head }}license: mit\n---\n")
    monkeypatch.setattr(cards, "_template_folders", lambda: [tmp_path])
    with pytest.raises(CheckpointError, match="license"):
        render_router_card(card)
