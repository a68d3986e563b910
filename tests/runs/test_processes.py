from __future__ import annotations

import pytest

from prerouter.core.errors import StageError
from prerouter.runs.processes import check_launch, rank, world_size

NAMES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "ACCELERATE_MIXED_PRECISION")
NAMES += ("PMI_RANK", "PMI_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_process_alone_is_the_first_of_one() -> None:
    assert (rank(), world_size()) == (0, 1)
    check_launch("train", None)


@pytest.mark.parametrize(
    ("names"), [("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")]
)
def test_the_launcher_tells_the_place(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(names[0], "3")
    monkeypatch.setenv(names[1], "4")
    assert (rank(), world_size()) == (3, 4)


def test_a_rank_without_others_is_left_over_from_something_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RANK", "1")
    assert rank() == 0


def test_accelerate_that_starts_one_of_several_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    with pytest.raises(StageError, match="asked for several processes and started one"):
        check_launch("train", None)
    monkeypatch.setenv("WORLD_SIZE", "1")  # one was asked for, and said so
    check_launch("train", None)


@pytest.mark.parametrize("size", ["1", "4"])
def test_another_number_than_the_recipe_says_is_an_error(
    size: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", size)
    with pytest.raises(StageError, match=f"{size} processes run where train.processes says 2"):
        check_launch("train", 2)
