"""The commands for several GPUs fit the recipes that they are written for."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from prerouter.recipe.recipe import load_recipe
from prerouter.stages.pipeline import VERBS, stages_of
from tests.docs.blocks import REPOSITORY, blocks_of, commands_of, of_prerouter

PAGE = REPOSITORY / "docs" / "how-to" / "several-gpus.md"
RECIPES = sorted((REPOSITORY / "recipes").glob("preroute_qwen3_*.yaml"))
LAUNCHERS = sorted((REPOSITORY / "recipes" / "accelerate").glob("*.yaml"))
BATCH = 32
"""Examples a step, as the paper has them."""


def documented_sets(path: Path) -> list[str]:
    """What follows `--set` in the comments of a recipe, or in the commands of a page."""
    lines = path.read_text("utf-8").splitlines()
    if path.suffix == ".yaml":
        lines = [line.lstrip("# ") for line in lines if line.startswith("#")]
    found = []
    for line in lines:
        quoted = re.findall(r"--set ('[^']+'|[^\s,`]+)", line)
        found += [shlex.split(word)[0] for word in quoted]
    return [word for word in found if "..." not in word]


def test_the_first_block_is_every_stage_before_training_then_training_then_the_rest() -> None:
    block = next(block for block in blocks_of(PAGE) if block.language == "bash")
    asked = [of_prerouter(command.words) for command in commands_of(block)]
    *before, launched, rest = [words[0] for words in asked if words]
    assert len(asked) == len(before) + 2
    assert (launched, rest) == ("train", "run")
    assert len(RECIPES) == 3
    for path in RECIPES:
        names = [stage.name for stage in stages_of(load_recipe(path))]
        assert names[: names.index("train")] == before, path.name
    assert set(before) < VERBS.keys()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_what_is_to_be_set_can_be(path: Path) -> None:
    for documented in (PAGE, *LAUNCHERS):
        for setting in documented_sets(documented):
            load_recipe(path, [setting])
    own = documented_sets(path)
    found = load_recipe(path, own).train
    assert found is not None
    batch = found.sft["per_device_train_batch_size"]
    steps = found.sft.get("gradient_accumulation_steps", 1)
    assert batch * steps * (found.processes or 1) == BATCH


def test_settings_are_found_where_they_are_written() -> None:
    assert "train.watch=null" in documented_sets(PAGE)
    assert all("train.watch=null" in documented_sets(p) for p in LAUNCHERS if "fsdp" in p.name)
    four = documented_sets(REPOSITORY / "recipes" / "preroute_qwen3_4b.yaml")
    assert four[0] == "train.processes=1"
    assert len(four) == 3
