"""Material for a report from evaluations that are written as strings."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from typing import Any

from prerouter.core.records import Answer, Reference, Route
from prerouter.measures.routing import routing_table
from prerouter.recipe.prices import Price, PriceTable
from prerouter.recipe.recipe import Recipe
from prerouter.reporting.material import Material
from tests.measures.matched import Evaluation


def material(
    made: Evaluation,
    *,
    references: Sequence[Reference] = (),
    answers: Mapping[tuple[str, Route], Answer] | None = None,
    prices: Mapping[str, float] | None = None,
    triples: Mapping[tuple[str, Route], bool] | None = None,
    **evaluate: Any,
) -> Material:
    """`prices` are USD for a million tokens of either kind, by model. `compare` may name whatever
    router `made` has: the recipe needs no such."""
    compare = evaluate.pop("compare", None)
    recipe = Recipe.model_validate(
        {
            "name": "made",
            "cases": {"source": "table", "path": "rows.jsonl"},
            "route": {"routers": ["always_rag"]},
            "evaluate": {"resamples": 100, **evaluate},
        }
    )
    assert recipe.evaluate is not None
    section = recipe.evaluate.model_copy(update={"compare": compare})
    rows = routing_table(
        made.decisions,
        made.labels,
        made.scores,
        made.cases,
        resamples=section.resamples,
        seed=recipe.seed,
        min_cases=section.min_cases,
    )
    date = datetime.date(2026, 1, 1)
    return Material(
        recipe=recipe,
        section=section,
        rows=rows,
        decisions=made.decisions,
        labels=made.labels,
        scores=made.scores,
        cases=made.cases,
        references=references,
        answers=answers or {},
        triples=triples,
        prices=PriceTable(
            models={
                name: Price(input=usd, output=usd, source="a test", date=date)
                for name, usd in (prices or {}).items()
            }
        ),
        calibrated=[],
        manifests={},
    )
