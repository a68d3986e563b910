from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from prerouter.core.errors import InputError, StageError
from prerouter.core.records import Label, Route
from prerouter.runs.rows import RowLog, encode, read_rows, write_rows


def label(number: int) -> Label:
    return Label(case_id=f"case-{number}", route=Route.RAG, margin=number / 3)


def open_log(path: Path) -> RowLog[Label]:
    return RowLog(path, Label, lambda row: row.case_id)


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    rows = [label(number) for number in range(5)]
    assert write_rows(tmp_path / "rows.jsonl", rows) == 5
    assert list(read_rows(tmp_path / "rows.jsonl", Label)) == rows


def test_a_key_is_written_once(tmp_path: Path) -> None:
    with open_log(tmp_path / "rows.jsonl") as log:
        log.append(label(1))
        log.append(label(1))
    with open_log(tmp_path / "rows.jsonl") as log:
        log.append(label(1))
        log.append(label(2))
    assert [row.case_id for row in read_rows(tmp_path / "rows.jsonl", Label)] == [
        "case-1",
        "case-2",
    ]


@pytest.mark.parametrize("lost", range(1, 20))
def test_a_torn_last_line_is_dropped_and_written_again(tmp_path: Path, lost: int) -> None:
    path = tmp_path / "rows.jsonl"
    whole = encode(label(1)) + encode(label(2))
    path.write_bytes(whole[:-lost])
    with open_log(path) as log:
        assert list(log.done) == ["case-1"]
        log.append(label(2))
    assert path.read_bytes() == whole


def test_a_broken_line_in_the_middle_is_an_error_with_its_number(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(encode(label(1)) + b'{"case_id": "x", "route": "BOTH"}\n' + encode(label(2)))
    with pytest.raises(InputError, match=r"rows\.jsonl:2"):
        list(read_rows(path, Label))


def test_sorting_hides_the_order_of_arrival(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with open_log(path) as log:
        for number in (3, 1, 2):
            log.append(label(number))
        log.sort(["case-1", "case-2", "case-3", "case-4"])
        log.append(label(4))
    assert [row.case_id for row in read_rows(path, Label)] == [
        "case-1",
        "case-2",
        "case-3",
        "case-4",
    ]


def test_a_row_that_is_not_due_is_refused(tmp_path: Path) -> None:
    with open_log(tmp_path / "rows.jsonl") as log:
        log.append(label(1))
        with pytest.raises(StageError, match="case-1"):
            log.sort(["case-2"])


WRITER = """
import sys, time
from pathlib import Path
from prerouter.core.records import Label, Route
from prerouter.runs.rows import RowLog
log = RowLog(Path(sys.argv[1]), Label, lambda row: row.case_id)
print("ready", flush=True)
number = 0
while True:
    log.append(Label(case_id=f"case-{number}", route=Route.LC, margin=0.5))
    number += 1
"""


def test_killed_while_writing_nothing_stands_twice_or_half(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        process.stdout.readline()
        before = path.stat().st_size
        while path.stat().st_size <= before:
            assert process.poll() is None
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    with open_log(path) as log:
        kept = len(log.done)
    keys = [row.case_id for row in read_rows(path, Label)]
    assert kept == len(keys) == len(set(keys)) > 0
    assert keys == [f"case-{number}" for number in range(kept)]


FULL_DISK = """
import resource, sys
from pathlib import Path
from prerouter.core.errors import StageError
from prerouter.core.records import Label, Route
from prerouter.runs.rows import RowLog, write_rows

labels = [Label(case_id=f"case-{number}", route=Route.LC, margin=0.5) for number in range(1000)]
path = Path(sys.argv[1])
# A limit on the size of a file stands in for the disk: the write fails as well, half way through.
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    if sys.argv[2] == "whole":
        write_rows(path, labels)
    else:
        with RowLog(path, Label, lambda row: row.case_id, flush_every=int(sys.argv[2])) as log:
            for label in labels:
                log.append(label)
except StageError as error:
    print(error.line)
    sys.exit(3)
"""


@pytest.mark.parametrize("how", ["1", "7", "2000", "whole"])
def test_a_full_disk_is_told_and_leaves_the_file_readable(tmp_path: Path, how: str) -> None:
    path = tmp_path / "rows.jsonl"
    write_rows(path, [label(0)])
    done = subprocess.run(
        [sys.executable, "-c", FULL_DISK, str(path), how],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout == (
        f"{path}: can't be written: File too large; make room and run again: finished rows are kept"
        "\n"
    )
    # Readable by anyone, before a rerun mends anything.
    kept = [row.case_id for row in read_rows(path, Label)]
    assert kept == [f"case-{number}" for number in range(len(kept))]
    assert len(kept) == 1 if how == "whole" else len(kept) > 10
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_while_sorting_leaves_the_rows_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_log(path) as log:
        for number in (2, 1):
            log.append(label(number))
        before = path.read_bytes()
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) - 1, limit[1]))
        try:
            with pytest.raises(StageError, match="can't be written"):
                log.sort(["case-1", "case-2"])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
