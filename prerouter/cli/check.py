"""`prerouter check`: all that can be known of a recipe without a GPU, a network or torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from prerouter.cli.console import plain
from prerouter.core.errors import InputError, RecipeError
from prerouter.core.records import RoutingCase, Split, SplitAssignment
from prerouter.recipe.recipe import Recipe, load_recipe


@dataclass(frozen=True)
class Lengths:
    """Tokens of the student's prompts, and how many leave the completion too little room."""

    longest: int
    limit: int
    reply_limit: int
    over: int


def check_recipe(path: Path, overrides: Sequence[str], tokenizer: Path | None) -> None:
    """Validate the recipe, read its cases, and print what a run would do and cost in calls."""
    recipe = load_recipe(path, overrides)
    plain(f"{path}: every key is known and every value fits")
    cases, assignments = _read_cases(recipe)
    side = {assignment.question_id: assignment.split for assignment in assignments}
    plain(f"cases: {len(cases):,} over {len(side):,} questions, {_by_split(cases, side)}")
    for line in _plan(recipe, cases, side):
        plain(line)
    if tokenizer is not None:
        plain(_describe(measure_lengths(recipe, cases, side, tokenizer)))
    for line in _not_installed(recipe):
        plain(line)


def measure_lengths(
    recipe: Recipe,
    cases: Sequence[RoutingCase],
    side: dict[str, Split],
    tokenizer: Path,
) -> Lengths:
    """Count every prompt that the student would be trained on. Raises RecipeError where even the
    longest prompt leaves no room at all."""
    from prerouter.prompts.render import render_student
    from prerouter.training.lengths import token_counter

    section = recipe.train
    if section is None:
        raise RecipeError("--tokenizer", "there is nothing to measure", "a recipe with `train`")
    count = token_counter(tokenizer)
    lengths = [
        count(render_student(case, section.prompt, section.metadata), section.thinking)
        for case in cases
        if side[case.question_id] is not Split.TEST
    ]
    reply = recipe.teach.max_tokens if recipe.teach else 0
    longest = max(lengths, default=0)
    if longest >= section.max_length:
        raise RecipeError(
            "train.max_length",
            f"the longest prompt alone has {longest:,} tokens",
            f"fewer than {section.max_length:,}",
            "raise it, shorten cases.head_characters, or take train.prompt: compact",
        )
    over = sum(length + reply > section.max_length for length in lengths)
    return Lengths(longest, section.max_length, reply, over)


def _read_cases(recipe: Recipe) -> tuple[list[RoutingCase], list[SplitAssignment]]:
    from prerouter.stages.cases import divide, load, source_paths

    for source in source_paths(recipe.cases):
        if not source.exists():
            raise InputError(
                str(source),
                "no such file or folder",
                f"looked for {source.absolute()}",
                "mend the path, or give it by --set cases.path=...",
            )
    divided = divide(recipe, load(recipe, skip_bad=False))
    return divided.cases, divided.assignments


def _by_split(cases: Sequence[RoutingCase], side: dict[str, Split]) -> str:
    counts = dict.fromkeys(Split, 0)
    for case in cases:
        counts[side[case.question_id]] += 1
    return ", ".join(f"{split.value} {count:,}" for split, count in counts.items())


def _plan(recipe: Recipe, cases: Sequence[RoutingCase], side: dict[str, Split]) -> list[str]:
    from prerouter.stages.pipeline import stages_of

    lines = ["stages: " + ", ".join(stage.name for stage in stages_of(recipe))]
    if recipe.teach:
        taught = sum(side[case.question_id] in recipe.teach.splits for case in cases)
        calls = taught * recipe.teach.samples
        if recipe.teach.engine is None:
            lines.append(f"teach: {calls:,} traces by the guideline rules, no call of a model")
        else:
            engine = recipe.teach.engine
            lines.append(
                f"teach: {calls:,} calls of {engine.model} through {engine.kind} "
                f"({taught:,} cases, {recipe.teach.samples} samples each)"
            )
    if recipe.train:
        section = recipe.train
        if section.model.startswith(("/", ".", "~")) and not Path(section.model).is_dir():
            raise InputError(section.model, "no such folder", next_step="mend train.model")
        way = f"LoRA r={section.lora.r}" if section.lora else "full fine-tuning"
        lines.append(f"train: {section.model}, {way}, {section.prompt} prompt, {section.dtype}")
        if section.sft:
            shown = ", ".join(f"{key}={value}" for key, value in section.sft.items())
            lines.append(f"train.sft: {shown}")
    return lines


def _describe(lengths: Lengths) -> str:
    whole = lengths.longest + lengths.reply_limit
    line = (
        f"examples: the longest prompt has {lengths.longest:,} tokens; with a reply of "
        f"teach.max_tokens ({lengths.reply_limit:,}) {whole:,} of {lengths.limit:,}"
    )
    if lengths.over:
        return f"{line}; {lengths.over:,} prompts could pass the limit and would be refused"
    return f"{line}: fits"


def _not_installed(recipe: Recipe) -> list[str]:
    """What the recipe would need here that isn't there: told, since a check runs elsewhere too."""
    needed = {"torch": "train", "transformers": "train", "trl": "train"} if recipe.train else {}
    if recipe.teach and recipe.teach.engine and recipe.teach.engine.kind == "vllm":
        needed["vllm"] = "vllm"
    return [
        f"not installed here: {package} (pip install 'prerouter[{extra}]')"
        for package, extra in needed.items()
        if util.find_spec(package) is None
    ]
