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


def test_a_full_disk_is_told_and_leaves_the_file_readable(tmp_path: Path) -> None:
    # A file size limit stands in for the disk: the write fails the same way, half way through.
    script = (
        "import resource, signal, sys\n"
        "from pathlib import Path\n"
        "from prerouter.core.errors import StageError\n"
        "from prerouter.core.records import Label, Route\n"
        "from prerouter.runs.rows import RowLog\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "log = RowLog(Path(sys.argv[1]), Label, lambda row: row.case_id)\n"
        "try:\n"
        "    for number in range(1000):\n"
        "        log.append(Label(case_id=f'case-{number}', route=Route.LC, margin=0.5))\n"
        "except StageError as error:\n"
        "    print(error.line)\n"
        "    import os; os._exit(3)\n"
    )
    path = tmp_path / "rows.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3, done.stderr
    assert "can't be written" in done.stdout
    with open_log(path) as log:
        kept = len(log.done)
    assert kept == len(list(read_rows(path, Label))) > 0
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[0] != 1000
