from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from prerouter.core.records import MetadataSetting, Route
from prerouter.publishing.checkpoint import Provenance, RouterConfig


@pytest.fixture
def config() -> RouterConfig:
    return RouterConfig(
        prompt_form="compact",
        metadata=MetadataSetting.FULL,
        prompt_version="1",
        prompt_hash="ab" * 32,
        thinking=False,
        max_tokens=400,
        fallback=Route.RAG,
        base_model="HuggingFaceTB/SmolLM2-135M-Instruct",
        base_revision="12fd25f",
        teacher="guideline",
        provenance=Provenance(
            recipe="quickstart",
            seed=13,
            parents={"train": "0" * 64},
            versions={"torch": "2.13.0", "trl": "1.16.0"},
        ),
    )


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """What an export leaves: weights, configs, tokenizer, and a file that no router needs."""
    folder = tmp_path / "exported"
    folder.mkdir()
    save_file({"weight": np.zeros((2, 3), np.float32)}, folder / "model.safetensors")
    for name, data in {
        "config.json": {"model_type": "qwen3", "_name_or_path": "/home/someone/model"},
        "generation_config.json": {"eos_token_id": 2},
        "tokenizer.json": {"version": "1.0"},
        "tokenizer_config.json": {"eos_token": "<|im_end|>", "is_local": True},
    }.items():
        (folder / name).write_text(json.dumps(data))
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "training_args.bin").write_bytes(b"\x80\x04pickle")
    return folder
