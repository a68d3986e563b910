"""`prerouter show RUN`: what each stage did, and the routing table."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from prerouter.cli.console import plain, results_console, write
from prerouter.core.errors import InputError, StageError
from prerouter.runs.manifest import read_manifest


def show_run(folder: Path) -> None:
    """Print the manifests of a run in the order of its stages."""
    from prerouter.stages.pipeline import VERBS

    stages = [name for name in VERBS if (folder / name).is_dir()]
    if not stages:
        raise InputError(
            str(folder), "is no run's folder", "a folder with cases/, label/, ...", "see runs/"
        )
    finished = []
    for name in stages:
        try:
            manifest = read_manifest(folder / name)
        except StageError as error:
            plain(f"{name}: {error.line}")
            continue
        if manifest is None:
            plain(f"{name}: not finished; what it has done so far lies in {folder / name}/")
            continue
        model = f", {manifest.model}" if manifest.model else ""
        plain(f"{name}: {manifest.seconds:.1f} s{model}")
        for file, entry in manifest.files.items():
            plain(f"    {file}: {entry.rows:,} rows")
        for reason, count in manifest.rejects.items():
            plain(f"    refused, {reason}: {count:,}")
        for line in _report_lines(manifest.report):
            plain(f"    {line}")
        finished.append(name)
    if "evaluate" in finished:
        print_table(folder)


def print_table(run_folder: Path) -> None:
    """The routing table of a finished evaluation, as rich draws it."""
    from prerouter.measures.routing import RoutingRow
    from prerouter.reporting.tables import terminal_table
    from prerouter.runs.rows import read_rows

    console = results_console()
    rows = list(read_rows(run_folder / "evaluate" / "rows.jsonl", RoutingRow))
    with console.capture() as captured:
        for part in terminal_table(rows, console.width):
            console.print()
            console.print(part)
    write(captured.get(), sys.stdout)


def _report_lines(report: dict[str, Any], depth: int = 0) -> list[str]:
    lines = []
    for key, value in report.items():
        if isinstance(value, dict) and value and depth < 2:
            lines.append(f"{'  ' * depth}{key}:")
            lines += _report_lines(value, depth + 1)
        elif isinstance(value, list) and len(value) > 6:
            lines.append(f"{'  ' * depth}{key}: {len(value)} entries")
        else:
            text = json.dumps(value, ensure_ascii=False)
            lines.append(f"{'  ' * depth}{key}: {text}")
    return lines
