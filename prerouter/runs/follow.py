"""A stage in a process that is not its launcher's first."""

from __future__ import annotations

from prerouter.core.protocols import SilentProgress
from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import altered_files, read_manifest
from prerouter.runs.processes import check_shared
from prerouter.runs.stage import Stage, StageRun, fingerprint_of


def follow(stage: Stage, recipe: Recipe, *, force: bool = False, skip_bad: bool = False) -> None:
    """`execute` without the writing: works along with the first process, which has the run's lock.

    What is finished is passed over by all of them: each finds the same, since nothing changes it.
    """
    check_shared(stage.name, stage.shared)
    folder = recipe.run_dir / stage.name
    fingerprint = fingerprint_of(stage, recipe, skip_bad)
    try:
        finished = None if force else read_manifest(folder)
        stands = finished is not None and not (
            finished.fingerprint.differences(fingerprint)
            or altered_files(folder, finished)
            or stage.lost(recipe)
        )
    except FileNotFoundError:  # the first process clears the folder already
        stands = False
    if not stands:
        stage.run(StageRun(recipe, folder, SilentProgress(), skip_bad, leads=False))
