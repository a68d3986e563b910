"""What a query costs by each router."""

from __future__ import annotations

import math
from collections.abc import Sequence

from prerouter.measures.query_cost import CostRow, Spend, cost_rows
from prerouter.reporting.contents import (
    Column,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import models_to_choose
from prerouter.reporting.tables import FEW

_HEADINGS = {
    Spend.CALLS: "Calls",
    Spend.INPUT: "Tokens in",
    Spend.OUTPUT: "Tokens out",
    Spend.SECONDS: "Seconds",
    Spend.USD: "USD",
}


def three_digits(value: float) -> str:
    """A small number with three digits that say something, never as a power of ten."""
    if value == 0:
        return "0"
    return f"{value:.{min(12, max(2, 2 - math.floor(math.log10(abs(value)))))}f}"


_SHOWN = {
    Spend.CALLS: lambda value: f"{value:.2f}",
    Spend.INPUT: lambda value: f"{value:,.0f}",
    Spend.OUTPUT: lambda value: f"{value:,.0f}",
    Spend.SECONDS: three_digits,
    Spend.USD: three_digits,
}


def spending(material: Material) -> list[CostRow]:
    """What every router spends on a query of this material's."""
    return cost_rows(
        material.decisions,
        material.answers,
        material.cases,
        material.prices.models,
        output_tokens=material.section.assumed_output_tokens,
        fallback=material.section.fallback,
        **material.resampling,
    )


def cost(parts: Sequence[tuple[str, Material]]) -> Section:
    """The table of costs, the first part's rows being those of all cases."""
    material = parts[0][1]
    spent = {name: spending(part) for name, part in parts}
    table = Table(
        name="cost",
        caption="What one query takes: its decision, its answer, and answers dropped on the way",
        columns=[
            Column("Router", numeric=False),
            Column("Answer model", numeric=False),
            *(Column(heading) for heading in _HEADINGS.values()),
            Column("Queries"),
            Column("Of these estimated"),
            Column("Tokens not known"),
        ],
        rows=[
            [
                text_cell(row.router),
                text_cell(name),
                *(measured_cell(row.measures[spend], _SHOWN[spend]) for spend in _HEADINGS),
                count_cell(row.n, FEW if row.n < material.section.min_cases else None),
                count_cell(row.estimated),
                count_cell(row.unknown),
            ]
            for name, _ in parts
            for row in spent[name]
        ],
        **models_to_choose(len(parts)),
    )
    words = [
        "Means over all queries of the split, labelled or not, with intervals from resampled "
        "documents. Seconds are those of each call by itself.",
        *_estimated(material, spent[parts[0][0]]),
        *_unpriced(material),
    ]
    return Section("cost", "Cost of a query", words, [table])


def _estimated(material: Material, rows: Sequence[CostRow]) -> list[str]:
    first = rows[0]
    words = []
    if first.estimated:
        words.append(
            f"Estimated, not counted: {first.estimated:,} of {first.n:,} queries have an answer "
            "whose tokens nobody counted. Its input is taken as the document's length within the "
            "answer model's window (LC), or the retrieved chunks (RAG), and its output as "
            f"{material.section.assumed_output_tokens} tokens (evaluate.assumed_output_tokens)."
        )
    if first.unknown:
        words.append(
            f"{first.unknown:,} of {first.n + first.unknown:,} queries are in no figure: neither "
            "are their answers' tokens known, nor their document's length."
        )
    return words


def _unpriced(material: Material) -> list[str]:
    called = [
        *material.answer_models,
        *(d.model for some in material.decisions.values() for d in some if d.model),
    ]
    lacking = [name for name in dict.fromkeys(called) if name not in material.prices.models]
    if not lacking:
        return []
    return [f"The price table has no price of {', '.join(lacking)}: add them by `prices`."]
