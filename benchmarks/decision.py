"""Decisions a second: Self-Route's check, the six steps, and the route at once.

One model, the same test cases of a finished run, one run of this file; the three take turns, each
in a process of its own, so that its memory is its own and what else the machine does falls on all.
Self-Route's check reads 2,600 tokens, passages that differ from case to case (Chen et al., 2026,
arXiv 2605.10235), and writes 27 tokens at most. `explain` is what this student writes; in
`explain_670` it is held to the 670 tokens that the paper's student writes. Decisions a second are
those of batches; p50 and p95 are of cases that are asked one by one. `decide` is then set against
the machine's peak in matrix products, the fastest of some passes against the fastest of some
products, in turns. The route accuracies of both modes are taken from the run's own rows.

    python benchmarks/decision.py --run runs/lara_cpu
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
from peak import matrix_peak

from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message, RoutingCase, Split, SplitAssignment, StudentMode
from prerouter.engines.transformers import TransformersModel
from prerouter.measures.routing import POOLED, Measure, RoutingRow
from prerouter.routers.learned import LearnedRouter
from prerouter.runs.rows import read_rows

CHECK_TOKENS, VERDICT_TOKENS = 2_600, 27
EXPLAIN_TOKENS = 670
HELD = f"explain_{EXPLAIN_TOKENS}"
WAYS = ("check", StudentMode.EXPLAIN, HELD, StudentMode.DECIDE)
STUDENTS = ("student", "student_decide", "student_decide_tuned")
TARGETS = {"explain": 10.0, HELD: 10.0, "check": 2.0}
OF_PEAK, POINTS, PASSES = 0.7, 2.0, 5

Asked = tuple[int, int]
"""Tokens read and written for one case."""


@dataclass
class Turn:
    """One turn over all cases: wall seconds of the batches, tokens in and out of each case, seconds
    of each case that was asked alone, peak memory in MiB, and `decide`'s share of the peak."""

    wall: float
    tokens: list[Asked]
    alone: list[float]
    memory: float
    of_peak: float | None = None


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--run", type=Path, required=True, help="its student learnt both modes")
    parser.add_argument("--count", type=int, default=64, help="test cases, a seeded sample")
    parser.add_argument("--alone", type=int, default=16, help="of them, also asked one by one")
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--text", type=Path, default=Path("data/sample/documents/report-22.txt"))
    options = parser.parse_args()

    cases = _test_cases(options.run)
    places = np.random.default_rng(13).permutation(len(cases))[: options.count]
    chosen = [cases[place] for place in places]
    turns: dict[str, list[Turn]] = {way: [] for way in WAYS}
    for number in range(options.turns):
        for way in WAYS:
            turns[way].append(_apart(way, chosen, options))
            print(f"turn {number + 1}, {way}: {turns[way][-1].wall:.1f} s", flush=True)
    _print(turns, len(chosen), options)
    _print_accuracies(options.run)


def _print(turns: dict[str, list[Turn]], count: int, options: argparse.Namespace) -> None:
    print(f"\n{count} cases, batches of {options.batch_size}; medians over {options.turns} turns")
    print(f"{'':12}{'decisions/s':>12}{'in':>7}{'out':>7}{'p50 ms':>9}{'p95 ms':>9}{'MiB':>8}")
    speeds = {}
    for way, taken in turns.items():
        speeds[way] = statistics.median(count / turn.wall for turn in taken)
        each = sorted(seconds for turn in taken for seconds in turn.alone)
        half, most = (1000 * each[ceil(share * len(each)) - 1] for share in (0.5, 0.95))
        read, written = (statistics.fmean(column) for column in zip(*taken[0].tokens, strict=True))
        memory = max(turn.memory for turn in taken)
        print(
            f"{way:12}{speeds[way]:12.2f}{read:7.0f}{written:7.1f}"
            f"{half:9.0f}{most:9.0f}{memory:8,.0f}"
        )
    for other, target in TARGETS.items():
        held = f", held to {EXPLAIN_TOKENS} tokens" if other == HELD else ""
        ratio = speeds["decide"] / speeds[other]
        print(f"decide beside {other}: {ratio:.1f} (target {target:g}){held}")
    shares = [turn.of_peak for turn in turns["decide"] if turn.of_peak is not None]
    if shares:
        print(
            f"decide, of the peak in matrix products: {statistics.median(shares):.2f}, by the "
            f"fastest of {PASSES} passes, of {len(shares)} turns {min(shares):.2f} to "
            f"{max(shares):.2f} (target {OF_PEAK})"
        )


def _apart(way: str, cases: Sequence[RoutingCase], options: argparse.Namespace) -> Turn:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(_turn, way, cases, options).result()


def _turn(way: str, cases: Sequence[RoutingCase], options: argparse.Namespace) -> Turn:
    folder = options.run / "publish" / "router"
    of_peak = None
    if way == "check":
        engine = TransformersModel(str(folder), batch_size=options.batch_size)
        text = options.text.read_text("utf-8")
        checks = {case.case_id: _check(engine, text, case, at) for at, case in enumerate(cases)}
        turn = _timed(
            lambda some: _verdicts(engine, [checks[case.case_id] for case in some]), cases, options
        )
    else:
        mode = StudentMode.EXPLAIN if way == HELD else StudentMode(way)
        router = LearnedRouter.from_pretrained(folder, mode=mode, batch_size=options.batch_size)
        if way == HELD:
            _hold(router, EXPLAIN_TOKENS)
        turn = _timed(lambda some: _routes(router, some), cases, options)
        if way == StudentMode.DECIDE:
            of_peak = _share_of_peak(router, cases)
    turn.of_peak = of_peak
    return turn


def _timed(
    ask: Callable[[Sequence[RoutingCase]], list[Asked]],
    cases: Sequence[RoutingCase],
    options: argparse.Namespace,
) -> Turn:
    ask(cases[:2])
    began = time.perf_counter()
    tokens = ask(cases)
    wall = time.perf_counter() - began
    alone = []
    for case in cases[: options.alone]:
        began = time.perf_counter()
        ask([case])
        alone.append(time.perf_counter() - began)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Turn(wall, tokens, alone, memory)


def _check(engine: TransformersModel, text: str, case: RoutingCase, at: int) -> GenerationRequest:
    """Self-Route's question to a model: can it be answered from these passages?"""
    instruction = "Can the question be answered from the passages? Begin with yes or no."
    # Passages of its own, as retrieval gives them: nothing of them is read once for all cases.
    text = f"{at}. {text[97 * at :]}"
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


def _verdicts(engine: TransformersModel, requests: Sequence[GenerationRequest]) -> list[Asked]:
    done = [completion for _, completion in engine.generate(requests, Sampling(VERDICT_TOKENS))]
    return [(one.prompt_tokens, one.completion_tokens) for one in done]


def _routes(router: LearnedRouter, cases: Sequence[RoutingCase]) -> list[Asked]:
    return [(one.prompt_tokens, one.completion_tokens) for one in router.decide(cases)]


def _hold(router: LearnedRouter, tokens: int) -> None:
    """Let it write so many tokens, whatever it would rather do."""
    router._sampling = replace(router._sampling, max_tokens=tokens, schema=None)
    engine = router._engine
    assert isinstance(engine, TransformersModel)
    engine._stops = engine._stops[:0]


def _share_of_peak(router: LearnedRouter, cases: Sequence[RoutingCase]) -> float:
    fastest, peak = float("inf"), 0.0
    for _ in range(PASSES):
        peak = max(peak, matrix_peak())
        began = time.perf_counter()
        tokens = _routes(router, cases)
        fastest = min(fastest, time.perf_counter() - began)
    return _operations(router, tokens) / fastest / peak


def _operations(router: LearnedRouter, tokens: Sequence[Asked]) -> float:
    """Floating-point operations of the matrix products that `decide` needs: two for each weight and
    token that is read, four for each layer, head channel and pair of tokens in attention, the
    vocabulary for the last token only. What all prompts share is read once, and not counted."""
    engine = router._engine
    assert isinstance(engine, TransformersModel)
    model, shared = engine._model, engine._reader.shared_tokens
    config = model.config.get_text_config()
    embedding = model.get_input_embeddings().weight.numel()
    head = model.get_output_embeddings().weight
    tables = embedding if head is model.get_input_embeddings().weight else embedding + head.numel()
    weights = sum(parameter.numel() for parameter in model.parameters()) - tables
    read = [count - shared for count, _ in tokens]
    pairs = sum(new * shared + new * (new + 1) / 2 for new in read)
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    channels = config.num_attention_heads * size
    attention = 4 * config.num_hidden_layers * channels * pairs
    return float(2 * weights * sum(read) + attention + 2 * head.numel() * len(read))


def _test_cases(run: Path) -> list[RoutingCase]:
    sides = read_rows(run / "cases" / "split.jsonl", SplitAssignment)
    tested = {side.question_id for side in sides if side.split is Split.TEST}
    cases = read_rows(run / "cases" / "rows.jsonl", RoutingCase)
    return [case for case in cases if case.question_id in tested]


def _print_accuracies(run: Path) -> None:
    """Agreement with the ideal route over all labelled test cases, as `evaluate` measured it."""
    found = {
        row.router: row.measures[Measure.ACCURACY].value
        for row in read_rows(run / "evaluate" / "rows.jsonl", RoutingRow)
        if row.answer_model is POOLED
    }
    explain, *decide = (found.get(name) for name in STUDENTS)
    for name in STUDENTS:
        if (accuracy := found.get(name)) is not None:
            print(f"route accuracy of {name:22}{accuracy:7.1%}")
    if explain is not None:
        apart = [100 * (accuracy - explain) for accuracy in decide if accuracy is not None]
        shown = ", ".join(f"{points:+.1f}" for points in apart)
        print(f"decide beside explain: {shown} points (target: at least -{POINTS:g})")


if __name__ == "__main__":
    main()
