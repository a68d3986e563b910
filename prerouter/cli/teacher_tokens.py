"""What the teacher is shown and what it has written so far, counted in its own tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from prerouter.cli.check import read_cases
from prerouter.core.errors import RecipeError, StageError
from prerouter.core.protocols import Progress
from prerouter.core.records import Record, Reject, RoutingCase, SplitAssignment, Trace
from prerouter.measures.cost import used_tokens
from prerouter.prompts.trace import TraceReason
from prerouter.recipe.engine import EngineSection, OpenAIEngine
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.teach import TeachSection

RecordT = TypeVar("RecordT", bound=Record)

BATCH = 256


def tokenizer_folder(engine: EngineSection, given: Path | None) -> Path:
    """Where the teacher's own tokenizer lies. Raises RecipeError where it isn't on this machine."""
    from prerouter.engines.embedded import resolve_model

    folder = given or Path(resolve_model(engine.model))
    if given is None and not folder.is_dir():
        raise RecipeError(
            "--tokenizer",
            f"is needed: the tokenizer of {engine.model} is not on this machine",
            "a folder with its tokenizer.json and its chat template (tokenizer_config.json)",
            "download these files, which need no weights",
        )
    return folder


def make_cases(recipe: Recipe, skip_bad: bool, progress: Progress) -> None:
    """A pilot is the beginning of a run, so its cases are made first where there are none."""
    from prerouter.runs.manifest import read_manifest
    from prerouter.runs.stage import execute
    from prerouter.stages import cases

    if read_manifest(recipe.run_dir / "cases") is None:
        execute(cases.STAGE, recipe, progress, skip_bad=skip_bad)
    _check_run(recipe)


def _check_run(recipe: Recipe) -> None:
    """Raises StageError where the run's cases are not those that `teach` would be shown."""
    from prerouter.runs.ancestors import check_ancestors
    from prerouter.stages.pipeline import VERBS

    check_ancestors(VERBS["teach"], recipe, VERBS)


def taught_cases(recipe: Recipe, section: TeachSection, skip_bad: bool) -> list[RoutingCase]:
    """The cases that the teacher would be shown: the run's, or else the source's own, read anew.

    Raises StageError where they are to show inferred metadata that are not there yet.
    """
    from prerouter.runs.rows import read_rows
    from prerouter.stages.teach import cases_to_teach

    unseen = recipe.split.unseen_models
    try:
        _check_run(recipe)
    except StageError:
        if recipe.profile:
            raise
        return cases_to_teach(*read_cases(recipe, skip_bad=skip_bad), section.splits, unseen)
    return cases_to_teach(
        read_rows(recipe.run_dir / recipe.cases_file, RoutingCase),
        read_rows(recipe.run_dir / "cases" / "split.jsonl", SplitAssignment),
        section.splits,
        unseen,
    )


def count_prompts(
    cases: Sequence[RoutingCase],
    section: TeachSection,
    engine: EngineSection,
    folder: Path,
    progress: Progress,
) -> tuple[list[int], int]:
    """Tokens of each case's prompt, and how many of the first are the same in all of them."""
    from prerouter.prompts.render import render_teacher
    from prerouter.training.lengths import prompt_tokenizer

    encode = prompt_tokenizer(folder)
    untold = isinstance(engine, OpenAIEngine) and engine.thinking_switch == "none"
    thinking = None if untold else section.thinking
    lengths: list[int] = []
    common: list[int] | None = None
    progress.start("estimate: counting", len(cases))
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        for ids in encode([render_teacher(case, section.prompt) for case in batch], thinking):
            lengths.append(len(ids))
            common = ids if common is None else common[: _shared(common, ids)]
        progress.advance(len(batch))
    return lengths, len(common or ())


def _shared(one: Sequence[int], other: Sequence[int]) -> int:
    if list(one) == list(other[: len(one)]):
        return len(one)
    pairs = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(one), len(other)))


def output_tokens(recipe: Recipe) -> tuple[dict[str, int], set[str]]:
    """Output tokens of the replies that `teach` has written for this recipe, by trace key; and the
    keys of replies whose tokens are not known (of what is refused, no tokens are kept)."""
    from prerouter.routers.prompted import trace_key
    from prerouter.runs.stage import REJECTS, ROWS, begun_for
    from prerouter.stages import teach

    told: dict[str, int] = {}
    untold: set[str] = set()
    try:
        _check_run(recipe)
        begun = begun_for(teach.STAGE, recipe)
    except StageError:
        begun = False
    if not begun:
        return told, untold
    folder = recipe.run_dir / "teach"
    for trace in _whole_rows(folder / ROWS, Trace):
        used = used_tokens(trace)
        if used and used.output:
            told[trace_key(trace)] = used.output
        else:
            untold.add(trace_key(trace))
    for reject in _whole_rows(folder / REJECTS, Reject):
        if reject.reason != TraceReason.CALL_FAILED:
            untold.add(reject.key)
    return told, untold


def _whole_rows(path: Path, model: type[RecordT]) -> Iterator[RecordT]:
    """The rows of a file that somebody may be writing: a torn last line is left alone."""
    from prerouter.runs.rows import decode

    if not path.exists():
        return
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.endswith(b"\n"):
                yield decode(line, model, path, number)
