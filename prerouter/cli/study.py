"""`prerouter study FILE`: variants of the prompt by models, in one table."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from prerouter.cli.console import TerminalProgress, plain, results_console, write


def study(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A prompt study (YAML).")],
    overrides: Annotated[
        list[str],
        typer.Option("--set", help="Override one setting: section.key=value.", metavar="KEY=VALUE"),
    ] = [],  # noqa: B006 -- typer reads the default, nothing changes it
) -> None:
    """Compare variants of the prompt: paradigms, the guideline's parts, metadata, best of N."""
    from prerouter.recipe.study import load_prompt_study

    asked = load_prompt_study(file, overrides)
    from prerouter.reporting.study_table import BEST_OF_NOTE, best_of_table, table_markdown
    from prerouter.reporting.tables import terminal_table
    from prerouter.stages.study import run_prompt_study

    with TerminalProgress() as progress:
        outcome = run_prompt_study(asked, progress)
    console = results_console()
    with console.capture() as captured:
        for table in terminal_table(outcome.rows, console.width):
            console.print()
            console.print(table)
    write(captured.get(), sys.stdout)
    if outcome.best_of:
        plain("\n" + table_markdown(best_of_table(outcome.best_of), BEST_OF_NOTE))
    plain(f"study: {outcome.asked:,} replies asked for now\n\nWritten:")
    for path in sorted(asked.folder.glob("*.*")):
        if path.suffix in (".md", ".csv"):
            plain(f"  {path}")
