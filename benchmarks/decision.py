"""Decisions a second: Self-Route's check, the six steps, and the route at once.

One model, the same cases, one run; the three take turns, so that what else the machine does falls
on all. Self-Route's check reads a prompt of 2,600 tokens (Pre-Route, section 1: Cost) and writes 27
at most. Seconds of a case are its share of its batch. The last line sets the forward passes of
`decide` against the machine's measured peak in matrix products.

    python benchmarks/decision.py --router runs/lara_cpu/publish/router \
        --cases runs/lara_cpu/cases/rows.jsonl
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message, RoutingCase, StudentMode
from prerouter.engines.transformers import TransformersModel
from prerouter.routers.learned import LearnedRouter
from prerouter.runs.rows import read_rows

CHECK_TOKENS, VERDICT_TOKENS = 2_600, 27
FASTER_THAN_EXPLAIN, FASTER_THAN_CHECK, OF_PEAK = 10.0, 2.0, 0.7


@dataclass
class Turn:
    """What one turn over all cases took: wall seconds, tokens in and out, seconds of each case."""

    wall: float
    read: int
    written: int
    each: list[float]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--router", type=Path, required=True, help="trained in both modes")
    parser.add_argument("--cases", type=Path, required=True, help="RoutingCase rows")
    parser.add_argument("--count", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--text", type=Path, default=Path("data/sample/documents/report-22.txt"))
    options = parser.parse_args()

    cases = list(islice(read_rows(options.cases, RoutingCase), options.count))
    engine = TransformersModel(str(options.router), batch_size=options.batch_size)
    routers = {
        mode: LearnedRouter.from_pretrained(
            options.router, mode=mode, batch_size=options.batch_size
        )
        for mode in StudentMode
    }
    checks = [_check(engine, case, options.text.read_text("utf-8")) for case in cases]
    ways: dict[str, Callable[[], Turn]] = {
        "check": lambda: _verdicts(engine, checks),
        "explain": lambda: _route(routers[StudentMode.EXPLAIN], cases),
        "decide": lambda: _route(routers[StudentMode.DECIDE], cases),
    }
    routers[StudentMode.DECIDE].decide(cases[:2])
    turns: dict[str, list[Turn]] = {name: [] for name in ways}
    for number in range(options.turns):
        for name, way in ways.items():
            turns[name].append(way())
            print(f"turn {number + 1}, {name}: {turns[name][-1].wall:.1f} s")

    print(f"\n{len(cases)} cases, batches of {options.batch_size}; medians over the turns")
    print(f"{'':10}{'decisions/s':>12}{'tokens in':>11}{'out':>7}{'p50 ms':>9}{'p95 ms':>9}")
    speeds = {}
    for name, taken in turns.items():
        speeds[name] = statistics.median(len(cases) / turn.wall for turn in taken)
        each = sorted(seconds for turn in taken for seconds in turn.each)
        half, most = (1000 * each[int(share * (len(each) - 1))] for share in (0.5, 0.95))
        read, written = taken[0].read / len(cases), taken[0].written / len(cases)
        print(f"{name:10}{speeds[name]:12.2f}{read:11.0f}{written:7.1f}{half:9.0f}{most:9.0f}")
    for other, target in (("explain", FASTER_THAN_EXPLAIN), ("check", FASTER_THAN_CHECK)):
        print(f"decide beside {other}: {speeds['decide'] / speeds[other]:.1f} (target {target:g})")
    peak = _peak()
    used = _operations(engine, cases, routers[StudentMode.DECIDE]) / min(
        turn.wall for turn in turns["decide"]
    )
    print(f"decide: {used / 1e9:.0f} of {peak / 1e9:.0f} GFLOP/s, {used / peak:.2f} ({OF_PEAK})")
    print(f"peak memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB")


def _check(engine: TransformersModel, case: RoutingCase, text: str) -> GenerationRequest:
    """Self-Route's question to a model: can it be answered from these passages?"""
    instruction = "Can the question be answered from the passages? Begin with yes or no."
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        messages = _messages(instruction, text[:middle], case.question)
        fits = engine.count_tokens(messages) <= CHECK_TOKENS
        low, high = (middle, high) if fits else (low, middle - 1)
    return GenerationRequest(_messages(instruction, text[:low], case.question))


def _messages(instruction: str, passages: str, question: str) -> tuple[Message, ...]:
    return (
        Message(role="system", content=instruction),
        Message(role="user", content=f"{passages}\n\n{question}"),
    )


def _verdicts(engine: TransformersModel, requests: Sequence[GenerationRequest]) -> Turn:
    began = time.perf_counter()
    done = [completion for _, completion in engine.generate(requests, Sampling(VERDICT_TOKENS))]
    return Turn(
        time.perf_counter() - began,
        sum(completion.prompt_tokens for completion in done),
        sum(completion.completion_tokens for completion in done),
        [completion.seconds for completion in done],
    )


def _route(router: LearnedRouter, cases: Sequence[RoutingCase]) -> Turn:
    began = time.perf_counter()
    decisions = router.decide(cases)
    return Turn(
        time.perf_counter() - began,
        sum(decision.prompt_tokens for decision in decisions),
        sum(decision.completion_tokens for decision in decisions),
        [decision.seconds for decision in decisions],
    )


def _operations(
    engine: TransformersModel, cases: Sequence[RoutingCase], router: LearnedRouter
) -> float:
    """Floating-point operations of the matrix products that `decide` needs: two for each weight
    and token that is read (what the prompts share, once), the vocabulary for the last one only."""
    model = engine._model
    embedding = model.get_input_embeddings().weight.numel()
    weights = sum(parameter.numel() for parameter in model.parameters()) - embedding
    shared = router._engine._reader.shared_tokens  # type: ignore[attr-defined]
    read = shared + sum(decision.prompt_tokens - shared for decision in router.decide(cases))
    return float(2 * weights * read + 2 * embedding * len(cases))


def _peak() -> float:
    """Floating-point operations a second of a large bfloat16 matrix product, the best of five."""
    import torch

    size = 2048
    left, right = (torch.randn(size, size, dtype=torch.bfloat16) for _ in range(2))
    left @ right
    best = 0.0
    for _ in range(5):
        began = time.perf_counter()
        left @ right
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


if __name__ == "__main__":
    main()
