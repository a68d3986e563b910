"""The verbs that take a recipe, and `probe` and `show`: their options, and who does the work.

What does it is imported inside, so that `--help` stays quick.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Optional

import typer

from prerouter.cli.options import (
    Force,
    Overrides,
    RecipePath,
    RetryFailed,
    SkipBad,
    finite,
)

# Verbs whose stages make failed calls again (`Stage.retries`).
_ASKING = frozenset({"profile", "answer", "judge", "faithfulness", "teach"})


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


def stage_verb(name: str) -> Callable[..., None]:
    """The verb that runs one stage."""

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

    return asking_verb if name in _ASKING else verb


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


def publish(
    recipe: RecipePath,
    overrides: Overrides = [],  # noqa: B006
    force: Force = False,
    skip_bad: SkipBad = False,
    repo_id: Annotated[
        Optional[str],  # noqa: UP045
        typer.Option(help="Its name on the Hub (you/router), in place of publish.repo_id."),
    ] = None,
    push: Annotated[
        bool, typer.Option("--push", help="Put it on the Hub, with HF_TOKEN's rights.")
    ] = False,
    private: Annotated[
        bool, typer.Option("--private", help="For nobody else to see: publish.private.")
    ] = False,
    adapter: Annotated[
        bool, typer.Option("--adapter", help="The LoRA adapter without its base: publish.adapter.")
    ] = False,
) -> None:
    """Export the student as a folder ready for the Hub, show it, and push it on demand."""
    from prerouter.cli.publish import publish_router

    publish_router(
        recipe,
        overrides,
        force=force,
        skip_bad=skip_bad,
        repo_id=repo_id,
        private=private,
        adapter=adapter,
        push=push,
    )


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
            callback=finite,
        ),
    ] = None,
    throughput: Annotated[
        Optional[float],  # noqa: UP045
        typer.Option(
            help="Generated tokens a second, of all GPUs together.",
            min=1e-3,
            max=1e9,
            callback=finite,
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


def probe(
    study: Annotated[Path, typer.Argument(metavar="FILE", help="A probe study (YAML).")],
    overrides: Overrides = [],  # noqa: B006
) -> None:
    """Probe what a model's prompt states tell: ideal route, own route, types."""
    from prerouter.cli.probe import probe_study

    probe_study(study, overrides)


def show(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")],
) -> None:
    """Print a run's manifests and its routing table."""
    from prerouter.cli.show import show_run

    show_run(run_folder)
