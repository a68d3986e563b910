"""cases: what lies in the source's folder is told apart, whatever its files are called."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from prerouter.core.protocols import SilentProgress
from prerouter.recipe.recipe import Recipe
from prerouter.runs.stage import execute
from prerouter.stages import cases


def test_a_file_name_that_is_not_utf8_is_hashed_like_any_other(
    tmp_path: Path, repository: Path
) -> None:
    sample = tmp_path / "sample"
    shutil.copytree(repository / "data" / "sample", sample)
    recipe = Recipe.model_validate(
        {
            "name": "mine",
            "runs_dir": str(tmp_path / "runs"),
            "cases": {
                "source": "sample",
                "path": str(sample),
                "documents": 10,
                "answer_models": [{"name": "reader"}],
            },
        }
    )

    def run() -> str:
        return execute(cases.STAGE, recipe, SilentProgress()).action

    assert run() == "done"
    name = os.fsencode(sample / "documents") + b"/caf\xe9.txt"
    with open(name, "wb") as file:
        file.write(b"1")
    assert [run(), run()] == ["done", "passed over"]
    os.rename(name, name.replace(b"\xe9", b"\xff"))
    assert run() == "done"
