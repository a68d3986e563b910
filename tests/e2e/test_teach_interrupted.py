"""teach through the command line, killed, stopped, and on a disk that is full."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.runner import REPOSITORY, prerouter
from tests.e2e.teacher_server import TeacherServer, teacher, write_recipe

CONCURRENCY = 4
KILLS = 10
QUESTIONS = [f"What is said in part {number}?" for number in range(300)]


def start(recipe: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "prerouter", "teach", str(recipe)],
        cwd=REPOSITORY,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(verb: str, recipe: Path) -> None:
    done = prerouter(verb, str(recipe))
    assert done.returncode == 0, done.stderr


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


@pytest.fixture
def server() -> Iterator[TeacherServer]:
    with teacher() as server:
        yield server


def begun(folder: Path, server: TeacherServer) -> Path:
    """A recipe in `folder` over QUESTIONS, whose teacher has been asked nothing yet."""
    recipe = write_recipe(folder, server, QUESTIONS, engine={"concurrency": CONCURRENCY})
    run("cases", recipe)
    return recipe


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run over QUESTIONS."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with teacher() as server:
        run("teach", begun(folder, server))
        assert server.asked == dict.fromkeys(QUESTIONS, 1)
    return folder


def traces(folder: Path) -> Path:
    return folder / "runs/taught/teach/rows.jsonl"


def test_killed_at_ten_moments_it_ends_as_if_undisturbed(
    undisturbed: Path, tmp_path: Path, server: TeacherServer
) -> None:
    recipe = begun(tmp_path, server)
    moments = random.Random(20261130)
    # Each gets some thirty questions further at most, so that none comes to the end.
    for _ in range(KILLS):
        process = start(recipe)
        enough = len(server.seen.bodies) + moments.randrange(20)
        wait_until(lambda enough=enough: len(server.seen.bodies) >= enough, process)
        time.sleep(moments.random() * 0.02)
        process.kill()
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    run("teach", recipe)
    assert traces(tmp_path).read_bytes() == traces(undisturbed).read_bytes()
    assert set(server.asked) == set(QUESTIONS)
    paid_twice = sum(server.asked.values()) - len(QUESTIONS)
    assert 0 < paid_twice <= CONCURRENCY * KILLS


def test_ctrl_c_ends_within_seconds_and_keeps_what_was_done(
    tmp_path: Path, server: TeacherServer
) -> None:
    hanging = [f"hanging 1 time {number}?" for number in range(CONCURRENCY - 1)]
    recipe = write_recipe(
        tmp_path, server, [*QUESTIONS[:12], *hanging], engine={"timeout_seconds": 600}
    )
    run("cases", recipe)
    process = start(recipe)
    wait_until(lambda: len(server.asked) == 12 + len(hanging), process)
    wait_until(lambda: traces(tmp_path).read_text().count("\n") == 12, process)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert time.monotonic() - began < 5
    assert process.returncode == 130
    assert told == "stopped; finished rows are kept, run again to go on\n"
    assert traces(tmp_path).read_text().count("\n") == 12

    run("teach", recipe)
    assert traces(tmp_path).read_text().count("\n") == 12 + len(hanging)
    assert server.asked == dict.fromkeys(QUESTIONS[:12], 1) | dict.fromkeys(hanging, 2)


def test_a_full_disk_is_a_line_and_the_rerun_goes_on(
    undisturbed: Path, tmp_path: Path, server: TeacherServer
) -> None:
    recipe = begun(tmp_path, server)
    # A limit on the size of a file stands in for the disk.
    code = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))"
    check_full(prerouter("teach", str(recipe), code=code), traces(tmp_path), "File too large")
    run("teach", recipe)
    assert traces(tmp_path).read_bytes() == traces(undisturbed).read_bytes()
    paid_twice = sum(server.asked.values()) - len(QUESTIONS)
    # The row that did not fit, and what was in flight beside it.
    assert 0 < paid_twice <= CONCURRENCY


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if (
        os.geteuid()
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=1m", "prerouter-test", disk],
            check=False,
            capture_output=True,
        ).returncode
    ):
        pytest.skip("only a machine that lets us mount a file system has a disk this small")
    yield disk
    subprocess.run(["umount", disk], check=True)


def test_on_a_disk_that_is_really_full(
    undisturbed: Path, small_disk: Path, server: TeacherServer
) -> None:
    recipe = begun(small_disk, server)
    filler = small_disk / "filler"
    free = os.statvfs(small_disk)
    filler.write_bytes(b"x" * (free.f_bavail * free.f_frsize - 5 * free.f_frsize))
    full = prerouter("teach", str(recipe))
    check_full(full, traces(small_disk), "No space left on device")
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=4m", small_disk], check=True)
    run("teach", recipe)
    assert traces(small_disk).read_bytes() == traces(undisturbed).read_bytes()
    assert sum(server.asked.values()) - len(QUESTIONS) <= CONCURRENCY


def check_full(done: subprocess.CompletedProcess[str], file: Path, why: str) -> None:
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {file}: can't be written: {why}; make room and run again: finished rows are kept\n"
    )
    kept = file.read_bytes()
    assert kept.endswith(b"\n")
    assert len([json.loads(line) for line in kept.splitlines()]) > 5
