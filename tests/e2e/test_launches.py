"""Training in two processes: the student that one process trains; and what can go wrong."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.runner import REPOSITORY, make_recipe, prerouter

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")
ACCELERATE = ("-m", "accelerate.commands.launch")
STEPS = 6

# The second process kills itself in the fifth step; there is a checkpoint of the third.
DYING = """
import os, signal
import prerouter.training.sft as sft
from prerouter.cli.main import main

make = sft.make_callback

def make_dying(progress, checkpoints, *rest):
    def die(args, state, control, **kwargs):
        if state.global_step == 4 and os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
    callback = make(progress, checkpoints, *rest)
    callback.on_step_begin = die
    return callback

sft.make_callback = make_dying
main()
"""


def recipe_in(folder: Path, model: Path, batch: int, **train: Any) -> Path:
    """A recipe that ends with training, with looks at the student and weights by margin."""
    path = make_recipe(folder, model)
    data = yaml.safe_load(path.read_text())
    for name in ("calibrate", "evaluate", "publish"):
        del data[name]
    data["route"] = {"routers": ["always_rag"], "max_tokens": 4}
    data["train"] |= {
        "mix": {"explain": 1, "decide": 1},
        "weights": {"by": "margin"},
        "watch": {"cases": 6, "every": 3, "mode": "decide"},
        "validation_examples": 8,
        "sft": {
            "max_steps": STEPS,
            "per_device_train_batch_size": batch,
            "gradient_accumulation_steps": 2,
            "learning_rate": 3e-3,
        },
        **train,
    }
    path.write_text(yaml.safe_dump(data))
    return path


def launch(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=400,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, tiny_model: Path) -> Path:
    """The folder of a run that one process trained, with four examples a batch."""
    folder = tmp_path_factory.mktemp("alone")
    recipe = recipe_in(folder, tiny_model, 4)
    done = prerouter("run", str(recipe))
    assert done.returncode == 0, done.stderr
    return folder


def untrained(alone: Path, folder: Path, model: Path, **train: Any) -> Path:
    """A recipe over a copy of that run without its training: half the batch, for two processes."""
    recipe = recipe_in(folder, model, 2, **train)
    shutil.copytree(
        alone / "runs", folder / "runs", ignore=shutil.ignore_patterns("train", "route", ".lock")
    )
    return recipe


def report_of(folder: Path) -> dict[str, Any]:
    text = (folder / "runs" / "tiny" / "train" / "manifest.json").read_text()
    found: dict[str, Any] = json.loads(text)["report"]
    return found


def same_course(alone: Path, folder: Path) -> None:
    one, two = report_of(alone), report_of(folder)
    assert (one["processes"], two["processes"]) == (1, 2)
    assert one["global_batch"] == two["global_batch"] == 8
    assert one["tokens_seen"] == two["tokens_seen"]
    losses = [[point["loss"] for point in report["losses"]] for report in (one, two)]
    assert len(losses[0]) == STEPS
    # Weights and two modes make them rise and fall, so that agreement says something.
    assert max(losses[0]) - min(losses[0]) > 0.5
    assert losses[1] == pytest.approx(losses[0], rel=2e-3)
    assert [p["step"] for p in two["watched"]] == [3, 6]
    assert two["exported_step"] == one["exported_step"]


def same_weights(alone: Path, folder: Path, apart: float) -> None:
    from safetensors.torch import load_file

    one, two = (
        load_file(f / "runs" / "tiny" / "train" / "model" / "model.safetensors")
        for f in (alone, folder)
    )
    assert one.keys() == two.keys()
    for name, weight in one.items():
        assert weight.dtype == two[name].dtype
        assert (weight - two[name]).abs().max() < apart, name


@pytest.mark.slow
def test_two_processes_take_the_course_of_one(
    alone: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe = untrained(alone, tmp_path, tiny_model, processes=2)
    done = launch(*TORCHRUN, "-m", "prerouter", "train", str(recipe))
    assert done.returncode == 0, done.stderr
    assert "2 processes (data-parallel cpu) x 2 examples x 2 accumulated = 8" in done.stderr
    assert done.stdout.count("Written:") == 1
    same_course(alone, tmp_path)
    same_weights(alone, tmp_path, 2e-3)
    # Finished, it is passed over by all of them.
    again = launch(*TORCHRUN, "-m", "prerouter", "train", str(recipe))
    assert again.returncode == 0, again.stderr
    assert "unchanged, passed over" in again.stderr


@pytest.mark.slow
def test_a_process_that_dies_ends_the_others_and_the_next_launch_goes_on(
    alone: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe = untrained(alone, tmp_path, tiny_model)
    dying = tmp_path / "dying.py"
    dying.write_text(DYING)
    died = launch(*TORCHRUN, str(dying), "train", str(recipe), PYTHONPATH=str(REPOSITORY))
    assert died.returncode != 0
    told = [line for line in died.stderr.splitlines() if line.startswith("error: ")]
    assert told
    assert told[0].startswith("error: train: one of 2 processes has died")
    assert not (tmp_path / "runs" / "tiny" / "train" / "manifest.json").exists()
    done = launch(*TORCHRUN, "-m", "prerouter", "train", str(recipe))
    assert done.returncode == 0, done.stderr
    assert report_of(tmp_path)["resumed_from"] == 3
    same_course(alone, tmp_path)


@pytest.mark.slow
def test_a_launcher_that_silently_starts_one_process_is_an_error(
    alone: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe = untrained(alone, tmp_path, tiny_model)
    options = ("--cpu", "--num_processes", "2", "--num_machines", "1")
    done = launch(*ACCELERATE, *options, "-m", "prerouter", "train", str(recipe))
    assert done.returncode != 0
    assert "accelerate was asked for several processes and started one" in done.stderr
    assert not (tmp_path / "runs" / "tiny" / "train" / "model").exists()


@pytest.mark.slow
@pytest.mark.parametrize("stage", [2, 3])
def test_deepspeed_takes_the_course_of_one_process_and_exports_it_whole(
    stage: int, alone: Path, tiny_model: Path, tmp_path: Path
) -> None:
    needed = ("g++", "ninja")
    missing = [name for name in needed if shutil.which(name) is None]
    if importlib.util.find_spec("deepspeed") is None or missing:
        pytest.skip(f"DeepSpeed compiles an extension: {missing or 'deepspeed'} is missing")
    recipe = untrained(alone, tmp_path, tiny_model)
    config = REPOSITORY / "recipes" / "accelerate" / f"deepspeed_zero{stage}.yaml"
    options = ("--config_file", str(config), "--num_processes", "2")
    # Compiled at the first launch ever, in some 80 seconds; kept for the next.
    extensions = Path(tempfile.gettempdir()) / "prerouter-torch-extensions"
    # One that was killed while it compiled has left a lock that nobody would ever open.
    for lock in extensions.glob("*/lock"):
        lock.unlink()
    done = launch(
        *ACCELERATE,
        *options,
        *("-m", "prerouter", "train", str(recipe)),
        TORCH_EXTENSIONS_DIR=str(extensions),
        DS_ACCELERATOR="cpu",
    )
    assert done.returncode == 0, done.stderr
    assert f"2 processes (DeepSpeed ZeRO-{stage})" in done.stderr
    same_course(alone, tmp_path)
    same_weights(alone, tmp_path, 2e-3)


def test_a_stage_that_runs_in_one_process_says_so(tmp_path: Path, tiny_model: Path) -> None:
    recipe = make_recipe(tmp_path, tiny_model)
    done = launch("-m", "prerouter", "cases", str(recipe), RANK="0", WORLD_SIZE="2")
    assert done.returncode == 1
    assert "error: cases: 2 processes were launched, and this stage runs in one" in done.stderr
