"""An adapter's folder names its base by a Hub name, and is refused as a router with that name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import RouterConfig, read_router, write_router

BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


@pytest.fixture
def adapter_dir(tmp_path: Path) -> Path:
    """What peft leaves after training from a folder of this machine."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    save_file({"lora_A": np.ones((2, 3), np.float32)}, folder / "adapter_model.safetensors")
    told = {"peft_type": "LORA", "r": 2, "base_model_name_or_path": "/home/ann/base"}
    (folder / "adapter_config.json").write_text(json.dumps(told))
    (folder / "README.md").write_text("peft's own card")
    return folder


def publish(model_dir: Path, adapter_dir: Path, folder: Path, config: RouterConfig) -> Path:
    return write_router(model_dir, folder, config, "# Card", adapter_dir=adapter_dir)


def test_the_folder_holds_the_adapter_and_its_base_by_name(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig
) -> None:
    folder = publish(model_dir, adapter_dir, tmp_path / "router", config)
    names = {path.name for path in folder.iterdir()}
    assert {"adapter_model.safetensors", "adapter_config.json", "tokenizer.json"} <= names
    assert not {"model.safetensors", "config.json"} & names
    assert (folder / "README.md").read_text() == "# Card"
    told = json.loads((folder / "adapter_config.json").read_text())
    assert told["base_model_name_or_path"] == BASE
    assert told["revision"] == config.base_revision
    assert told["r"] == 2
    assert read_router(folder, adapter=True).files.keys() == names - {"README.md", "router.json"}


def test_a_router_is_not_loaded_from_it(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig
) -> None:
    folder = publish(model_dir, adapter_dir, tmp_path / "router", config)
    with pytest.raises(
        CheckpointError, match=rf"an adapter alone.* its base {BASE}; whole weights"
    ):
        read_router(folder)


@pytest.mark.parametrize("missing", ["adapter_model.safetensors", "adapter_config.json"])
def test_an_adapter_that_was_not_kept_is_told(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig, missing: str
) -> None:
    (adapter_dir / missing).unlink()
    with pytest.raises(CheckpointError, match=rf"{missing}: is missing.*train with --force"):
        publish(model_dir, adapter_dir, tmp_path / "router", config)
    assert not (tmp_path / "router").exists()


def test_a_base_without_a_name_on_the_hub_is_refused(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig
) -> None:
    local = config.model_copy(update={"base_model": "my-base"})
    with pytest.raises(CheckpointError, match=r"'my-base' is no name on the Hub.*base_model"):
        publish(model_dir, adapter_dir, tmp_path / "router", local)


def test_an_adapter_with_a_path_in_place_of_its_base_is_refused(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig
) -> None:
    folder = publish(model_dir, adapter_dir, tmp_path / "router", config)
    told = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(
        json.dumps({**told, "base_model_name_or_path": "../../elsewhere"})
    )
    with pytest.raises(CheckpointError, match="no name on the Hub"):
        read_router(folder, adapter=True)


def test_an_altered_adapter_is_refused(
    model_dir: Path, adapter_dir: Path, tmp_path: Path, config: RouterConfig
) -> None:
    folder = publish(model_dir, adapter_dir, tmp_path / "router", config)
    save_file({"lora_A": np.zeros((2, 3), np.float32)}, folder / "adapter_model.safetensors")
    with pytest.raises(CheckpointError, match="was altered"):
        read_router(folder, adapter=True)
