"""A user's own traces: good lines pass, every bad one is named or set aside."""

from __future__ import annotations

import codecs
import json
from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError, InputError
from prerouter.recipe.teach import FilterSection
from prerouter.sources.problems import Problems
from prerouter.sources.traces import check_traces, missing_traces, read_traces

GOOD = {
    "case_id": "q/m",
    "teacher": "people",
    "rationale": {"free_text": "It is short."},
    "decision": "LC",
    "prompt_hash": "none",
}
BAD_LINES = {
    "no JSON": b"not a trace",
    "a field too many": json.dumps(GOOD | {"score": 1}).encode(),
    "no route": json.dumps(GOOD | {"decision": "Both"}).encode(),
    "not UTF-8": b'{"case_id": "\xff"}',
}


def write(folder: Path, *lines: bytes) -> Path:
    path = folder / "traces.jsonl"
    path.write_bytes(b"\n".join(lines))
    return path


def good(number: int) -> bytes:
    return json.dumps(GOOD | {"sample": number}).encode()


def test_a_byte_order_mark_and_blank_lines_are_passed_over(tmp_path: Path) -> None:
    path = write(tmp_path, codecs.BOM_UTF8 + good(0), b"", good(1) + b"\r", b"  ")
    read = list(read_traces(path, Problems(skip_bad=False)))
    assert [trace.sample for trace, _ in read] == [0, 1]
    assert [line for _, line in read] == [good(0) + b"\n", good(1) + b"\n"]


@pytest.mark.parametrize("bad", BAD_LINES.values(), ids=BAD_LINES)
def test_bad_lines_become_rejects_and_the_others_go_on(tmp_path: Path, bad: bytes) -> None:
    path = write(tmp_path, good(0), bad, good(1))
    problems = Problems(skip_bad=True, stage="filter")
    assert [trace.sample for trace, _ in read_traces(path, problems)] == [0, 1]
    (reject,) = problems.rejects
    assert (reject.stage, reject.place) == ("filter", f"{path}:2")
    assert reject.reason == "unreadable_line"
    assert reject.raw == bad.decode("utf-8", "replace")


def test_all_bad_lines_are_named_at_once_up_to_a_limit(tmp_path: Path) -> None:
    path = write(tmp_path, *(b"{}" for _ in range(30)))
    with pytest.raises(CombinedError) as caught:
        check_traces(FilterSection(traces=path), skip_bad=False)
    assert caught.value.lines[0].startswith(f"{path}:1: case_id: Field required; a trace as")
    assert caught.value.lines[19].startswith(f"{path}:20: ")
    (rest,) = caught.value.lines[20:]
    assert rest.startswith(f"{path}: and 10 more mistakes of 30; mend them, or use --skip-bad")


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    section = FilterSection(traces=tmp_path / "none.jsonl")
    assert [error.place for error in missing_traces(section)] == [f"{tmp_path}/none.jsonl"]
    with pytest.raises(InputError, match="No such file"):
        check_traces(section, skip_bad=True)
    assert missing_traces(FilterSection()) == []
    assert check_traces(None, skip_bad=False) == []
