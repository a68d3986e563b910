"""The code blocks of the documentation and the README hold what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.core import TyperGroup
from typer.main import get_command

from prerouter.cli.main import app
from prerouter.core.errors import PrerouterError
from prerouter.recipe.base import _known_keys, apply_overrides, parse_yaml, validate
from prerouter.recipe.prices import PriceTable
from prerouter.recipe.probe import ProbeStudy
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.study import PromptStudy
from tests.docs.blocks import (
    PAGES,
    REPOSITORY,
    Block,
    Command,
    blocks_of,
    commands_of,
    of_prerouter,
)

LANGUAGES = {"python", "yaml", "bash", "console", "json", "text", ""}
BLOCKS = [block for page in PAGES for block in blocks_of(page)]
BASE: dict[str, Any] = {
    "name": "mine",
    "cases": {"source": "table", "path": "mine.csv", "answer_models": [{"name": "reader"}]},
    "teach": {"teacher": "guideline"},
    "filter": {},
    "train": {"model": "Qwen/Qwen3-1.7B", "mix": {"explain": 1, "decide": 1}},
    "route": {},
    "evaluate": {},
}
"""What a fragment of a recipe stands in: its own sections take the place of these."""


def of(*languages: str) -> list[Any]:
    return [pytest.param(b, id=b.place) for b in BLOCKS if b.language in languages]


def test_every_block_is_of_a_language_that_is_tested() -> None:
    assert {
        block.place: block.language for block in BLOCKS if block.language not in LANGUAGES
    } == {}
    assert sum(block.language == "python" for block in BLOCKS) >= 5
    unexplained = [b.place for b in BLOCKS if b.remark.startswith("not") and len(b.reason) < 8]
    assert unexplained == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_a_link_to_a_file_leads_to_one(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s#]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), target


# YAML: recipes and parts of them.


def model_of(data: dict[str, Any]) -> type[BaseModel]:
    if "rows" in data:
        return ProbeStudy
    if "models" in data:
        return PriceTable if isinstance(data["models"], dict) else PromptStudy
    return Recipe


@pytest.mark.parametrize("block", of("yaml"))
def test_yaml_is_what_prerouter_takes(block: Block) -> None:
    data = parse_yaml(block.body, block.place)
    if block.remark == "not checked":
        return
    model = model_of(data)
    whole = data if model is not Recipe or {"name", "cases"} <= data.keys() else BASE | data
    if block.remark == "wrong":
        with pytest.raises(PrerouterError):
            validate(model, whole, block.place)
    else:
        validate(model, whole, block.place)


@pytest.mark.parametrize("block", of("json"))
def test_json_can_be_parsed(block: Block) -> None:
    json.loads(block.body)


# Shell: the verbs, their options, and the files that are named.


GROUP = get_command(app)


def check_words(words: tuple[str, ...]) -> None:
    """Raises what the command line would say of wrong words, without running anything."""
    assert isinstance(GROUP, TyperGroup)
    outer = GROUP.context_class(GROUP, info_name="prerouter")
    arguments = [word for word in words if word != "--debug"]
    if arguments in ([], ["--help"]) or "completion" in arguments[0]:
        return
    name, verb, rest = GROUP.resolve_command(outer, list(arguments))
    assert verb is not None, f"no verb {arguments[0]}"
    if "--help" not in rest:
        verb.make_context(name, list(rest), parent=outer)


def check_override(setting: str) -> None:
    """Whether the key of a `--set` is one of a recipe's, or of a study's."""
    keys = setting.partition("=")[0].split(".")
    studies: tuple[type[BaseModel], ...] = (Recipe, ProbeStudy, PromptStudy)
    known = [_known_keys(model, keys[:-1]) for model in studies]
    assert any(keys[-1] in names for names in known), f"--set {setting}: no such key"


def check_files(words: tuple[str, ...]) -> None:
    """Files of the repository that a command names are there."""
    for word in words:
        first = word.split("/")[0]
        if "/" in word and first in ("recipes", "probes", "scripts", "benchmarks", "examples"):
            assert (REPOSITORY / word).exists(), f"no such file: {word}"


def check_others(words: tuple[str, ...]) -> None:
    """Targets of make, and extras of the package."""
    if words[0] == "make":
        makefile = (REPOSITORY / "Makefile").read_text()
        for target in words[1:]:
            assert re.search(rf"^{re.escape(target)}:", makefile, re.M), f"no target {target}"
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    for extras in re.findall(r"(?:prerouter|\.)\[([\w,-]+)\]", " ".join(words)):
        assert set(extras.split(",")) <= project["optional-dependencies"].keys()


@pytest.mark.parametrize("block", of("bash", "console"))
def test_commands_are_ones_that_the_program_takes(block: Block) -> None:
    for command in commands_of(block):
        check_files(command.words)
        check_others(command.words)
        words = of_prerouter(command.words)
        if words is not None:
            check_words(words)
            for option, value in pairwise(words):
                if option == "--set":
                    check_override(value)


@pytest.mark.parametrize(
    "text",
    [
        "prerouter distil recipe.yaml",
        "prerouter check recipe.yaml --tokeniser x",
        "prerouter serve",
        "prerouter run recipe.yaml --set teach.sample=3",
        "accelerate launch -m prerouter trian RECIPE",
        "prerouter check recipes/none.yaml",
        "make tests",
        "pip install 'prerouter[training]'",
    ],
)
def test_a_wrong_command_would_be_found(text: str) -> None:
    block = Block(REPOSITORY / "README.md", 1, "bash", text + "\n")
    with pytest.raises((Exception, SystemExit)):
        test_commands_are_ones_that_the_program_takes(block)


@pytest.mark.parametrize("text", ["train: {modle: x}\n", "teach: {teacher: engine}\n"])
def test_a_wrong_recipe_would_be_found(text: str) -> None:
    block = Block(REPOSITORY / "README.md", 1, "yaml", text)
    with pytest.raises(Exception, match=r"README.md:1: (train|teach)"):
        test_yaml_is_what_prerouter_takes(block)


# What is run: Python, and the shell blocks that say so, page by page, in the order of the page.


ROUTER = "runs/quickstart/publish/router"
TREE = "runs/quickstart/route/routers/decision_tree"
SERVICE = "http://127.0.0.1:8080"


def is_executed(block: Block) -> bool:
    return block.language == "python" and block.remark != "not run"


def run_command(command: Command, folder: Path, code: int) -> str:
    words = of_prerouter(command.words)
    assert words is not None, f"only prerouter is run: {' '.join(command.words)}"
    done = subprocess.run(
        [sys.executable, "-m", "prerouter", *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == code, f"{' '.join(command.words)}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_output(command: Command, printed: str) -> None:
    """Each line that the page shows is printed, in this order; `…` stands for anything."""
    rest = iter(printed.splitlines())
    for shown in command.output:
        if shown.strip() in ("", "…"):
            continue
        pattern = re.compile(".*".join(map(re.escape, shown.rstrip().split("…"))))
        found = any(pattern.fullmatch(line.rstrip()) for line in rest)
        assert found, f"{' '.join(command.words)} does not print: {shown}\n{printed}"


def is_run(block: Block) -> bool:
    return is_executed(block) or block.remark in ("run", "fails")


RUN = [page for page in PAGES if any(map(is_run, blocks_of(page)))]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a reader stands who has cloned the repository."""
    for name in ("recipes", "data", "probes", "examples"):
        (tmp_path / name).symlink_to(REPOSITORY / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("page", RUN, ids=lambda page: str(page.relative_to(REPOSITORY)))
def test_what_a_page_says_is_run_runs(
    page: Path, folder: Path, request: pytest.FixtureRequest
) -> None:
    blocks = blocks_of(page)
    code = "".join(block.body for block in blocks if is_executed(block))
    address = SERVICE
    for place, fixture in ((ROUTER, "router"), (TREE, "tree")):
        if place in code:
            shutil.copytree(request.getfixturevalue(fixture), folder / place)
    if SERVICE in code:
        address = request.getfixturevalue("service")
    names: dict[str, Any] = {"__name__": "docs"}
    for block in blocks:
        if is_executed(block):
            # Blank lines before it, so that a traceback tells the page's line.
            text = "\n" * block.line + block.body.replace(SERVICE, address)
            exec(compile(text, block.place, "exec"), names)
        elif block.remark in ("file", "wrong"):
            (folder / block.reason).write_text(block.body, "utf-8")
        elif is_run(block):
            commands = list(commands_of(block))
            for command in commands:
                fails = block.remark == "fails" and command is commands[-1]
                check_output(command, run_command(command, folder, int(fails)))


def test_a_line_that_is_not_printed_would_be_found() -> None:
    command = Command(("prerouter", "check"), ("cases: … over 10 questions", "stages: …"))
    check_output(command, "note\ncases: 20 over 10 questions\nstages: cases\n")
    with pytest.raises(AssertionError, match="does not print"):
        check_output(command, "stages: cases\ncases: 20 over 10 questions\n")


def test_overrides_of_the_base_are_those_of_a_recipe() -> None:
    assert validate(Recipe, apply_overrides(BASE, ["seed=3"]), "base").seed == 3
