from __future__ import annotations

import os
from pathlib import Path

import pytest

from prerouter.runs.model_files import model_inputs


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"header" + bytes(1000))
    return folder


def test_weights_trained_again_are_another_input(model: Path) -> None:
    before = model_inputs(str(model))
    assert model_inputs(str(model)) == before
    weights = model / "model.safetensors"
    # As long as they were, and with the same header.
    weights.write_bytes(b"header" + bytes(999) + b"1")
    os.utime(weights, ns=(1, 1))
    after = model_inputs(str(model))
    assert set(before) == set(after) == {str(model)}
    assert before != after


def test_a_file_that_came_or_went_is_another_input(model: Path) -> None:
    before = model_inputs(str(model))
    (model / "chat_template.jinja").write_text("{{ messages }}")
    with_template = model_inputs(str(model))
    (model / "config.json").unlink()
    assert len({*before.values(), *with_template.values(), *model_inputs(str(model)).values()}) == 3


def test_what_a_download_notes_in_hidden_folders_is_no_part_of_the_model(model: Path) -> None:
    before = model_inputs(str(model))
    (model / ".cache").mkdir()
    (model / ".cache" / "downloaded").write_text("today")
    assert model_inputs(str(model)) == before


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-1.7B", "embedded:SmolLM2-135M-Instruct", "m" * 10_000]
)
def test_a_name_that_is_no_folder_has_no_hash(name: str) -> None:
    assert model_inputs(name) == {}
