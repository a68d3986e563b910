"""`prerouter run` and the verbs: which stage did what, and where its results lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prerouter.cli.console import TerminalProgress, plain
from prerouter.cli.show import print_table
from prerouter.core.errors import CombinedError, RecipeError
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.ancestors import check_ancestors
from prerouter.runs.follow import follow
from prerouter.runs.processes import rank
from prerouter.runs.stage import Outcome, execute


def run_recipe(
    path: Path,
    overrides: Sequence[str],
    *,
    force: bool,
    skip_bad: bool,
    only: str | None = None,
    retry_failed: bool = False,
) -> None:
    """Run the stages of a recipe, or the one named `only`, and print a line for each."""
    recipe = load_recipe(path, overrides)
    from prerouter.cli.needs import unmet
    from prerouter.stages.pipeline import VERBS, stages_of

    stages = stages_of(recipe)
    if only is not None:
        if VERBS[only] not in stages:
            raise RecipeError(
                f"{path}: {only}", "the recipe has no such section", next_step="add it"
            )
        stages = [VERBS[only]]
        check_ancestors(VERBS[only], recipe, VERBS)
    elif errors := unmet(recipe):
        raise CombinedError(errors)
    if rank():
        for stage in stages:
            follow(stage, recipe, force=force, skip_bad=skip_bad)
        return
    with TerminalProgress() as progress:
        for stage in stages:
            outcome = execute(
                stage, recipe, progress, force=force, skip_bad=skip_bad, retry_failed=retry_failed
            )
            progress.stop_task()
            progress.note(describe(outcome))
    if only in (None, "evaluate") and recipe.evaluate:
        print_table(recipe.run_dir)
    _print_paths(recipe, [stage.name for stage in stages])


def describe(outcome: Outcome) -> str:
    """One line for one stage: its rows, what was refused, how long it took."""
    manifest = outcome.manifest
    rows = manifest.files.get("rows.jsonl")
    parts = [f"{rows.rows:,} rows" if rows else "no rows"]
    if manifest.rejects:
        total = sum(manifest.rejects.values())
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in manifest.rejects.items())
        parts.append(f"{total:,} refused ({reasons})")
    if manifest.retriable:
        parts.append(f"--retry-failed makes {manifest.retriable:,} failed calls again")
    if outcome.action == "passed over":
        parts.append("unchanged, passed over")
    else:
        parts.append(f"{manifest.seconds:.1f} s")
    return f"{outcome.stage:<9} {'; '.join(parts)}"


def _print_paths(recipe: Recipe, stages: Sequence[str]) -> None:
    plain("\nWritten:")
    for name in stages:
        plain(f"  {recipe.run_dir / name}/")
    if "evaluate" in stages:
        plain(f"  {recipe.run_dir / 'evaluate' / 'table.md'}")
        if recipe.evaluate and recipe.evaluate.report:
            plain(f"  {recipe.run_dir / 'evaluate' / 'report' / 'index.html'}")
    if "dataset" in stages:
        plain(f"  {recipe.dataset_dir}/  (the data set, ready for the Hub)")
    if "publish" in stages:
        plain(f"  {recipe.published_dir}/  (the router, ready for the Hub)")
