"""Rows through a real Ray cluster of this machine, with workers that load nothing."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.engines.ray_blocks import Pool, rows_through_workers

ray = pytest.importorskip("ray")

ONE = Pool(workers=1, cpus=1, gpus=0, rows_per_block=4, concurrent_blocks=2)


class Speaker:
    """Says its word to each text; "poison" ends its process, "slow" takes a second."""

    def __init__(self, word: str) -> None:
        if word == "never":
            raise ValueError("no such word")
        self.word = word

    def __call__(self, block: Mapping[str, Any]) -> dict[str, Any]:
        said = []
        for text in block["text"]:
            if text == "poison":
                os._exit(1)
            time.sleep(1.0 if text == "slow" else 0.02)
            said.append(f"{self.word} {text}")
        return {"index": block["index"], "said": said, "process": [os.getpid()] * len(said)}


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    ray.init("local", num_cpus=2, object_store_memory=100_000_000, logging_level="ERROR")
    yield
    ray.shutdown()


def rows(count: int, **other: str) -> list[dict[str, Any]]:
    return [{"index": n, "text": other.get(f"row_{n}", f"text {n}")} for n in range(count)]


def alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_every_row_comes_once_with_its_own_reply() -> None:
    pool = Pool(workers=2, cpus=1, gpus=0, rows_per_block=4, concurrent_blocks=3)
    # Enough of them that a worker which starts late still gets some.
    done = list(rows_through_workers(rows(300), Speaker, ("hello",), pool))
    assert sorted(int(row["index"]) for row in done) == list(range(300))
    assert all(row["said"] == f"hello text {row['index']}" for row in done)
    assert len({row["process"] for row in done}) == 2
    assert not list(rows_through_workers([], Speaker, ("hello",), pool))


def test_a_quick_block_does_not_wait_for_a_slow_one() -> None:
    done = list(rows_through_workers(rows(12, row_0="slow"), Speaker, ("hello",), ONE))
    assert sorted(int(row["index"]) for row in done[-4:]) == [0, 1, 2, 3]


def test_a_killed_worker_costs_no_row() -> None:
    killed = []
    done = []
    for row in rows_through_workers(rows(40), Speaker, ("hello",), ONE):
        done.append(int(row["index"]))
        if not killed:
            killed.append(int(row["process"]))
            os.kill(killed[0], signal.SIGKILL)
    assert sorted(done) == list(range(40))
    assert not alive(killed[0])


def test_a_row_that_kills_its_workers_is_given_up_and_the_rest_goes_on() -> None:
    done = list(rows_through_workers(rows(40, row_33="poison"), Speaker, ("hello",), ONE))
    lost = sorted(set(range(40)) - {int(row["index"]) for row in done})
    assert 33 in lost
    # What its worker had in hand may go with it: at most the blocks that ran beside it.
    assert len(lost) <= 3 * ONE.rows_per_block


def test_leaving_early_ends_the_workers() -> None:
    results = rows_through_workers(rows(40, row_39="slow"), Speaker, ("hello",), ONE)
    process = int(next(results)["process"])
    assert alive(process)
    results.close()
    deadline = time.monotonic() + 20
    while alive(process) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not alive(process)


@pytest.mark.parametrize(("word", "text"), [("never", "text"), ("hello", "poison")])
def test_workers_that_die_over_and_over_are_an_error(word: str, text: str) -> None:
    given = [{"index": n, "text": text} for n in range(40)]
    with pytest.raises(StageError, match=r"ray: the workers die.*a rerun goes on"):
        list(rows_through_workers(given, Speaker, (word,), ONE))
