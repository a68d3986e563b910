"""Typed JSONL: one record a line, appended by key, safe to kill at any byte."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from io import BufferedWriter, FileIO
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Generic, Self, TypeVar

from pydantic import ValidationError

from prerouter.core.errors import InputError, StageError, first_mistake
from prerouter.core.records import Record

RecordT = TypeVar("RecordT", bound=Record)


def encode(record: Record) -> bytes:
    """The one way a record is written: fields in declared order, absent values left out."""
    return record.model_dump_json(exclude_none=True).encode() + b"\n"


def decode(line: bytes, model: type[RecordT], path: Path, number: int) -> RecordT:
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        place, accepted = f"{path}:{number}", f"a {model.__name__} record"
        raise InputError(place, first_mistake(error), accepted, "mend the line") from None


def read_rows(path: Path, model: type[RecordT]) -> Iterator[RecordT]:
    """Stream the records of a finished file. Raises InputError with the line of a bad one."""
    for record, _ in read_lines(path, model):
        yield record


def read_lines(path: Path, model: type[RecordT]) -> Iterator[tuple[RecordT, bytes]]:
    """`read_rows` with the line that each record stands on, newline included."""
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                whole = line if line.endswith(b"\n") else line + b"\n"
                yield decode(line, model, path, number), whole
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from None


def write_rows(path: Path, records: Iterable[Record]) -> int:
    """Write a whole file, renamed into place when complete; returns the number of rows."""
    count = 0
    with replacing(path) as file:
        for record in records:
            file.write(encode(record))
            count += 1
    return count


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when it is whole.

    Raises StageError where it can't be written (a full disk, say); `path` is then as it was.
    """
    temporary = path.with_name(f".{path.name}.partial")
    try:
        with temporary.open("wb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise _unwritable(path, error) from None


def _unwritable(path: Path, error: OSError) -> StageError:
    return StageError(
        str(path),
        f"can't be written: {error.strerror}",
        next_step="make room and run again: finished rows are kept",
    )


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def folder_sha256(folder: Path) -> str:
    """One hash of the names and bytes of all files below, those of hidden folders left out."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder)
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            # A name's bytes as they are, UTF-8 or not.
            digest.update(os.fsencode(name) + f"\0{file_sha256(path)}\n".encode())
    return digest.hexdigest()


class RowLog(Generic[RecordT]):
    """A rows file that grows while its stage works.

    Opening it drops a torn last line; `done` then holds the keys that stand, in their order.
    `flush_every` rows go to the operating system at once: after a kill, at most that many are done
    again. A write that fails (a full disk, say) leaves whole lines only.
    """

    def __init__(
        self,
        path: Path,
        model: type[RecordT],
        key: Callable[[RecordT], str],
        flush_every: int = 1,
    ) -> None:
        self.path = path
        self._model = model
        self._key = key
        self._flush_every = flush_every
        self._pending = 0
        self.done: dict[str, None] = {}
        self._recover()
        self._file = _open_to_append(path)

    def _recover(self) -> None:
        if not self.path.exists():
            return
        intact = 0
        with self.path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                record = decode(line, self._model, self.path, number)
                self.done[self._key(record)] = None
                intact += len(line)
        if intact < self.path.stat().st_size:
            os.truncate(self.path, intact)

    def append(self, record: RecordT) -> None:
        """Add a record whose key isn't there yet; one that stands is left alone."""
        self.append_encoded(self._key(record), encode(record))

    def append_encoded(self, key: str, line: bytes) -> None:
        """`append` for a caller that holds the line already."""
        if key in self.done:
            return
        try:
            self._file.write(line)
            self._pending += 1
        except OSError as error:
            raise self._given_up(error) from None
        if self._pending >= self._flush_every:
            self._flush()
        self.done[key] = None

    def sort(self, order: Sequence[str]) -> None:
        """Bring the rows into the order of `order`, so that a file doesn't tell how often its
        stage was killed, nor which call came back first. Keys outside `order` are refused."""
        self._flush()
        position = {key: index for index, key in enumerate(order)}
        strange = next((key for key in self.done if key not in position), None)
        if strange is not None:
            raise StageError(str(self.path), f"holds the row {strange!r}, which isn't due")
        places = [position[key] for key in self.done]
        if places == sorted(places):
            return
        spans: list[tuple[int, int, int]] = []
        offset = 0
        with self.path.open("rb") as lines:
            for place, line in zip(places, lines, strict=True):
                spans.append((place, offset, len(line)))
                offset += len(line)
        with self.path.open("rb") as source, replacing(self.path) as target:
            for _, start, length in sorted(spans):
                source.seek(start)
                target.write(source.read(length))
        self._file.close()
        self._file = _open_to_append(self.path)
        self.done = {key: None for key in order if key in self.done}

    def _flush(self) -> None:
        try:
            self._file.flush()
        except OSError as error:
            raise self._given_up(error) from None
        self._pending = 0

    def close(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            raise self._given_up(error) from None

    def _given_up(self, error: OSError) -> StageError:
        # The rest of the buffer is let go: another attempt to write it would fail as well, and its
        # error hide this one.
        self._file.raw.close()
        _cut_torn_line(self.path)
        return _unwritable(self.path, error)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _open_to_append(path: Path) -> BufferedWriter:
    return BufferedWriter(FileIO(path, "ab"), 1 << 20)


def _cut_torn_line(path: Path) -> None:
    with path.open("r+b") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - (1 << 16))
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        file.truncate(end)
