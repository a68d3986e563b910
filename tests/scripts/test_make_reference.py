"""The reference pages are those of the code as it stands, and hold all of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

import pytest
from annotated_types import Ge, Gt, Lt
from pydantic import BaseModel, Field
from typer.main import get_command

from prerouter.cli.main import app
from prerouter.core.records import Route, Split
from prerouter.recipe.recipe import Recipe
from scripts.make_reference import FILES, PAGES, default_of, in_words, models_in
from tests.e2e.runner import make_recipe, prerouter

NEEDS_A_STUDENT = {
    "train/examples.jsonl",
    "train/rows.jsonl",
    "calibrate/rows.jsonl",
    "publish/rows.jsonl",
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_current(repository: Path, name: str) -> None:
    written = (repository / "docs" / name).read_text("utf-8")
    assert written == PAGES[name]().rstrip() + "\n", "run: python scripts/make_reference.py"


def keys_of(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[str]:
    if model in seen:
        return
    seen.add(model)
    for name, field in model.model_fields.items():
        yield name
        for inner in models_in(field.annotation):
            yield from keys_of(inner, seen)


def test_every_key_of_a_recipe_has_a_line() -> None:
    page = PAGES["recipe.md"]()
    keys = set(keys_of(Recipe, set()))
    assert len(keys) > 100
    assert [key for key in sorted(keys) if f"\n| `{key}` | " not in page] == []


def test_every_verb_has_its_help() -> None:
    page = PAGES["cli.md"]()
    for name in get_command(app).commands:  # type: ignore[attr-defined]
        assert f"\n## {name} {{#{name}}}\n" in page
        assert f"Usage: prerouter {name} " in page


class Example(BaseModel):
    plain: int
    some: tuple[str, ...] = ()
    route: Route = Route.RAG
    share: Annotated[float, Field(gt=0, le=1)] | None = None


@pytest.mark.parametrize(
    ("annotation", "metadata", "words"),
    [
        (int, (Ge(1),), "whole number, 1 or more"),
        (int, (Gt(0), Lt(2**32)), "whole number, 1 to 4,294,967,295"),
        (float, (Gt(0), Lt(1)), "number, above 0 to below 1"),
        (Annotated[int, Field(gt=0)] | None, (), "whole number, 1 or more"),
        (Literal["a", "b"] | int, (Ge(2),), "`a` or `b` or whole number, 2 or more"),
        (tuple[Split, ...], (), "list of `train`, `validation` or `test`"),
        (dict[str, bool], (), "mapping of text to true or false"),
        (Example, (), "[example](#here)"),
    ],
)
def test_types_in_words(annotation: object, metadata: tuple[object, ...], words: str) -> None:
    assert in_words(annotation, metadata, {Example: "here"}) == words


def test_defaults_are_written_as_in_a_recipe() -> None:
    shown = {name: default_of(field) for name, field in Example.model_fields.items()}
    assert shown == {"plain": "**required**", "some": "`[]`", "route": "`RAG`", "share": "none"}


def test_the_files_of_a_run_hold_the_records_that_the_page_names(tmp_path: Path) -> None:
    recipe = make_recipe(
        tmp_path,
        tmp_path,
        train=None,
        calibrate=None,
        publish=None,
        route={"routers": ["always_rag", "guideline"]},
    )
    text = recipe.read_text()
    for section in ("train", "calibrate", "publish"):
        text = text.replace(f"{section}: null\n", "")
    recipe.write_text(text)
    done = prerouter("run", str(recipe), "--set", "cases.documents=9")
    assert done.returncode == 0, done.stderr
    seen = set()
    for pattern, model in FILES.items():
        for path in (tmp_path / "runs/tiny").glob(pattern):
            seen.add(pattern)
            whole = path.suffix == ".json"
            for line in [path.read_text()] if whole else path.read_text().splitlines():
                model.model_validate(json.loads(line))
    assert seen == FILES.keys() - NEEDS_A_STUDENT
