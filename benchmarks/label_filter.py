"""How fast records stream through `label` and `filter`, beside a bare json.loads loop.

    python benchmarks/label_filter.py [--records 1000000]

Writes that many paired scores and as many traces into a temporary folder, then in one process on
one core: json.loads over each line of a file, and our pass over the same file (validate, decide,
write the result by key). Prints records for a second of processor time, so that other work on the
machine counts less, their ratio, and the peak memory, each pass in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import multiprocessing.connection
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from prerouter.core.records import (
    ArmScore,
    Label,
    PairedScore,
    Rationale,
    Record,
    Reject,
    Route,
    Split,
    Step,
    Trace,
)
from prerouter.measures.traces import trace_key
from prerouter.runs.rejects import reject_key
from prerouter.runs.rows import RowLog, encode, read_lines, read_rows
from prerouter.stages.filter import Sieve
from prerouter.stages.label import label_scores

Pass = Callable[[Path, int], None]


def write_scores(path: Path, count: int) -> None:
    _write(
        path,
        (
            PairedScore(
                case_id=f"case-{number:07}",
                arms={
                    Route.RAG: ArmScore(score=number % 5),
                    Route.LC: ArmScore(score=number * 7 % 5),
                },
                high=4,
                judge="token_f1",
            )
            for number in range(count)
        ),
    )


def write_traces(path: Path, count: int) -> None:
    clause = "the answer stands in one place of a report of 12,000 tokens"
    _write(
        path,
        (
            Trace(
                case_id=f"case-{number:07}",
                teacher="guideline",
                rationale=Rationale(steps=dict.fromkeys(Step, clause), reflection=clause),
                decision=Route.LC if number % 3 else Route.RAG,
                prompt_hash="0" * 64,
            )
            for number in range(count)
        ),
    )


def bare_json(path: Path, count: int) -> None:
    with path.open("rb") as lines:
        assert sum(bool(json.loads(line)) for line in lines) == count


def our_label(path: Path, count: int) -> None:
    with (
        RowLog(path.with_suffix(".labels"), Label, lambda row: row.case_id, 1000) as rows,
        RowLog(path.with_suffix(".rejects"), Reject, reject_key, 1000) as rejects,
    ):
        for result in label_scores(read_rows(path, PairedScore), 0.0):
            if isinstance(result, Label):
                rows.append(result)
            else:
                rejects.append(result)
    assert len(rows.done) + len(rejects.done) == count


def our_filter(path: Path, count: int) -> None:
    keys = [f"case-{number:07}" for number in range(count)]
    labels = {
        key: Route.LC if number * 7 % 5 > number % 5 else Route.RAG
        for number, key in enumerate(keys)
    }
    sides = dict.fromkeys(keys, Split.TRAIN)
    with (
        RowLog(path.with_suffix(".kept"), Trace, trace_key, 1000) as rows,
        RowLog(path.with_suffix(".rejects"), Reject, reject_key, 1000) as rejects,
    ):
        sieve = Sieve(labels, sides, per_case=1)
        for trace, line in read_lines(path, Trace):
            reason = sieve.reason(trace)
            if reason is None:
                rows.append_encoded(trace_key(trace), line)
            else:
                rejects.append(Reject(stage="filter", key=trace_key(trace), reason=reason))
    assert len(rows.done) + len(rejects.done) == count


def _write(path: Path, records: Iterable[Record]) -> None:
    with path.open("wb") as file:
        file.writelines(encode(record) for record in records)


def measure(work: Pass, path: Path, count: int) -> tuple[float, float]:
    """Records a second and peak MiB of one pass, in a fresh process."""
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_measured, args=(work, path, count, sender))
    process.start()
    seconds, peak = receiver.recv()
    process.join()
    return count / seconds, peak


def _measured(
    work: Pass, path: Path, count: int, sender: multiprocessing.connection.Connection
) -> None:
    started = time.process_time()
    work(path, count)
    seconds = time.process_time() - started
    sender.send((seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records
    with tempfile.TemporaryDirectory() as folder:
        scores, traces = Path(folder) / "scores.jsonl", Path(folder) / "traces.jsonl"
        write_scores(scores, count)
        write_traces(traces, count)
        print(f"{count:,} records a pass; records a second, peak MiB")
        for name, path, ours in (("label", scores, our_label), ("filter", traces, our_filter)):
            bare, bare_peak = measure(bare_json, path, count)
            rate, peak = measure(ours, path, count)
            print(f"{name:<7} json.loads {bare:>9,.0f} {bare_peak:>6,.0f}")
            print(f"{name:<7} prerouter  {rate:>9,.0f} {peak:>6,.0f}   ratio {rate / bare:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
