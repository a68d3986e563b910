"""`prerouter dataset`: the data set's folder, and its way to the Hub."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from prerouter.cli.push import ask_to_push, send
from prerouter.cli.run import run_recipe
from prerouter.publishing.hub import Parcel
from prerouter.publishing.privacy import check_private, private_here
from prerouter.recipe.recipe import load_recipe


def make_dataset(path: Path, overrides: Sequence[str], *, force: bool, push: bool) -> None:
    """Run the stage; with `push`, look through its folder for what is private and put it on the
    Hub. What a push needs is checked first."""
    if not push:
        run_recipe(path, overrides, force=force, skip_bad=False, only="dataset")
        return
    recipe = load_recipe(path, overrides)
    section = recipe.dataset
    named = section.repo_id if section else None
    way = "--set dataset.repo_id=..."
    token = ask_to_push(f"{path}: dataset.repo_id", named, "you/traces", way)
    run_recipe(path, overrides, force=force, skip_bad=False, only="dataset")
    assert section is not None
    assert section.repo_id is not None
    parcel = Parcel("dataset", recipe.dataset_dir, section.repo_id, section.private)
    # It quotes the cases by intent; keys and paths it does not.
    known = private_here(os.environ, (recipe.run_dir, Path.cwd()), recipe)
    check_private(parcel.folder, parcel.files, known)
    send(parcel, token)
