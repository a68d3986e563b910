"""What a stage refused: how it is named, kept and counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from prerouter.core.records import Reject
from prerouter.runs.rows import RowLog, read_rows, write_rows

# Characters: several times what a thinking model writes before it reaches its limit.
MOST_RAW = 200_000


def reject_key(reject: Reject) -> str:
    """Of one thing, one reason is written: whatever was refused isn't tried again."""
    return reject.key


def cut_raw(text: str) -> str:
    """A refused reply as a Reject keeps it: one beyond all measure by its beginning and its end,
    with a note of what is left out between them."""
    if len(text) <= MOST_RAW:
        return text
    half = MOST_RAW // 2
    return f"{text[:half]} [{len(text) - 2 * half} characters left out] {text[-half:]}"


def standing_rejects(path: Path) -> Iterator[Reject]:
    """The rejects of an attempt that may have been killed: a line that it tore is cut off first."""
    if path.exists():
        RowLog(path, Reject, reject_key).close()
        yield from read_rows(path, Reject)


def drop_transient(path: Path) -> None:
    """Take the failed calls out of a file of rejects: they are made again."""
    if path.exists():
        write_rows(path, (each for each in standing_rejects(path) if not each.transient))


def count_rejects(path: Path) -> tuple[dict[str, int], int]:
    """Rejects by reason, and how many of all are transient; none where there is no file."""
    counts, transient = Counter[str](), 0
    if path.exists():
        for reject in read_rows(path, Reject):
            counts[reject.reason] += 1
            transient += reject.transient
    return dict(sorted(counts.items())), transient
