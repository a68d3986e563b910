"""Options that several verbs take, and what they hold them to."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated, Literal, Optional

import typer


def finite(value: float | None) -> float | None:
    """A callback of typer's: a NaN lies in every range that is asked of it."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


RecipePath = Annotated[Path, typer.Argument(help="A recipe (YAML).", show_default=False)]
Overrides = Annotated[
    list[str],
    typer.Option("--set", help="Override one setting: section.key=value.", metavar="KEY=VALUE"),
]
Force = Annotated[bool, typer.Option("--force", help="Begin anew, whatever is finished.")]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Put bad input rows into rejects.jsonl and go on.")
]
RetryFailed = Annotated[
    bool, typer.Option("--retry-failed", help="Make the failed calls of a finished stage again.")
]
Mode = Annotated[
    Optional[Literal["explain", "decide"]],  # noqa: UP045 -- typer reads annotations at run time
    typer.Option(help="Write the six steps, or name the route at once; as published by default."),
]
Engine = Annotated[
    Literal["transformers", "vllm"],
    typer.Option(help="What runs the router's model; vllm needs the extra of that name."),
]
Threshold = Annotated[
    Optional[float],  # noqa: UP045
    typer.Option(
        help="LC where p_lc is above it (mode decide); as published by default.",
        min=-1,
        max=1,
        callback=finite,
    ),
]
