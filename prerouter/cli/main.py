"""The command line: `prerouter VERB RECIPE`. A verb loads the heavy libraries that it needs.

Exit codes: 0 done; 1 an error that one line tells; 2 wrong usage; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from prerouter.cli import verbs
from prerouter.cli.decide import decide
from prerouter.cli.doctor import doctor
from prerouter.cli.init import init
from prerouter.cli.serve import serve_router
from prerouter.cli.study import study
from prerouter.core.errors import PrerouterError, StageError


class Verbs(TyperGroup):
    """Every verb takes the program's own --debug, which may so stand before the verb or after."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for verb in self.commands.values():
            verb.params += [option for option in self.params if option.name == "debug"]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            # Of a server or a worker that has gone: typer would end without a word.
            raise StageError(
                "system", f"a connection broke: {error}", next_step="run again: rows are kept"
            ) from error


app = typer.Typer(
    name="prerouter",
    cls=Verbs,
    help="Decide, before anything is retrieved, whether to retrieve (RAG) or to read it all (LC).",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _ask_for_debug(value: bool) -> None:
    global _debug
    _debug = _debug or value


_debug = False
Debug = Annotated[
    bool,
    typer.Option(
        "--debug",
        help="Show the traceback of an error.",
        callback=_ask_for_debug,
        expose_value=False,
    ),
]


@app.callback()
def _options(debug: Debug = False) -> None:
    """The options of the program itself."""


# In the order in which `--help` shows them: before a run, its stages, after it.
app.command(name="init")(init)
app.command(name="doctor")(doctor)
app.command(name="check")(verbs.check)
app.command(name="estimate")(verbs.estimate)
app.command(name="run")(verbs.run)
for _name, _help in (
    ("cases", "Read the questions, group near-duplicate documents, split."),
    ("profile", "Let a small model infer titles and types."),
    ("answer", "Answer every case by every route."),
    ("judge", "Let a model grade both answers, blind to their routes."),
    ("score", "Score both answers against the reference."),
    ("faithfulness", "Check what answers claim against their retrieved passages."),
    ("label", "Find the ideal route of every pair of scores."),
    ("teach", "Let the teacher write traces."),
    ("filter", "Keep the traces that end in the ideal route."),
):
    app.command(name=_name, help=_help)(verbs.stage_verb(_name))
app.command(name="dataset")(verbs.dataset)
for _name, _help in (
    ("train", "Fine-tune the student on the kept traces."),
    ("classify", "Fine-tune a student with a classification head on the labels."),
    ("route", "Let every router decide."),
    ("calibrate", "Calibrate p_lc and choose the threshold on it."),
    ("evaluate", "Measure the routers and print the routing table."),
):
    app.command(name=_name, help=_help)(verbs.stage_verb(_name))
app.command(name="publish")(verbs.publish)
app.command(name="show")(verbs.show)
app.command(name="probe")(verbs.probe)
app.command(name="study")(study)
app.command(name="decide")(decide)
app.command(name="serve")(serve_router)


def main() -> None:
    """Every error that a user can cause is told in a line, without a traceback.

    Raises KeyboardInterrupt after a Ctrl-C: `prerouter.__main__` has the last word.
    """
    global _debug
    _debug = False
    try:
        app()
    except SystemExit as end:
        # typer makes this code, and no line, of a Ctrl-C.
        if end.code == 130:
            raise KeyboardInterrupt from None
        raise
    except PrerouterError as error:
        from prerouter.cli.console import plain

        if _debug:
            raise
        for line in error.lines:
            plain(f"error: {line}", error=True)
        sys.exit(1)
    except OSError as error:
        from prerouter.cli.console import plain

        if _debug:
            raise
        plain(f"error: {error.filename or 'system'}: {error.strerror or error}", error=True)
        sys.exit(1)
