"""`prerouter probe FILE`: run a probe study and print its table."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from prerouter.cli.console import TerminalProgress, plain, results_console, write
from prerouter.recipe.probe import load_study


def probe_study(path: Path, overrides: Sequence[str]) -> None:
    """Run the study, or pass it over where nothing has changed; print its table and its files."""
    study = load_study(path, overrides)
    from prerouter.reporting.probe_table import probe_terminal
    from prerouter.stages.probe import run_study

    with TerminalProgress() as progress:
        outcome = run_study(study, progress)
    console = results_console()
    with console.capture() as captured:
        for table in probe_terminal(outcome.results):
            console.print()
            console.print(table)
    write(captured.get(), sys.stdout)
    done = (
        "unchanged, passed over"
        if outcome.passed_over
        else f"{outcome.computed:,} prompts read, {outcome.seconds:.1f} s"
    )
    plain(f"\nprobe: {len(outcome.results):,} probes; {done}\n\nWritten:")
    for name in ("table.md", "table.json", "table.csv", "curve.csv"):
        plain(f"  {study.folder / name}")
