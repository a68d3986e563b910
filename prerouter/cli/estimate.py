"""`prerouter estimate`: calls, tokens, USD and GPU-hours of the teacher before they are spent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from prerouter.cli.console import TerminalProgress, plain
from prerouter.cli.pilot import Pilot, run_pilot
from prerouter.cli.teacher_tokens import (
    count_prompts,
    make_cases,
    output_tokens,
    taught_cases,
    tokenizer_folder,
)
from prerouter.core.errors import CombinedError, InputError, PrerouterError, RecipeError
from prerouter.core.protocols import Progress
from prerouter.core.records import Count, Record
from prerouter.measures.cost import Tokens, gpu_hours, output_per_call, usd
from prerouter.recipe.engine import EngineSection, OpenAIEngine, RayEngine, VllmEngine
from prerouter.recipe.prices import Price, load_prices
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.recipe.teach import TeachSection

CONFIDENCE = 0.95
RESAMPLES = 1000
MAX_FIGURE = 1e9


@dataclass(frozen=True)
class Options:
    """What the options of the command say."""

    tokenizer: Path | None
    pilot: int | None
    output_tokens: float | None
    throughput: float | None
    gpus: int | None
    prices: Path | None
    skip_bad: bool


class PromptTokens(Record):
    """Tokens of all prompts. The first `shared_prefix` of each are the same; `repeated` of the
    `total` begin a prompt as an earlier one began, so a prefix cache need not read them again."""

    total: Count
    longest: Count
    shared_prefix: Count
    repeated: Count


class OutputTokens(Record):
    """Output tokens of all calls, with a 95% interval over the `cases` they were taken from.

    `basis` tells where they come from; `limit` is no estimate but teach.max_tokens in every call.
    `unknown` replies were paid for and are in no mean: their tokens were not told.
    """

    basis: Literal["pilot", "traces", "given", "limit"]
    per_call: float
    total: Count
    low: Count | None = None
    high: Count | None = None
    cases: Count = 0
    unknown: Count = 0
    note: str | None = None


class Dollars(Record):
    """`cached` is the cost where every repeated token comes from a cache with a price."""

    total: float
    low: float | None = None
    high: float | None = None
    cached: float | None = None
    price: Price


class GpuTime(Record):
    """`throughput` is in generated tokens a second, of all `gpus` together."""

    gpu_hours: float
    hours: float
    throughput: float
    gpus: Count


class Estimate(Record):
    """What the teacher would cost. None where it can't be known, never 0."""

    teacher: str
    engine: str
    cases: Count
    samples: Count
    calls: Count
    prompt: PromptTokens
    output: OutputTokens
    usd: Dollars | None = None
    gpu: GpuTime | None = None
    notes: tuple[str, ...] = ()


def estimate_recipe(
    path: Path, overrides: Sequence[str], options: Options, *, as_json: bool
) -> None:
    recipe = load_recipe(path, overrides)
    section = recipe.teach
    if section is None:
        raise RecipeError(f"{path}: teach", "the recipe has no such section", next_step="add it")
    if section.engine is None:
        raise RecipeError(
            f"{path}: teach.teacher",
            "guideline writes by rules: no model is called, nothing is paid",
        )
    with TerminalProgress() as progress:
        estimate = make_estimate(recipe, section, section.engine, options, progress)
    if as_json:
        plain(estimate.model_dump_json(indent=2))
    else:
        for line in describe(estimate):
            plain(line)


def make_estimate(
    recipe: Recipe,
    section: TeachSection,
    engine: EngineSection,
    options: Options,
    progress: Progress,
) -> Estimate:
    """Count, ask the pilot's questions where there is one, and price. Raises before anything is
    spent where the tokenizer, the price table or the options are wrong."""
    _check(options)
    folder = tokenizer_folder(engine, options.tokenizer)
    table, table_path = load_prices(options.prices or recipe.prices)
    if options.pilot:
        make_cases(recipe, options.skip_bad, progress)
    cases = taught_cases(recipe, section, options.skip_bad)
    if not cases:
        raise RecipeError("teach.splits", "no case stands in them", next_step="add a split")
    lengths, shared = count_prompts(cases, section, engine, folder, progress)
    pilot = run_pilot(recipe, cases, options.pilot, progress) if options.pilot else None
    calls = len(cases) * section.samples
    prompt = PromptTokens(
        total=section.samples * sum(lengths),
        longest=max(lengths),
        shared_prefix=shared,
        repeated=(len(cases) - 1) * shared + (section.samples - 1) * sum(lengths),
    )
    output = _output(recipe, section, options, pilot, calls)
    price = table.models.get(engine.model)
    notes = []
    if price is None:
        notes.append(f"no price for {engine.model}; add it to {table_path}")
    elif not isinstance(engine, OpenAIEngine):
        notes.append(
            f"USD are what others would bill at this price: {engine.kind} runs on your own "
            "machines, and takes GPU-hours (--throughput)"
        )
    if output.basis == "traces" and isinstance(engine, OpenAIEngine):
        notes.append(
            "traces tell of no attempt that was cut off and asked again, though it is paid"
        )
    if pilot is not None:
        notes += _pilot_notes(pilot, dict(zip((c.case_id for c in cases), lengths, strict=True)))
    gpus = options.gpus or engine_gpus(engine)
    if options.throughput and not gpus:
        notes.append("no GPU-hours: the engine takes no GPU; --gpus for one that does")
    return Estimate(
        teacher=engine.model,
        engine=engine.kind,
        cases=len(cases),
        samples=section.samples,
        calls=calls,
        prompt=prompt,
        output=output,
        usd=_dollars(prompt, output, price) if price else None,
        gpu=GpuTime(
            gpu_hours=gpu_hours(output.total, options.throughput, gpus),
            hours=gpu_hours(output.total, options.throughput, 1),
            throughput=options.throughput,
            gpus=gpus,
        )
        if options.throughput and gpus
        else None,
        notes=tuple(notes),
    )


def _check(options: Options) -> None:
    wrong: list[PrerouterError] = []
    if options.pilot and options.output_tokens:
        wrong.append(InputError("--output-tokens", "is what --pilot measures", "one of the two"))
    if options.gpus and not options.throughput:
        wrong.append(InputError("--gpus", "says nothing without --throughput", "both"))
    for name, value in (
        ("--output-tokens", options.output_tokens),
        ("--throughput", options.throughput),
    ):
        if value is not None and not 0 < value <= MAX_FIGURE:
            wrong.append(InputError(name, f"is {value:g}", f"above 0, to {MAX_FIGURE:g}"))
    if wrong:
        raise CombinedError(wrong)


def engine_gpus(engine: EngineSection) -> int:
    """The accelerators that the recipe asks for; 1 where a server hides them."""
    if isinstance(engine, RayEngine):
        each = engine.tensor_parallel_size * engine.pipeline_parallel_size
        given = engine.gpus_per_replica
        return engine.replicas * (each if given is None else given)
    if isinstance(engine, VllmEngine):
        sizes = engine.tensor_parallel_size * engine.pipeline_parallel_size
        return sizes * engine.data_parallel_size
    return 1


def _output(
    recipe: Recipe, section: TeachSection, options: Options, pilot: Pilot | None, calls: int
) -> OutputTokens:
    if options.output_tokens:
        total = round(options.output_tokens * calls)
        return OutputTokens(basis="given", per_call=options.output_tokens, total=total)
    told, untold = output_tokens(recipe)
    if pilot is not None:
        told |= {key: output for key, (_, output) in pilot.tokens.items()}
    by_case: dict[str, list[int]] = {}
    for key, tokens in told.items():
        by_case.setdefault(key.rpartition("|")[0], []).append(tokens)
    if not by_case:
        limit = section.max_tokens
        return OutputTokens(basis="limit", per_call=limit, total=limit * calls)
    found = output_per_call(by_case, CONFIDENCE, RESAMPLES, recipe.seed)
    assert found.value is not None
    return OutputTokens(
        basis="pilot" if pilot else "traces",
        per_call=found.value,
        total=round(found.value * calls),
        low=round(found.interval.low * calls) if found.interval else None,
        high=round(found.interval.high * calls) if found.interval else None,
        cases=len(by_case),
        unknown=len(untold - set(told)),
        note=found.note,
    )


def _dollars(prompt: PromptTokens, output: OutputTokens, price: Price) -> Dollars:
    def cost(tokens: int, cached: int = 0) -> float:
        return usd(Tokens(prompt.total, tokens, cached), price)

    return Dollars(
        total=cost(output.total),
        low=None if output.low is None else cost(output.low),
        high=None if output.high is None else cost(output.high),
        cached=None if price.cached_input is None else cost(output.total, prompt.repeated),
        price=price,
    )


def _pilot_notes(pilot: Pilot, lengths: dict[str, int]) -> list[str]:
    """What a user should know of the pilot before believing in it."""
    notes = []
    for what, counts in (("refused", pilot.refused), ("failed", pilot.failed)):
        if counts:
            reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(counts.items()))
            notes.append(f"pilot: {counts.total()} {what} ({reasons})")
    if pilot.lost_prompt_tokens:
        notes.append(
            f"pilot: {pilot.lost_prompt_tokens:,} more prompt tokens went to attempts that gave no "
            "reply to keep; their output is in the estimate, their prompts are not"
        )
    off = [
        (told, lengths[key.rpartition("|")[0]])
        for key, (told, _) in pilot.tokens.items()
        if told and told != lengths[key.rpartition("|")[0]]
    ]
    if off:
        told, counted = off[0]
        notes.append(
            f"pilot: the engine counts other prompt tokens in {len(off)} of {len(pilot.tokens)} "
            f"calls ({told:,} where the tokenizer gives {counted:,}): is it the teacher's own?"
        )
    return notes


def describe(estimate: Estimate) -> list[str]:
    """The estimate in lines for people."""
    prompt = estimate.prompt
    lines = [
        f"teach: {estimate.calls:,} calls of {estimate.teacher} through {estimate.engine} "
        f"({estimate.cases:,} cases, {estimate.samples} samples each)",
        f"prompt tokens: {prompt.total:,} ({prompt.total / estimate.calls:,.0f} a call, "
        f"{prompt.longest:,} at most)",
        f"    {prompt.repeated:,} of them repeat an earlier prompt, which a prefix cache reads "
        f"once (the first {prompt.shared_prefix:,} of every call are the same)",
        _describe_output(estimate.output),
    ]
    bound = "at most " if estimate.output.basis == "limit" else ""
    if estimate.usd:
        lines += _describe_usd(estimate.usd, bound)
    if estimate.gpu:
        gpu = estimate.gpu
        lines.append(
            f"GPU-hours: {bound}{gpu.gpu_hours:,.1f} ({gpu.gpus} GPUs for {gpu.hours:,.1f} hours "
            f"at {gpu.throughput:,.0f} generated tokens a second)"
        )
    return [*lines, *estimate.notes]


def _describe_output(output: OutputTokens) -> str:
    if output.basis == "limit":
        return (
            f"output tokens: at most {output.total:,} (teach.max_tokens, {output.per_call:,.0f}, "
            "in every call); give --pilot N or --output-tokens M for an estimate"
        )
    line = f"output tokens: {output.total:,}"
    if output.low is not None and output.high is not None:
        line += f", 95% interval {output.low:,} to {output.high:,}"
    source = {
        "given": "as given",
        "pilot": f"from a pilot of n = {output.cases} cases",
        "traces": f"from the traces of n = {output.cases} cases in this run",
    }[output.basis]
    line += f" ({output.per_call:,.0f} a call, {source}"
    if output.note:
        line += f"; {output.note}"
    if output.unknown:
        line += f"; {output.unknown} replies whose tokens are not known are left out"
    return f"{line})"


def _describe_usd(cost: Dollars, bound: str) -> list[str]:
    price = cost.price
    line = f"USD: {bound}{cost.total:,.2f}"
    if cost.low is not None and cost.high is not None:
        line += f", {cost.low:,.2f} to {cost.high:,.2f}"
    lines = [
        f"{line} (a million tokens cost {price.input:g} in and {price.output:g} out: "
        f"{price.source}, {price.date})"
    ]
    if cost.cached is not None:
        lines.append(
            f"    {cost.cached:,.2f} where all that repeats is read from a cache "
            f"({price.cached_input:g} a million)"
        )
    return lines
