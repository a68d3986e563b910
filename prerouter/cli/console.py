"""What the command line shows: results on standard output, progress and notes on the other."""

from __future__ import annotations

import os
import sys
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)


def plain(text: str, *, error: bool = False) -> None:
    """One line as it is: no markup, no wrapping, for text that may come from a stranger."""
    write(visible(text) + "\n", sys.stderr if error else sys.stdout)


def write(text: str, stream: TextIO) -> None:
    """Text that is shown already as it should be. Where its reader (head, less) has gone, it is
    dropped and so is what follows; the work goes on."""
    try:
        stream.write(text)
        stream.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def visible(text: str) -> str:
    """`text` with what doesn't print written out."""
    # A terminal would obey escape sequences that a document or a server put into its text.
    return "".join(
        character if character.isprintable() or character in "\n\t" else repr(character)[1:-1]
        for character in text
    )


def results_console() -> Console:
    """Where tables are drawn. A file or a pipe has no width of its own: it gets the one that the
    tables are made for."""
    console = Console()
    return console if console.is_terminal else Console(width=120)


class TerminalProgress:
    """Bars on a terminal; nothing but notes elsewhere."""

    def __init__(self) -> None:
        self._console = Console(stderr=True)
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            disable=not self._console.is_terminal,
        )
        self._task: TaskID | None = None

    def start(self, task: str, total: int | None) -> None:
        self.stop_task()
        self._task = self._bars.add_task(task, total=total)

    def advance(self, steps: int = 1) -> None:
        if self._task is not None:
            self._bars.advance(self._task, steps)

    def note(self, message: str) -> None:
        if self._console.is_terminal:
            self._console.print(visible(message), markup=False, highlight=False, soft_wrap=True)
        else:
            plain(message, error=True)

    def stop_task(self) -> None:
        if self._task is not None:
            self._bars.remove_task(self._task)
            self._task = None

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_task()
        self._bars.stop()
