"""`prerouter dataset`: the data set's folder, and its way to the Hub."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from prerouter.cli.console import plain
from prerouter.cli.run import run_recipe
from prerouter.core.errors import RecipeError
from prerouter.recipe.recipe import load_recipe


def make_dataset(path: Path, overrides: Sequence[str], *, force: bool, push: bool) -> None:
    """Run the stage; with `push`, put its folder on the Hub. What a push needs is checked first."""
    if not push:
        run_recipe(path, overrides, force=force, skip_bad=False, only="dataset")
        return
    from prerouter.publishing.hub import hub_token, push_dataset

    recipe = load_recipe(path, overrides)
    section = recipe.dataset
    if section is None or section.repo_id is None:
        raise RecipeError(
            f"{path}: dataset.repo_id",
            "missing, and --push needs it",
            "a name on the Hub such as you/traces",
            "add it, or give it by --set dataset.repo_id=...",
        )
    token = hub_token()
    run_recipe(path, overrides, force=force, skip_bad=False, only="dataset")
    address = push_dataset(recipe.dataset_dir, section.repo_id, section.private, token)
    plain(f"pushed in one commit: {address}")
