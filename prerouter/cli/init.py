"""`prerouter init`: a commented recipe to start from."""

from __future__ import annotations

import json
import re
import shlex
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer

from prerouter.core.errors import InputError

Brought = Literal["documents", "answers", "scores"]


def render_recipe(file: str, path: str, bring: Brought, student: str, teacher: str | None) -> str:
    """The text of a recipe. What a user gave stands in it as JSON, which YAML reads as text."""
    from jinja2 import Environment, FunctionLoader, StrictUndefined

    environment = Environment(  # noqa: S701 -- YAML, no HTML; values are JSON
        loader=FunctionLoader(
            lambda name: (
                resources.files("prerouter.cli.templates").joinpath(name).read_text("utf-8")
            )
        ),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    stem = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(file).stem).strip("-._") or "mine"
    return environment.get_template("recipe.yaml.jinja").render(
        # It stands in a comment, which a line break would end.
        file=shlex.quote(" ".join(file.split())),
        name=json.dumps(stem[:100]),
        path=json.dumps(path),
        bring=bring,
        student=json.dumps(student),
        teacher=json.dumps(teacher) if teacher else None,
    )


def init(
    recipe: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("recipe.yaml"),
    bring: Annotated[
        Brought, typer.Option(help="What you have beside the questions.")
    ] = "documents",
    data: Annotated[str, typer.Option(help="Your table (CSV, JSONL, Parquet).")] = "data.jsonl",
    student: Annotated[
        str, typer.Option(help="The model to fine-tune: a Hub name or a folder.")
    ] = "Qwen/Qwen3-1.7B",
    teacher: Annotated[
        Optional[str],  # noqa: UP045 -- typer reads annotations at run time
        typer.Option(help="The model that writes traces, by its name on an OpenAI-like server."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a commented recipe for your own data."""
    from prerouter.cli.console import plain
    from prerouter.recipe.base import parse_yaml, validate
    from prerouter.recipe.recipe import Recipe

    if recipe.exists() and not force:
        raise InputError(str(recipe), "is there already", next_step="another name, or --force")
    text = render_recipe(str(recipe), data, bring, student, teacher)
    # What is written is what a check would take, whatever the options held.
    validate(Recipe, parse_yaml(text, str(recipe)), str(recipe))
    recipe.parent.mkdir(parents=True, exist_ok=True)
    recipe.write_text(text, encoding="utf-8")
    check = f"prerouter check {shlex.quote(str(recipe))}"
    plain(f"{recipe}: written; mend what is yours in it, then: {check}")
