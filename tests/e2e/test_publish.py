"""A trained router on its way to a Hub and back, and the same as an adapter."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub.constants
import pytest
from huggingface_hub import ModelCard, snapshot_download

from prerouter.core.errors import CheckpointError
from prerouter.core.records import RoutingCase
from tests.e2e.runner import make_recipe, prerouter, rows
from tests.e2e.test_pipeline import copy_run
from tests.publishing.hub_server import HubServer, running_hub

TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    with running_hub() as server:
        for name, value in {
            "HF_ENDPOINT": server.endpoint,
            "HF_HUB_OFFLINE": "0",
            "HF_HUB_DISABLE_XET": "1",
            "HF_TOKEN": TOKEN,
        }.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        yield server


def test_a_router_goes_to_the_hub_and_decides_alike_when_fetched_back(
    undisturbed: Path, tiny_model: Path, tmp_path: Path, hub: HubServer
) -> None:
    from prerouter import Router

    recipe, run = copy_run(undisturbed, tmp_path, tiny_model, "publish")
    dry = prerouter("publish", str(recipe))
    assert dry.returncode == 0, dry.stderr
    assert "model.safetensors" in dry.stdout
    assert "nothing was pushed" in dry.stdout
    assert hub.calls == []
    arguments = ("publish", str(recipe), "--repo-id", "someone/router", "--push")
    done = prerouter(*arguments)
    assert done.returncode == 0, done.stderr
    assert "pushed in one commit: " in done.stdout
    assert (hub.commits, len(hub.created)) == (1, 1)
    again = prerouter(*arguments)
    assert "the Hub has all of it already" in again.stdout
    assert TOKEN not in done.stdout + done.stderr + again.stdout + again.stderr

    fetched = Path(
        snapshot_download(
            "someone/router", local_dir=tmp_path / "fetched", endpoint=hub.endpoint, token=TOKEN
        )
    )
    cases = [RoutingCase.model_validate(row) for row in rows(run, "cases/rows.jsonl")][:8]
    there, here = (
        Router.from_pretrained(folder, dtype="float32", mode="decide").decide(cases)
        for folder in (fetched, run / "publish" / "router")
    )
    assert [d.p_lc for d in there] == [d.p_lc for d in here]

    card = ModelCard.load(fetched / "README.md")
    assert card.data.model_name == "router"
    assert {r.metric_type for r in card.data.eval_results} >= {"qa", "lc_rate", "accuracy"}
    manifest = json.loads((run / "train" / "manifest.json").read_text())
    with (fetched / "training" / "losses.csv").open() as file:
        told = [(int(row["Step"]), float(row["Loss"])) for row in csv.DictReader(file)]
    assert told == [(point["step"], point["loss"]) for point in manifest["report"]["losses"]]
    table = (run / "evaluate" / "table.md").read_bytes()
    assert (fetched / "evaluation" / "table.md").read_bytes() == table
    drawn = {path.name for path in (run / "evaluate" / "report" / "figures").glob("*")}
    assert drawn <= {path.name for path in (fetched / "evaluation").iterdir()}
    for picture in ("evaluation/plane.png", "training/losses.png"):
        if (fetched / picture).exists():
            assert f"]({picture})" in card.content


def test_a_student_of_low_ranks_goes_as_an_adapter(
    undisturbed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    from prerouter import Router

    copy_run(undisturbed, tmp_path, tiny_model, "train")
    published = {"adapter": True, "base_model": "someone/tiny-qwen3"}
    sections = json.loads(json.dumps({"publish": published}))
    recipe = make_recipe(tmp_path, tiny_model, **sections)
    done = prerouter("run", str(recipe), "--set", "train.lora.r=2")
    assert done.returncode == 0, done.stderr
    run = tmp_path / "runs" / "tiny"
    folder = run / "publish" / "router"
    assert not (folder / "model.safetensors").exists()
    told = json.loads((folder / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == "someone/tiny-qwen3"
    for path in folder.rglob("*.json"):
        assert str(tmp_path) not in path.read_text("utf-8"), path.name
    with pytest.raises(CheckpointError, match=r"an adapter alone.*base someone/tiny-qwen3"):
        Router.from_pretrained(folder)
    shown = prerouter("publish", str(recipe), "--set", "train.lora.r=2")
    assert shown.returncode == 0, shown.stderr
    assert os.sep not in told["base_model_name_or_path"].removeprefix("someone/")

    # On its base, it is the student that was trained.
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype="float32")
    merged = PeftModel.from_pretrained(base, folder).merge_and_unload().state_dict()
    whole = AutoModelForCausalLM.from_pretrained(run / "train" / "model").state_dict()
    assert merged.keys() == whole.keys()
    assert all((merged[name] - whole[name]).abs().max() < 1e-5 for name in whole)
