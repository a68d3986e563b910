"""`prerouter publish`: the router's folder, what a push of it would send, and its way there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from prerouter.cli.console import plain, visible, write
from prerouter.cli.push import ask_to_push, send
from prerouter.cli.run import run_recipe
from prerouter.core.records import Answer, ModelFile, Reference, RoutingCase
from prerouter.publishing.checkpoint import read_router
from prerouter.publishing.folder import CARD_FILE
from prerouter.publishing.hub import Parcel
from prerouter.publishing.privacy import check_private, private_here
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.model_files import list_model_files
from prerouter.runs.processes import rank
from prerouter.runs.rows import read_rows


def publish_router(
    path: Path,
    overrides: Sequence[str],
    *,
    force: bool,
    skip_bad: bool,
    repo_id: str | None,
    private: bool,
    adapter: bool,
    push: bool,
) -> None:
    """Run the stage, show what lies in its folder, and look through it for what is private; with
    `push`, put it on the Hub. What a push needs is checked before anything is done."""
    changes = list(overrides)
    if repo_id is not None:
        changes.append(f"publish.repo_id={json.dumps(repo_id)}")
    changes += ["publish.private=true"] if private else []
    changes += ["publish.adapter=true"] if adapter else []
    recipe = load_recipe(path, changes)
    section = recipe.publish
    token = None
    if push:
        named = section.repo_id if section else None
        token = ask_to_push(f"{path}: publish.repo_id", named, "you/router", "--repo-id you/router")
    run_recipe(path, changes, force=force, skip_bad=skip_bad, only="publish")
    if rank():
        return
    assert section is not None
    folder = recipe.published_dir
    files = list_model_files(folder)
    _show_files(files)
    if not push:
        _show_card((folder / CARD_FILE).read_text("utf-8"))
    read_router(folder, adapter=section.adapter)
    texts = () if section.raw_text else _case_texts(recipe)
    long_texts = () if section.raw_text else _long_texts(recipe)
    known = private_here(os.environ, (recipe.run_dir, Path.cwd()), recipe, texts, long_texts)
    check_private(folder, [file.path for file in files], known)
    if token is None or section.repo_id is None:
        plain("nothing was pushed: this is what --push would send")
        return
    send(Parcel("model", folder, section.repo_id, section.private), token)
    if recipe.dataset and recipe.dataset.repo_id:
        plain(f"its data set goes by `prerouter dataset {path} --push`")


def _case_texts(recipe: Recipe) -> Iterator[str]:
    for case in read_rows(recipe.run_dir / "cases" / "rows.jsonl", RoutingCase):
        yield case.question
        yield from filter(None, (case.document.title, case.document.head))


def _long_texts(recipe: Recipe) -> Iterator[str]:
    """References, their evidence, and what was answered, as far as the run has them."""
    references = recipe.run_dir / "cases" / "references.jsonl"
    if references.is_file():
        for reference in read_rows(references, Reference):
            yield from filter(None, (reference.answer, *reference.choices))
            yield from (evidence.text for evidence in reference.evidence)
    answers = recipe.run_dir / recipe.answers_file
    if answers.is_file():
        yield from (answer.text for answer in read_rows(answers, Answer) if answer.text)


def _show_files(files: Sequence[ModelFile]) -> None:
    """Each file with its size and the beginning of its hash."""
    total = sum(file.size for file in files)
    wide = len(f"{total:,}")
    plain("")
    for file in files:
        plain(f"  {file.size:>{wide},}  {file.sha256[:12]}  {file.path}")
    plain(f"  {total:>{wide},}  bytes in {len(files)} files")


def _show_card(card: str) -> None:
    """As it will look, on a terminal; as it is elsewhere."""
    plain("")
    if not sys.stdout.isatty():
        plain(card)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    head, _, body = visible(card).removeprefix("---\n").partition("\n---\n")
    console = Console()
    with console.capture() as captured:
        console.print(Markdown(f"```yaml\n{head}\n```\n{body}"))
    write(captured.get(), sys.stdout)
