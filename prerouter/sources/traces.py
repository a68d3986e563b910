"""The user's own traces: JSONL of Trace records that another program or hand has written."""

from __future__ import annotations

import codecs
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from prerouter.core.errors import InputError
from prerouter.core.records import Reject, Trace
from prerouter.recipe.teach import FilterSection
from prerouter.runs.rows import decode
from prerouter.sources.problems import Problem, Problems, RejectReason


def read_traces(path: Path, problems: Problems) -> Iterator[tuple[Trace, bytes]]:
    """Every good trace with its line, newline included; bad lines go to `problems`.

    Blank lines and a byte order mark are passed over. Raises InputError where the file itself
    can't be read.
    """
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                text = (line.removeprefix(codecs.BOM_UTF8) if number == 1 else line).strip()
                if not text:
                    continue
                try:
                    trace = decode(text, Trace, path, number)
                except InputError as error:
                    problem = Problem(
                        RejectReason.UNREADABLE_LINE,
                        error.place,
                        error.problem,
                        "a trace as data/README.md describes it",
                        "mend the line or leave it out",
                    )
                    problems.refuse(problem, raw=text.decode("utf-8", "replace"))
                else:
                    yield trace, text + b"\n"
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from None


def missing_traces(section: FilterSection | None) -> list[InputError]:
    """An error where the recipe names a file of traces that isn't there."""
    path = section.traces if section else None
    if path is None or path.is_file():
        return []
    return [InputError(str(path), "no such file", "traces as JSONL", "mend filter.traces")]


def check_traces(section: FilterSection | None, skip_bad: bool) -> list[Reject]:
    """Read the user's own traces, if any, for their bad lines alone: as rejects with `skip_bad`,
    else raised together."""
    path = section.traces if section else None
    problems = Problems(skip_bad, "filter")
    if path is not None:
        deque(read_traces(path, problems), maxlen=0)
        problems.stop(str(path))
    return problems.rejects
