"""What a recipe names outside its run, looked for before hours of work rest on it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from prerouter.core.errors import InputError, PrerouterError
from prerouter.publishing.checkpoint import may_replace
from prerouter.recipe.recipe import Recipe
from prerouter.reporting.sections.probes import missing_probes
from prerouter.reporting.sections.studies import missing_studies
from prerouter.sources.people import missing_table
from prerouter.sources.traces import missing_traces
from prerouter.stages.cases import missing_sources
from prerouter.training.lengths import check_chat_template
from prerouter.training.reporters import asked_by, check_names


def unmet(recipe: Recipe) -> list[PrerouterError]:
    """An error for every file or folder that isn't there, or that stands in the router's place."""
    errors: list[PrerouterError] = [
        *missing_sources(recipe),
        *missing_table(recipe.score.human if recipe.score else None, "score.human"),
        *missing_table(recipe.evaluate.triples if recipe.evaluate else None, "evaluate.triples"),
        *missing_traces(recipe.filter),
        *missing_probes(recipe.evaluate.probes if recipe.evaluate else ()),
        *missing_studies(recipe.evaluate.studies if recipe.evaluate else ()),
    ]
    for key, section in (("train", recipe.train), ("classify", recipe.classify)):
        model = section.model if section else ""
        if model.startswith(("/", ".", "~")) and not Path(model).is_dir():
            errors.append(InputError(model, "no such folder", next_step=f"mend {key}.model"))
        elif model and Path(model).is_dir():
            errors += _caught(check_chat_template, f"{key}.model", Path(model))
    for key, asked in asked_by(recipe).items():
        errors += _caught(check_names, asked, key)
    if recipe.publish:
        errors += _caught(may_replace, recipe.published_dir, recipe.name)
    return errors


def _caught(check: Callable[..., object], *arguments: object) -> list[PrerouterError]:
    try:
        check(*arguments)
    except PrerouterError as error:
        return [error]
    return []
