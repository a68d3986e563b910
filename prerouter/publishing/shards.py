"""Rows of a data set as Parquet shards: what a row holds, and where it is written."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from prerouter.core.records import (
    ROUTES,
    Count,
    Example,
    Record,
    Route,
    RoutingCase,
    Split,
    Step,
    Trace,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetWriter

_ROW_GROUP = 1000
_CASE_TEXTS = (
    "case_id",
    "question_id",
    "label",
    "level",
    "task_type",
    "document_type",
    "answer_model",
)


class Config(StrEnum):
    """The data set's configurations: what a student learns, and all that the teacher wrote."""

    EXAMPLES = "examples"
    TRACES = "traces"


class SplitCount(Record):
    """Rows of one split of one configuration, and how many of them decide for each route."""

    config: Config
    split: Split
    rows: Count
    decisions: dict[Route, int]


class DatasetWriter:
    """Writes rows into `folder/<config>/<split>-<number>.parquet`, `shard_rows` a file at most.

    What an earlier attempt left in the folder is removed. The same rows give the same bytes under
    one version of pyarrow. Use as a context manager: the last shards are whole on leaving it.
    """

    def __init__(self, folder: Path, shard_rows: int) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self._folder = folder
        self._shard_rows = shard_rows
        self._schemas = {Config.EXAMPLES: _example_schema(), Config.TRACES: _trace_schema()}
        self._rows: dict[tuple[Config, Split], list[dict[str, Any]]] = {}
        self._writers: dict[tuple[Config, Split], ParquetWriter] = {}
        self._decisions: dict[tuple[Config, Split], Counter[str]] = {}

    def add(self, config: Config, split: Split, row: dict[str, Any]) -> None:
        """`row` is one of `example_row` or `trace_row`."""
        place = (config, split)
        waiting = self._rows.setdefault(place, [])
        waiting.append(row)
        decided = self._decisions.setdefault(place, Counter())
        decided[row["decision"]] += 1
        ends = decided.total() % self._shard_rows == 0
        if ends or len(waiting) == _ROW_GROUP:
            self._flush(place, ends)

    @property
    def splits(self) -> tuple[SplitCount, ...]:
        """What was written, configurations and splits in their order."""
        return tuple(
            SplitCount(
                config=config,
                split=split,
                rows=decided.total(),
                decisions={route: decided[route.value] for route in ROUTES},
            )
            for config in Config
            for split in Split
            if (decided := self._decisions.get((config, split)))
        )

    def _flush(self, place: tuple[Config, Split], ends: bool) -> None:
        import pyarrow as pa
        from pyarrow.parquet import ParquetWriter

        config, split = place
        rows = self._rows.pop(place, [])
        if rows:
            if place not in self._writers:
                number = (self._decisions[place].total() - 1) // self._shard_rows
                path = self._folder / config.value / f"{split.value}-{number:05d}.parquet"
                path.parent.mkdir(exist_ok=True)
                self._writers[place] = ParquetWriter(path, self._schemas[config])
            self._writers[place].write_table(pa.Table.from_pylist(rows, self._schemas[config]))
        if ends and place in self._writers:
            self._writers.pop(place).close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            # What is there is half a data set; the next attempt begins by removing it.
            return
        for place in list(self._decisions):
            self._flush(place, ends=True)


def case_columns(case: RoutingCase, level: str | None, label: Route | None) -> dict[str, Any]:
    """What both configurations say of a case."""
    values = (
        case.case_id,
        case.question_id,
        label.value if label else None,
        level,
        case.task_type,
        case.document.type,
        case.answer_model.name,
    )
    return dict(zip(_CASE_TEXTS, values, strict=True))


def example_row(columns: Mapping[str, Any], trace: Trace, example: Example) -> dict[str, Any]:
    """A kept trace in TRL's conversational prompt-completion form."""
    return {
        **columns,
        "prompt": [message.model_dump() for message in example.prompt],
        "completion": [message.model_dump() for message in example.completion],
        "teacher": trace.teacher,
        "sample": trace.sample,
        "decision": trace.decision.value,
    }


def trace_row(
    columns: Mapping[str, Any], case: RoutingCase, trace: Trace, refused: str | None
) -> dict[str, Any]:
    """A trace with the metadata it was written from; `refused` is None where it is kept."""
    rationale = trace.rationale
    return {
        **columns,
        "question": case.question,
        "document_title": case.document.title,
        "document_tokens": case.document.tokens,
        "document_head": case.document.head,
        "context_window": case.answer_model.context_window,
        "answer_model_thinking": case.answer_model.thinking,
        "teacher": trace.teacher,
        "sample": trace.sample,
        **{step.value: rationale.steps.get(step) for step in Step},
        "reflection": rationale.reflection,
        "free_text": rationale.free_text,
        "reasoning": trace.reasoning,
        "decision": trace.decision.value,
        "kept": refused is None,
        "refused": refused,
        "prompt_tokens": trace.prompt_tokens,
        "completion_tokens": trace.completion_tokens,
        "prompt_hash": trace.prompt_hash,
    }


def _example_schema() -> pa.Schema:
    import pyarrow as pa

    messages = pa.list_(pa.struct([("role", pa.string()), ("content", pa.string())]))
    return pa.schema(
        [
            ("prompt", messages),
            ("completion", messages),
            *_case_fields(),
            ("teacher", pa.string()),
            ("sample", pa.int64()),
            ("decision", pa.string()),
        ]
    )


def _trace_schema() -> pa.Schema:
    import pyarrow as pa

    texts = [*(step.value for step in Step), "reflection", "free_text", "reasoning", "decision"]
    return pa.schema(
        [
            *_case_fields(),
            ("question", pa.string()),
            ("document_title", pa.string()),
            ("document_tokens", pa.int64()),
            ("document_head", pa.string()),
            ("context_window", pa.int64()),
            ("answer_model_thinking", pa.bool_()),
            ("teacher", pa.string()),
            ("sample", pa.int64()),
            *((name, pa.string()) for name in texts),
            ("kept", pa.bool_()),
            ("refused", pa.string()),
            ("prompt_tokens", pa.int64()),
            ("completion_tokens", pa.int64()),
            ("prompt_hash", pa.string()),
        ]
    )


def _case_fields() -> list[tuple[str, pa.DataType]]:
    import pyarrow as pa

    return [(name, pa.string()) for name in _CASE_TEXTS]
