"""What is said where processes work together, or can't."""

from __future__ import annotations

import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.records import Route
from prerouter.training import resume
from prerouter.training.launch import ProcessDiedError, check_one_gpu, telling_of_deaths
from prerouter.training.watch import Watch, check_whole

WATCH = Watch(lambda model, tokenizer: [], {"a": Route.LC})


def checkpoint_of(folder: Path, run: str, step: int = 3) -> None:
    (folder / f"checkpoint-{step}").mkdir(exist_ok=True)
    resume.mark_complete(folder, step)
    assert resume.prepare(folder, run) == folder / f"checkpoint-{step}"


@pytest.fixture
def eight(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The checkpoints of a run that eight processes made."""
    monkeypatch.setenv("WORLD_SIZE", "8")
    folder = tmp_path / "checkpoints"
    assert resume.prepare(folder, "run") is None
    checkpoint_of(folder, "run")
    return folder


def test_checkpoints_of_another_number_of_processes_stand_and_are_told(
    eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    resume.check_processes(eight, "run", "train")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(StageError) as told:
        resume.check_processes(eight, "run", "train")
    assert told.value.line.startswith(
        "train: checkpoints of 8 processes stand, and 4 were launched"
    )
    assert "--force" in told.value.line
    assert (eight / "checkpoint-3").is_dir()


def test_another_run_or_none_begins_with_as_many_as_are_launched(
    eight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    resume.check_processes(eight, "another run", "train")
    resume.check_processes(tmp_path / "nothing", "run", "train")
    # A run that was killed before its first checkpoint has nothing to lose.
    (eight / "checkpoint-3" / resume.COMPLETE).unlink()
    resume.check_processes(eight, "run", "train")
    assert resume.prepare(eight, "run") is None
    checkpoint_of(eight, "run")
    resume.check_processes(eight, "run", "train")


def test_nobody_prepares_before_everybody_has_looked(
    eight: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[bool] = []

    def wait() -> None:
        found.append((eight / "checkpoint-3").is_dir())

    launched: Any = SimpleNamespace(
        accelerator=SimpleNamespace(wait_for_everyone=wait, main_process_first=nullcontext)
    )
    assert resume.open_checkpoints(launched, eight, "another run", "train") is None
    assert found == [True]
    assert not (eight / "checkpoint-3").exists()
    # Where the check refuses, everybody's does: nobody is waited for.
    checkpoint_of(eight, "another run")
    monkeypatch.setenv("WORLD_SIZE", "4")
    with pytest.raises(StageError):
        resume.open_checkpoints(launched, eight, "another run", "train")
    assert found == [True]


def test_a_file_that_goes_away_while_it_is_looked_at_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    resume.check_processes(tmp_path, "run", "train")


def trainer(fsdp: bool) -> Any:
    return SimpleNamespace(is_fsdp_enabled=fsdp)


def test_a_look_under_fsdp_is_refused_and_says_what_to_do() -> None:
    with pytest.raises(StageError) as refused:
        check_whole(WATCH, trainer(fsdp=True))
    assert refused.value.line.startswith("train.watch: ")
    assert "--set train.watch=null" in refused.value.line
    check_whole(WATCH, trainer(fsdp=False))
    check_whole(None, trainer(fsdp=True))


def test_a_death_that_is_guessed_at_shows_the_words_it_is_guessed_from(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ProcessDiedError) as died, telling_of_deaths("train"):
        raise RuntimeError("NCCL error:\n unhandled cuda error, out of memory")
    assert died.value.line.startswith("train: one of 2 processes has died")
    assert "(NCCL error: unhandled cuda error, out of memory)" in died.value.line
    with pytest.raises(RuntimeError, match="shapes"), telling_of_deaths("train"):
        raise RuntimeError("shapes don't match")


@pytest.mark.parametrize("words", ["gloo: connection closed", None])
def test_a_second_word_of_a_death_does_not_end_who_is_about_to_tell_it(
    words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    usual = signal.getsignal(signal.SIGTERM)

    def hears() -> None:
        if words:
            raise RuntimeError(words)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(5)

    try:
        with pytest.raises(ProcessDiedError), telling_of_deaths("train"):
            hears()
        # By its usual handler, this would end the tests.
        os.kill(os.getpid(), signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, usual)


def test_one_process_does_not_spread_its_batch_over_several_gpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    two: Any = SimpleNamespace(n_gpu=2)
    with pytest.raises(StageError) as told:
        check_one_gpu(two, "classify")
    assert told.value.line.startswith("classify: one process sees 2 GPUs")
    assert "prerouter classify RECIPE, or set CUDA_VISIBLE_DEVICES=0" in told.value.line
    monkeypatch.setenv("WORLD_SIZE", "2")
    check_one_gpu(two, "train")
    monkeypatch.delenv("WORLD_SIZE")
    check_one_gpu(SimpleNamespace(n_gpu=1), "train")  # type: ignore[arg-type]
