"""`prerouter publish`: what a push needs, what a dry run shows, and what is kept from going along.

The stage itself runs in tests/e2e; here its folder lies ready.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import yaml

from prerouter.cli import publish as cli
from prerouter.core.errors import CombinedError, RecipeError, StageError
from prerouter.core.records import Answer, Evidence, Reference, Route, RoutingCase
from prerouter.publishing.checkpoint import RouterConfig, write_router
from prerouter.runs.rows import write_rows
from tests.publishing.conftest import config, model_dir  # noqa: F401 -- fixtures
from tests.publishing.hub_server import HubServer, running_hub
from tests.stages.tables import table_recipe

TOKEN = "hf_secretsecretsecret"
CARD = "---\nlicense: mit\ntags:\n- prerouter\n---\n\n# My *router*\n\n{}\n"
QUESTION = "Who signed the treaty of the northern harbours, and in which year?"


@pytest.fixture
def recipe(
    tmp_path: Path,
    model_dir: Path,  # noqa: F811
    config: RouterConfig,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """A recipe whose router lies ready; the stage is passed over."""
    made = table_recipe(
        tmp_path,
        4,
        teach={"teacher": "guideline"},
        filter={},
        train={"model": "Qwen/Qwen3-1.7B"},
        route={},
        evaluate={},
        publish={},
        dataset={"license": "mit", "repo_id": "someone/traces"},
    )
    write_router(model_dir, made.published_dir, config, CARD.format("Decides."))
    document = {"document_id": "d", "title": "Annual report", "tokens": 900}
    case = {
        "case_id": "c",
        "question_id": "q",
        "group_id": "g",
        "question": QUESTION,
        "document": document,
        "answer_model": {"name": "reader", "context_window": 4096},
    }
    cases = made.run_dir / "cases"
    cases.mkdir(parents=True)
    write_rows(cases / "rows.jsonl", [RoutingCase.model_validate(case)])
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(made.model_dump(mode="json", exclude_defaults=True)))
    monkeypatch.setattr(cli, "run_recipe", lambda *arguments, **options: None)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return path


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Any:
    with running_hub() as server:
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.endpoint)
        yield server


def publish(recipe: Path, *overrides: str, **options: Any) -> None:
    usual = {"force": False, "skip_bad": False, "private": False, "adapter": False, "push": False}
    cli.publish_router(recipe, overrides, **{**usual, "repo_id": None, **options})


def router(recipe: Path) -> Path:
    return recipe.parent / "runs" / "mine" / "publish" / "router"


def test_a_dry_run_shows_every_file_and_the_card(
    recipe: Path, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(recipe)
    shown = capsys.readouterr().out
    for path in router(recipe).iterdir():
        size, sha, _ = next(
            line.split() for line in shown.splitlines() if line.endswith(f" {path.name}")
        )
        assert int(size.replace(",", "")) == path.stat().st_size
        assert len(sha) == 12
    total = sum(path.stat().st_size for path in router(recipe).iterdir())
    assert f"{total:,}  bytes in {len(list(router(recipe).iterdir()))} files" in shown
    assert "# My *router*" in shown
    assert shown.rstrip().endswith("nothing was pushed: this is what --push would send")
    assert hub.calls == []


def test_on_a_terminal_the_card_is_rendered(
    recipe: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    (router(recipe) / "README.md").write_text(CARD.format("\x1b]0;owned\x07"))
    publish(recipe)
    shown = capsys.readouterr().out
    assert "My router" in re.sub(r"\x1b\[[0-9;]*m", "", shown)
    assert "*router*" not in shown
    assert "\x1b]0;" not in shown


def test_a_push_goes_to_the_hub_and_names_what_goes_by_itself(
    recipe: Path, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    publish(recipe, push=True, private=True, repo_id="someone/router")
    shown = capsys.readouterr().out
    assert f"pushed in one commit: {hub.endpoint}/someone/router/commit/" in shown
    assert f"`prerouter dataset {recipe} --push`" in shown
    assert "# My *router*" not in shown
    assert [created["visibility"] for created in hub.created] == ["private"]
    hub.private = True
    publish(recipe, push=True, private=True, repo_id="someone/router")
    assert "the Hub has all of it already: " in capsys.readouterr().out
    assert hub.commits == 1
    with pytest.raises(StageError, match=r"is private on the Hub, and publish.private is false"):
        publish(recipe, push=True, repo_id="someone/router")


def test_a_push_needs_a_name_and_a_token(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RecipeError, match=r"publish.repo_id: missing.* --repo-id you/router"):
        publish(recipe, push=True)
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(RecipeError, match="HF_TOKEN: is not set"):
        publish(recipe, push=True, repo_id="someone/router")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("https://huggingface.co/someone/router", "did you mean someone/router?"),
        ("router", "has an owner"),
        ("null", "has an owner"),
        ("[a]/b", "no name on the Hub"),
    ],
)
def test_a_name_that_is_none_is_a_line(recipe: Path, name: str, told: str) -> None:
    with pytest.raises(CombinedError) as error:
        publish(recipe, repo_id=name)
    [line] = error.value.lines
    assert line.startswith(f"{recipe}: publish.repo_id: got ")
    assert told in line


def test_the_adapter_is_asked_for_on_the_command_line(recipe: Path) -> None:
    with pytest.raises(CombinedError, match=r"publish.adapter needs train.lora"):
        publish(recipe, adapter=True)


@pytest.mark.parametrize("push", [True, False])
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("made in /home/ann/runs", "README.md: holds a path of a machine: /home/ann/runs"),
        (f"by {TOKEN}", "README.md: holds a key of this environment: hf_s… (21 characters)"),
        (QUESTION, "README.md: holds a text of a case: who signed the treaty"),
    ],
)
def test_what_is_private_is_not_pushed(
    recipe: Path, hub: HubServer, push: bool, text: str, told: str
) -> None:
    (router(recipe) / "README.md").write_text(CARD.format(text))
    with pytest.raises(CombinedError) as error:
        publish(recipe, push=push, repo_id="someone/router")
    [line] = error.value.lines
    assert told in line
    assert TOKEN not in line
    assert hub.calls == []


@pytest.mark.parametrize(
    "text",
    [
        "the harbour master and both of his daughters signed it",
        "by the fourth clause every ship from the islands pays",
        "signed in the spring of that year, as the ledger shows",
    ],
)
def test_an_answer_is_a_text_of_a_case_and_a_word_is_not(recipe: Path, text: str) -> None:
    run = recipe.parent / "runs" / "mine" / "cases"
    evidence = (Evidence(text="Know that by the fourth clause every ship from the islands pays."),)
    known = {"answer": "The harbour master and both of his daughters signed it."}
    write_rows(run / "references.jsonl", [Reference(question_id="q", evidence=evidence, **known)])
    told = "It was signed in the spring of that year, as the ledger shows."
    write_rows(run / "answers.jsonl", [Answer(case_id="c", route=Route.RAG, text=told)])
    (router(recipe) / "README.md").write_text(CARD.format("Decides."))
    publish(recipe)
    (router(recipe) / "README.md").write_text(CARD.format(text))
    with pytest.raises(CombinedError, match="holds a text of a case"):
        publish(recipe)
    publish(recipe, "publish.raw_text=true")


def test_raw_text_goes_along_where_it_is_asked_for(recipe: Path, hub: HubServer) -> None:
    (router(recipe) / "README.md").write_text(CARD.format(QUESTION))
    publish(recipe, "publish.raw_text=true", push=True, repo_id="someone/router")
    assert QUESTION.encode() in hub.files["README.md"]


def test_a_folder_that_was_altered_is_not_pushed(recipe: Path, hub: HubServer) -> None:
    path = router(recipe) / "generation_config.json"
    path.write_text(json.dumps({"eos_token_id": 3}))
    with pytest.raises(Exception, match="was altered"):
        publish(recipe, push=True, repo_id="someone/router")
    assert hub.calls == []
