"""`prerouter init`: what it writes is a recipe that a check takes, whatever its options hold."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prerouter.cli.init import Brought, render_recipe
from prerouter.cli.main import app
from prerouter.core.errors import InputError
from prerouter.recipe.base import parse_yaml, validate
from prerouter.recipe.recipe import Recipe, load_recipe
from tests.e2e.runner import prerouter

STAGES: dict[Brought, str] = {
    "documents": "cases, answer, score, label, teach",
    "answers": "cases, score, label, teach",
    "scores": "cases, label, teach",
}


def brought(folder: Path, bring: Brought) -> Path:
    """A small table of the user's own, under the names that the recipe looks for."""
    rows = []
    for number in range(10):
        row: dict[str, object] = {"question": f"What is said in part {number}?"}
        if bring == "documents":
            name = f"{number}.txt"
            (folder / name).write_text(f"Part {number} tells of mill number {number}.\n")
            row |= {"document_path": name, "answer": f"mill number {number}"}
        elif bring == "answers":
            row |= {"answer": "a mill", "rag_answer": "a mill", "lc_answer": "a harbour"}
        else:
            row |= {"rag_score": 3, "lc_score": number % 5}
        rows.append(row)
    table = folder / "data.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return table


@pytest.mark.parametrize("bring", ["documents", "answers", "scores"])
def test_the_written_recipe_passes_a_check_of_what_is_brought(
    tmp_path: Path, bring: Brought
) -> None:
    table = brought(tmp_path, bring)
    recipe = tmp_path / "new" / "mine.yaml"
    done = prerouter("init", str(recipe), "--bring", bring, "--data", str(table))
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(f"prerouter check {recipe}\n")
    overrides = ("--set", f"cases.documents={tmp_path}") if bring == "documents" else ()
    checked = prerouter("check", str(recipe), *overrides)
    assert checked.returncode == 0, checked.stderr
    assert f"stages: {STAGES[bring]}" in checked.stdout
    assert "cases: 10 over 10 questions" in checked.stdout


@pytest.mark.parametrize("bring", ["documents", "answers", "scores"])
@pytest.mark.parametrize("teacher", [None, "deepseek-r1"])
def test_every_section_has_a_line_that_says_what_it_is_for(
    bring: Brought, teacher: str | None
) -> None:
    text = render_recipe("mine.yaml", "data.csv", bring, "a/student", teacher)
    recipe = validate(Recipe, parse_yaml(text, "mine.yaml"), "mine.yaml")
    assert recipe.teach is not None
    assert recipe.teach.teacher == ("engine" if teacher else "guideline")
    assert text.count("#") >= 12
    assert not [line for line in text.splitlines() if line != line.rstrip()]


@pytest.mark.parametrize(
    "words",
    ['x: "y"', "{a: b}", "# none", "null", "2026", "é — ?", "{{ 7 * 7 }}", "a\nname: other"],
)
def test_what_an_option_holds_stays_text(words: str) -> None:
    text = render_recipe(words, words, "scores", words, words)
    data = parse_yaml(text, "mine.yaml")
    assert data["cases"]["path"] == words
    assert data["train"]["model"] == words
    assert data["teach"]["engine"]["model"] == words
    assert data["name"] != "other"
    validate(Recipe, data, "mine.yaml")


def test_a_file_that_is_there_is_replaced_only_with_force(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("mine\n")
    refused = CliRunner().invoke(app, ["init", str(recipe)])
    assert isinstance(refused.exception, InputError)
    assert refused.exception.line == f"{recipe}: is there already; another name, or --force"
    assert recipe.read_text() == "mine\n"
    assert CliRunner().invoke(app, ["init", str(recipe), "--force"]).exit_code == 0
    assert load_recipe(recipe).name == "mine"


def test_a_model_that_no_recipe_takes_leaves_no_file(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    done = prerouter("init", str(recipe), "--student", "")
    assert done.returncode == 1
    assert "train.model" in done.stderr
    assert not recipe.exists()


def test_the_file_is_utf_8_wherever_it_is_written(tmp_path: Path) -> None:
    recipe = tmp_path / "été.yaml"
    done = prerouter("init", str(recipe), "--data", "données.csv")
    assert done.returncode == 0, done.stderr
    assert str(load_recipe(recipe).cases.path) == "données.csv"
