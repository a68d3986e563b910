"""Parquet shards: how many rows a file holds, and what is left of an earlier attempt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Rationale,
    Route,
    RoutingCase,
    Split,
    Trace,
)
from prerouter.publishing.shards import (
    Config,
    DatasetWriter,
    SplitCount,
    case_columns,
    trace_row,
)


def rows(count: int) -> Iterator[dict[str, Any]]:
    for number in range(count):
        case = RoutingCase(
            case_id=f"case-{number}",
            question_id=f"question-{number}",
            group_id="document",
            question="Who?",
            document=DocumentProfile(document_id="document"),
            answer_model=AnswerModel(name="reader"),
        )
        trace = Trace(
            case_id=case.case_id,
            teacher="teacher",
            rationale=Rationale(),
            decision=Route.LC if number % 3 == 0 else Route.RAG,
            prompt_hash="0",
        )
        yield trace_row(case_columns(case, None, None), case, trace, None)


def write(folder: Path, count: int, shard_rows: int) -> DatasetWriter:
    with DatasetWriter(folder, shard_rows) as writer:
        for row in rows(count):
            writer.add(Config.TRACES, Split.TRAIN, row)
    return writer


@pytest.mark.parametrize(
    ("count", "shard_rows", "sizes"),
    [
        (1, 5, [1]),
        (5, 5, [5]),
        (6, 5, [5, 1]),
        (2500, 2400, [2400, 100]),
        (2000, 1000, [1000, 1000]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_a_shard_holds_so_many_rows(
    tmp_path: Path, count: int, shard_rows: int, sizes: list[int]
) -> None:
    write(tmp_path / "out", count, shard_rows)
    tables = [pq.read_table(path) for path in sorted((tmp_path / "out/traces").iterdir())]
    assert [table.num_rows for table in tables] == sizes
    ids = [name for table in tables for name in table["case_id"].to_pylist()]
    assert ids == [f"case-{number}" for number in range(count)]


def test_decisions_are_counted_by_split(tmp_path: Path) -> None:
    [counted] = write(tmp_path / "out", 7, 5).splits
    assert counted == SplitCount(
        config=Config.TRACES,
        split=Split.TRAIN,
        rows=7,
        decisions={Route.RAG: 4, Route.LC: 3},
    )


def test_an_earlier_attempt_leaves_nothing_behind(tmp_path: Path) -> None:
    write(tmp_path / "out", 9, 3)
    first = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.parquet")}
    write(tmp_path / "out", 3, 3)
    second = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*.parquet")}
    assert len(second) == 1
    assert second.items() <= first.items()


def test_a_column_of_nothing_keeps_its_kind(tmp_path: Path) -> None:
    write(tmp_path / "out", 1, 5)
    schema = pq.read_schema(tmp_path / "out/traces/train-00000.parquet")
    kinds = {name: str(schema.field(name).type) for name in schema.names}
    assert (kinds["label"], kinds["prompt_tokens"], kinds["kept"]) == ("string", "int64", "bool")
    assert set(next(rows(1))) == set(kinds)
