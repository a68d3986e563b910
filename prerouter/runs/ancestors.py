"""A verb by itself rests on what stands in the run: is that still what the recipe asks for?"""

from __future__ import annotations

from collections.abc import Mapping

from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import first_run, read_manifest
from prerouter.runs.stage import Stage, fingerprint_of


def check_ancestors(stage: Stage, recipe: Recipe, stages: Mapping[str, Stage]) -> None:
    """Raises StageError for the first stage above `stage` that `prerouter run` would run anew.

    What each was made of (seed, sections, inputs, hashes of its parents' files) is compared with
    what it would be made of now. Rows are not hashed here: `execute` does that for its parents'.
    """
    for name in _above(stage, recipe, stages):
        finished = read_manifest(recipe.run_dir / name)
        if finished is None:
            raise first_run(stage.name, name, f"is not finished in {recipe.run_dir}")
        # Whether bad rows were skipped is a choice of the command line that made the cases.
        skip_bad = bool(finished.fingerprint.sections.get("skip_bad"))
        now = fingerprint_of(stages[name], recipe, skip_bad, verify=False)
        changes = finished.fingerprint.differences(now) or stages[name].lost(recipe)
        if changes:
            raise first_run(stage.name, name, f"is out of date: {'; '.join(changes)}")


def _above(stage: Stage, recipe: Recipe, stages: Mapping[str, Stage]) -> dict[str, None]:
    """Names of all stages that `stage` rests on, parents before their children."""
    found: dict[str, None] = {}
    for file in stage.parents(recipe):
        name = file.partition("/")[0]
        found |= _above(stages[name], recipe, stages) | {name: None}
    return found
