from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import RecipeError
from prerouter.training.reporters import PACKAGES, check_reporters, keep_emissions

from .conftest import Train, example


@pytest.mark.parametrize("asked", [None, "none", [], ["none"]])
def test_none_is_needed(asked: object) -> None:
    check_reporters(asked, "train.sft.report_to")


def test_a_tracker_that_is_not_installed_is_told_before_anything_is_loaded(
    train: Train, tmp_path: Path
) -> None:
    from importlib.util import find_spec

    absent = next(name for name, package in PACKAGES.items() if find_spec(package) is None)
    with pytest.raises(RecipeError, match=f"report_to: {absent} is not installed; pip install"):
        train([example(0)], model=tmp_path / "nowhere", sft={"report_to": absent})


def test_a_name_that_is_no_tracker() -> None:
    with pytest.raises(RecipeError, match=r"classify\.arguments\.report_to: wandv is no tracker"):
        check_reporters(["wandv"], "classify.arguments.report_to")


def test_tensorboard_writes_beside_the_model(train: Train, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train([example(0), example(1)], sft={"max_steps": 2, "report_to": "tensorboard"})
    events = list((tmp_path / "train" / "logs").glob("events*"))
    assert events
    assert b"train/loss" in events[0].read_bytes()


def test_emissions_outlive_the_checkpoints_and_old_ones_do_not_stay(tmp_path: Path) -> None:
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "emissions.csv").write_text("emissions\n0.1\n")
    keep_emissions(checkpoints, tmp_path)
    assert (tmp_path / "emissions.csv").read_text() == "emissions\n0.1\n"
    assert not (checkpoints / "emissions.csv").exists()
    keep_emissions(checkpoints, tmp_path)
    assert not (tmp_path / "emissions.csv").exists()
