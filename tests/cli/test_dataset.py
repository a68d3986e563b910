"""`prerouter dataset`, and what a push needs before anything is done."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
import yaml

from prerouter.core.errors import CombinedError
from tests.e2e.runner import prerouter
from tests.publishing.hub_server import HubServer, running_hub
from tests.stages.tables import table_recipe

TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    made = table_recipe(
        tmp_path, 30, teach={"teacher": "guideline"}, filter={"one_class": "warn"},
        dataset={"license": "cc-by-4.0"},
    )  # fmt: skip
    path = tmp_path / "recipe.yaml"
    path.write_text(yaml.safe_dump(made.model_dump(mode="json", exclude_defaults=True)))
    return path


def test_run_writes_the_folder_and_names_it(recipe: Path) -> None:
    done = prerouter("run", str(recipe))
    assert done.returncode == 0, done.stderr
    folder = recipe.parent / "runs" / "mine" / "dataset"
    assert f"{folder}/hub/  (the data set, ready for the Hub)" in done.stdout
    assert (folder / "hub" / "README.md").is_file()
    again = prerouter("dataset", str(recipe))
    assert again.returncode == 0, again.stderr
    assert "passed over" in again.stderr


def test_a_push_needs_a_name_and_a_token_before_it_does_anything(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    unnamed = prerouter("dataset", str(recipe), "--push")
    assert unnamed.returncode == 1
    assert "dataset.repo_id: missing, and --push needs it" in unnamed.stderr
    monkeypatch.delenv("HF_TOKEN")
    keyless = prerouter("dataset", str(recipe), "--push", "--set", "dataset.repo_id=you/traces")
    assert keyless.returncode == 1
    assert "HF_TOKEN: is not set" in keyless.stderr
    assert not (recipe.parent / "runs").exists()


def test_a_push_that_fails_leaves_the_folder_and_shows_no_token(
    recipe: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert prerouter("run", str(recipe), "--set", "dataset.repo_id=you/traces").returncode == 0
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    done = prerouter("dataset", str(recipe), "--push", "--set", "dataset.repo_id=you/traces")
    assert done.returncode == 1
    assert "error: you/traces: the Hub did not take it" in done.stderr
    assert TOKEN not in done.stderr + done.stdout
    assert (recipe.parent / "runs" / "mine" / "dataset" / "hub" / "README.md").is_file()


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with running_hub() as server:
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", server.endpoint)
        yield server


def push(recipe: Path) -> None:
    from prerouter.cli.dataset import make_dataset

    assert prerouter("run", str(recipe), "--set", "dataset.repo_id=you/traces").returncode == 0
    make_dataset(recipe, ["dataset.repo_id=you/traces"], force=False, push=True)


def test_a_push_is_a_data_set_on_the_hub(
    recipe: Path, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    push(recipe)
    assert "pushed in one commit: " in capsys.readouterr().out
    assert [created["type"] for created in hub.created] == ["dataset"]
    assert {"README.md", "report.json", "traces/train-00000.parquet"} <= hub.files.keys()


def test_a_key_in_what_is_quoted_is_not_pushed(recipe: Path, hub: HubServer) -> None:
    rows = recipe.parent / "rows.jsonl"
    rows.write_text(rows.read_text().replace("What is said", "hf_" + "a1" * 12 + " What is said"))
    with pytest.raises(CombinedError, match=r"parquet: holds a Hugging Face token: hf_a… \(27"):
        push(recipe)
    assert hub.calls == []
