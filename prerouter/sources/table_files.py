"""Rows of a user's CSV, JSONL or Parquet file, each with the place it stands at."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import InputError
from prerouter.recipe.base import Section
from prerouter.sources.problems import Problem, Problems, RejectReason
from prerouter.sources.text_files import read_json_lines

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_LONGEST_FIELD = 1 << 27
_NOT_UTF8 = re.compile("[\udc80-\udcff]")
_MEND = "mend the line or leave it out"
_PLAIN = "a text in UTF-8, a number, true or false"


@dataclass(frozen=True)
class TableRow:
    """`place` is `file:line`, or `file: row N` in Parquet (the first is row 1)."""

    place: str
    values: dict[str, Any]

    @property
    def raw(self) -> str:
        return json.dumps(self.values, ensure_ascii=False, default=str)

    def cell(self, column: str) -> str:
        return f"{self.place}, column {column}"


@dataclass
class Table:
    path: Path
    columns: tuple[str, ...]
    rows: list[TableRow]


def read_table(path: Path, problems: Problems, names: Section) -> Table:
    """All readable rows; those that can't be read go to `problems`.

    An empty CSV cell and a JSON or Parquet null are None. Of Parquet, only columns that `names`
    names are looked at: what others hold can't cost a row. Raises InputError where the file as a
    whole can't be read, holds no row, or is of no known kind.
    """
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(
            str(path),
            f"the suffix {path.suffix!r} tells no kind of table",
            ", ".join(_READERS),
            "rename or convert the file",
        )
    try:
        if path.stat().st_size == 0:
            raise InputError(str(path), "is empty", "a table with at least one row")
        table = reader(path, problems, frozenset(dict(names).values()))
    except OSError as error:
        raise InputError(
            str(path), f"can't be read: {error.strerror or error}", next_step="check the path"
        ) from None
    if not table.rows:
        problems.stop(str(path))
        refused = len(problems.rejects)
        what = f"holds no good row: {refused} were refused" if refused else "holds no rows"
        raise InputError(str(path), what, "a table with at least one row")
    return table


def _columns(path: Path, names: list[str]) -> tuple[str, ...]:
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InputError(
            str(path),
            f"several columns have the name {twice[0]!r}",
            "each name once",
            "rename all but one",
        )
    return tuple(names)


def _read_csv(path: Path, problems: Problems, names: frozenset[Any]) -> Table:
    # Bytes that are not UTF-8 become surrogates, so that they cost their row and not the file.
    data = path.read_bytes()
    text = data.decode("utf-8-sig", "surrogateescape")
    mark = len(codecs.BOM_UTF8) if data.startswith(codecs.BOM_UTF8) else 0
    lines = list(io.StringIO(text, newline=""))
    bad_bytes = _bad_bytes(lines, mark)
    reader = csv.reader(lines, strict=True)
    limit = csv.field_size_limit(_LONGEST_FIELD)
    header: list[str] = []
    rows: list[TableRow] = []
    try:
        for first, fields, problem in _csv_rows(reader, f"{path}"):
            place = f"{path}:{first}"
            spoilt = [
                bad_bytes[line] for line in range(first, reader.line_num + 1) if line in bad_bytes
            ]
            if spoilt:
                problem = Problem(
                    RejectReason.INVALID_UTF8,
                    place,
                    f"byte {spoilt[0]} of the file is not UTF-8",
                    "UTF-8 text",
                    "save the file as UTF-8, or mend the line",
                )
            if not header:
                if problem is not None:
                    raise problem.error
                header = list(_columns(path, fields))
                other = next((mark for mark in ";\t|" if mark in fields[0]), None)
                if other is not None and len(fields) == 1:
                    raise InputError(
                        place,
                        f"is one column, {fields[0]!r}",
                        "fields divided by commas",
                        f"save the table with commas instead of {other!r}",
                    )
                continue
            if problem is None and len(fields) != len(header):
                problem = Problem(
                    RejectReason.WRONG_FIELD_COUNT,
                    place,
                    f"has {len(fields)} fields",
                    f"{len(header)}, as in the header",
                    "quote fields that hold commas or line breaks",
                )
            if problem is not None:
                raw = "".join(lines[first - 1 : reader.line_num])
                problems.refuse(problem, raw=raw.encode("utf-8", "replace").decode().strip())
                continue
            values = {name: field or None for name, field in zip(header, fields, strict=True)}
            rows.append(TableRow(place, values))
    finally:
        csv.field_size_limit(limit)
    return Table(path, tuple(header), rows)


def _bad_bytes(lines: Sequence[str], offset: int) -> dict[int, int]:
    """By line number, the offset in the file of the line's first byte that is not UTF-8."""
    found = {}
    for number, line in enumerate(lines, start=1):
        bad = _NOT_UTF8.search(line)
        if bad is not None:
            found[number] = offset + len(line[: bad.start()].encode("utf-8", "surrogateescape"))
        offset += len(line.encode("utf-8", "surrogateescape"))
    return found


def _csv_rows(reader: Any, place: str) -> Iterator[tuple[int, list[str], Problem | None]]:
    """First line, fields, and what is wrong, of each row that is not blank."""
    while True:
        first = reader.line_num + 1
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            what = f"is not CSV: {error}"
            if reader.line_num > first:
                what += f" (a quoted field runs on to line {reader.line_num})"
            accepted = "fields divided by commas, quoted by double quotes"
            where = f"{place}:{first}"
            yield first, [], Problem(RejectReason.UNREADABLE_LINE, where, what, accepted, _MEND)
            continue
        if fields:
            yield first, fields, None


def _read_jsonl(path: Path, problems: Problems, names: frozenset[Any]) -> Table:
    columns: dict[str, None] = {}
    rows = []
    for line in read_json_lines(path):
        if line.problem is not None:
            problems.refuse(line.problem, raw=line.raw)
        elif line.value is not None:
            columns.update(dict.fromkeys(line.value))
            rows.append(TableRow(line.place, line.value))
    return Table(path, tuple(columns), rows)


def _read_parquet(path: Path, problems: Problems, names: frozenset[Any]) -> Table:
    import pyarrow
    import pyarrow.parquet

    rows: list[TableRow] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            columns = _columns(path, list(file.schema_arrow.names))
            used = [column for column in columns if column in names]
            number = 0
            for batch in file.iter_batches():
                for values in _batch_rows(batch, used):
                    number += 1
                    bad = {key: it for key, it in values.items() if isinstance(it, _Unreadable)}
                    good = {key: it for key, it in values.items() if key not in bad}
                    row = TableRow(f"{path}: row {number}", good)
                    found = [
                        Problem(RejectReason.UNREADABLE_LINE, row.cell(column), it.what, _PLAIN)
                        for column, it in bad.items()
                    ]
                    if found:
                        problems.refuse(*found, raw=row.raw)
                    else:
                        rows.append(row)
    except pyarrow.ArrowException as error:
        raise InputError(
            str(path), f"can't be read as Parquet: {error}", next_step="write the file anew"
        ) from None
    return Table(path, columns, rows)


@dataclass(frozen=True)
class _Unreadable:
    """A value that Arrow holds and Python can't: text that isn't UTF-8, a year past 9999."""

    what: str


def _batch_rows(batch: RecordBatch, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    values = [_column_values(batch.column(column)) for column in columns]
    for number in range(batch.num_rows):
        yield {column: cells[number] for column, cells in zip(columns, values, strict=True)}


def _column_values(column: Any) -> list[Any]:
    try:
        return list(column.to_pylist())
    except (ValueError, OverflowError):
        return [_value(scalar) for scalar in column]


def _value(scalar: Any) -> Any:
    try:
        return scalar.as_py()
    except (ValueError, OverflowError) as error:
        return _Unreadable(f"can't be read: {error}")


_READERS: dict[str, Callable[[Path, Problems, frozenset[Any]], Table]] = {
    ".csv": _read_csv,
    ".jsonl": _read_jsonl,
    ".parquet": _read_parquet,
}
