"""The command line: `prerouter VERB RECIPE`. A verb loads the heavy libraries that it needs.

Exit codes: 0 done; 1 an error that one line tells; 2 wrong usage; 130 stopped by Ctrl-C.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import typer
from typer.core import TyperGroup

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


def _finite(value: float | None) -> float | None:
    """A NaN lies in every range that is asked of it."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number.")
    return value


@app.callback()
def _options(debug: Debug = False) -> None:
    """The options of the program itself."""


@app.command()
def run(
    recipe: RecipePath,
    overrides: Overrides = [],  # noqa: B006 -- typer reads the default, nothing changes it
    force: Force = False,
    skip_bad: SkipBad = False,
    retry_failed: RetryFailed = False,
) -> None:
    """Run every stage that the recipe has a section for, in order."""
    from prerouter.cli.run import run_recipe

    run_recipe(recipe, overrides, force=force, skip_bad=skip_bad, retry_failed=retry_failed)


def _add_verb(name: str, help_text: str) -> None:
    def verb(
        recipe: RecipePath,
        overrides: Overrides = [],  # noqa: B006
        force: Force = False,
        skip_bad: SkipBad = False,
    ) -> None:
        from prerouter.cli.run import run_recipe

        run_recipe(recipe, overrides, force=force, skip_bad=skip_bad, only=name)

    def asking_verb(
        recipe: RecipePath,
        overrides: Overrides = [],  # noqa: B006
        force: Force = False,
        skip_bad: SkipBad = False,
        retry_failed: RetryFailed = False,
    ) -> None:
        from prerouter.cli.run import run_recipe

        run_recipe(
            recipe, overrides, force=force, skip_bad=skip_bad, only=name, retry_failed=retry_failed
        )

    app.command(name=name, help=help_text)(asking_verb if name in _ASKING else verb)


# Verbs whose stages make failed calls again (`Stage.retries`).
_ASKING = frozenset({"profile", "judge", "faithfulness", "teach"})
for _name, _help in (
    ("cases", "Read the questions, group near-duplicate documents, split."),
    ("profile", "Let a small model infer titles and types."),
    ("answer", "Answer every case by RAG and by LC."),
    ("judge", "Let a model grade both answers, blind to their routes."),
    ("score", "Score both answers against the reference."),
    ("faithfulness", "Check what answers claim against their retrieved passages."),
    ("label", "Find the ideal route of every pair of scores."),
    ("teach", "Let the teacher write traces."),
    ("filter", "Keep the traces that end in the ideal route."),
    ("train", "Fine-tune the student on the kept traces."),
    ("route", "Let every router decide."),
    ("calibrate", "Set p_lc right and choose the threshold on it."),
    ("evaluate", "Measure the routers and print the routing table."),
    ("publish", "Export the student as a folder ready for the Hub."),
):
    _add_verb(_name, _help)


@app.command()
def dataset(
    recipe: RecipePath,
    overrides: Overrides = [],  # noqa: B006
    force: Force = False,
    push: Annotated[
        bool,
        typer.Option("--push", help="Put it on the Hub: dataset.repo_id, with HF_TOKEN's rights."),
    ] = False,
) -> None:
    """Write the traces as Parquet files with a report and a card."""
    from prerouter.cli.dataset import make_dataset

    make_dataset(recipe, overrides, force=force, push=push)


@app.command()
def check(
    recipe: RecipePath,
    overrides: Overrides = [],  # noqa: B006
    tokenizer: Annotated[
        Optional[Path],  # noqa: UP045 -- typer reads annotations at run time
        typer.Option(help="Folder of the student's tokenizer, to measure the longest example."),
    ] = None,
    skip_bad: SkipBad = False,
) -> None:
    """Validate a recipe and its inputs without loading a model."""
    from prerouter.cli.check import check_recipe

    check_recipe(recipe, overrides, tokenizer, skip_bad=skip_bad)


@app.command()
def estimate(
    recipe: RecipePath,
    overrides: Overrides = [],  # noqa: B006
    tokenizer: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Folder of the teacher's tokenizer, where its model isn't here."),
    ] = None,
    pilot: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Ask the teacher for so many cases; `teach` goes on from them.", min=1),
    ] = None,
    output_tokens: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Output tokens of a call, where they are known.",
            min=1,
            max=1e7,
            callback=_finite,
        ),
    ] = None,
    throughput: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Generated tokens a second, of all GPUs together.",
            min=1e-3,
            max=1e9,
            callback=_finite,
        ),
    ] = None,
    gpus: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="GPUs that the throughput takes; by default the engine's.", min=1),
    ] = None,
    prices: Annotated[
        Optional[Path],  # noqa: UP045
        typer.Option(help="Own price table (YAML), in place of the one that ships."),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the estimate as JSON.")] = False,
) -> None:
    """Tell what the teacher would cost: calls, tokens, USD, GPU-hours."""
    from prerouter.cli.estimate import Options, estimate_recipe

    options = Options(tokenizer, pilot, output_tokens, throughput, gpus, prices, skip_bad)
    estimate_recipe(recipe, overrides, options, as_json=as_json)


@app.command()
def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
) -> None:
    """Print a run's manifests and its routing table."""
    from prerouter.cli.show import show_run

    show_run(run_folder)


@app.command()
def decide(
    router: Annotated[Path, typer.Option(help="A router's folder.")],
    question: Annotated[str, typer.Option(help="The question.")],
    document: Annotated[Path, typer.Option(help="The document, as UTF-8 text.")],
    answer_model: Annotated[str, typer.Option(help="Name of the model that will answer.")],
    context_window: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its context window, in tokens.", min=1),
    ] = None,
    title: Annotated[Optional[str], typer.Option(help="The document's title.")] = None,  # noqa: UP045
    document_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The document's type."),
    ] = None,
    task_type: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="The task's type."),
    ] = None,
    document_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Its length in tokens; counted where it isn't given.", min=0),
    ] = None,
    chunk_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens of a chunk; as trained for by default.", min=1),
    ] = None,
    overlap_tokens: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Tokens that chunks share; as trained for by default.", min=0),
    ] = None,
    top_k: Annotated[
        Optional[int],  # noqa: UP045
        typer.Option(help="Chunks retrieved; as trained for by default.", min=1),
    ] = None,
    mode: Annotated[
        Optional[Literal["explain", "decide"]],  # noqa: UP045
        typer.Option(help="Write the six steps, or name the route at once; as trained by default."),
    ] = None,
    threshold: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="LC where p_lc is above it (mode decide); as published by default.",
            min=-1,
            max=1,
            callback=_finite,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Route one question over one document, and say why."""
    from prerouter.cli.decide import Request, decide_one

    decide_one(
        Request(
            router=router,
            question=question,
            document=document,
            answer_model=answer_model,
            context_window=context_window,
            title=title,
            document_type=document_type,
            task_type=task_type,
            document_tokens=document_tokens,
            chunk_tokens=chunk_tokens,
            overlap_tokens=overlap_tokens,
            top_k=top_k,
            mode=mode,
            threshold=threshold,
        ),
        as_json=as_json,
    )


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
        plain(f"error: {error.filename or 'system'}: {error.strerror}", error=True)
        sys.exit(1)
