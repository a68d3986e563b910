"""The routing table, and what it comes to in a few sentences."""

from __future__ import annotations

from typing import TypedDict

from prerouter.measures.right import RightCounts
from prerouter.measures.routing import ORACLE, POOLED, Measure, RoutingRow
from prerouter.reporting.contents import (
    Cell,
    Column,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import ALL_MODELS, Material
from prerouter.reporting.tables import (
    FEW,
    HEADINGS,
    UNSEEN,
    fixed,
    legend,
    missing_words,
    percent,
    verdict_of,
)


def share(value: float) -> str:
    return f"{percent(value)}%"


SHOWN = {measure: fixed if measure is Measure.QA else share for measure in Measure}


class Choice(TypedDict):
    """What a table takes to let people choose its rows."""

    filters: tuple[str, ...]
    chosen: tuple[str, ...]


def models_to_choose(parts: int) -> Choice:
    """Pooled rows at first, where there are several answer models to choose from."""
    if parts == 1:
        return Choice(filters=(), chosen=())
    return Choice(filters=("Answer model",), chosen=(ALL_MODELS,))


def pooled(material: Material) -> list[RoutingRow]:
    """The rows over all answer models, the oracle's last."""
    return [row for row in material.rows if row.answer_model is POOLED]


def summary(material: Material) -> Section:
    """What the whole comes to: said in words, each from a figure below."""
    rows = pooled(material)
    first = rows[0]
    words = [
        f"{first.n:,} labelled cases of the {material.section.split.value} split over "
        f"{first.n_groups:,} documents, {len(material.answer_models)} answer "
        f"model{'' if len(material.answer_models) == 1 else 's'}, {len(material.routers)} routers. "
        + (
            f"{first.unlabelled:,} further cases have no label and are in no measure."
            if first.unlabelled
            else "Every case has a label."
        )
    ]
    of_routers = [row for row in rows if row.router != ORACLE]
    measured = [row for row in of_routers if row.measures[Measure.QA].value is not None]
    if measured:
        best = max(measured, key=lambda row: _qa(row))
        ideal = next(row for row in rows if row.router == ORACLE)
        found = best.measures[Measure.QA].interval
        interval = f" [{fixed(found.low)}, {fixed(found.high)}]" if found else ""
        words.append(
            f"The highest QA score of a router is {fixed(_qa(best))}{interval}, by {best.router}, "
            f"which sends {share(best.measures[Measure.LC_RATE].value or 0.0)} of the cases to LC; "
            f"the ideal routes would give {fixed(_qa(ideal))}. Whether one router is better than "
            "another by more than chance is told under “Difference tests”."
        )
    words += [
        f"{row.router} sends every case it decides to {row.collapsed.value}: "
        "it has collapsed, whatever its accuracy."
        for row in of_routers
        if row.collapsed and verdict_of(row)
    ]
    words += [
        f"{row.router} has no decision for {row.undecided:,} of {row.n:,} cases: they take the "
        f"fallback route {material.section.fallback.value} and count as wrong routes."
        for row in of_routers
        if row.undecided
    ]
    if first.few_cases:
        words.append(f"There are only {first.n:,} labelled cases: {FEW}.")
    return Section("summary", "At a glance", words, facts=_facts(rows))


def _facts(rows: list[RoutingRow]) -> list[tuple[str, str, str]]:
    """QA and LC rate of the best router, of the two fixed ways, and of the ideal routes."""
    of_routers = [row for row in rows if row.router != ORACLE]
    measured = [row for row in of_routers if row.measures[Measure.QA].value is not None]
    if not measured:
        return []
    best = max(measured, key=_qa)
    named = {row.router: row for row in rows}
    shown = {
        f"Best router: {best.router}": best,
        "Always RAG": named.get("always_rag"),
        "Always LC": named.get("always_lc"),
        "Ideal routes": named.get(ORACLE),
    }
    return [
        (name, fixed(_qa(row)), f"QA, {share(row.measures[Measure.LC_RATE].value or 0.0)} LC")
        for name, row in shown.items()
        if row is not None
    ]


def _qa(row: RoutingRow) -> float:
    value = row.measures[Measure.QA].value
    assert value is not None
    return value


def routing(material: Material) -> Section:
    """Every router on every answer model, and on all of them together."""
    several = len(material.answer_models) > 1
    rows = [row for row in material.rows if several or row.answer_model is POOLED]
    # Pooled first, as elsewhere on the page.
    rows.sort(key=lambda row: row.answer_model is not POOLED)
    table = Table(
        name="routing",
        caption="Routers compared on the same cases",
        columns=[
            Column("Router", numeric=False),
            Column("Answer model", numeric=False),
            *(Column(heading) for heading in HEADINGS.values()),
            Column("Undecided"),
            Column("Cases"),
            Column("Remark", numeric=False),
        ],
        rows=[_cells(row, material) for row in rows],
        **models_to_choose(len(material.answer_models)),
    )
    words = [legend(material.rows), *missing_words(pooled(material)[0]), *_learnt_from(material)]
    return Section("routing", "Routing table", words, [table, *_right(material)])


def _learnt_from(material: Material) -> list[str]:
    """Where the probe router learnt from fewer cases than the other fitted routers."""
    manifest = material.manifests.get("route")
    told = manifest.report if manifest else {}
    learnt, pairs = told.get("probe_router_learnt_from"), told.get("training_pairs")
    if learnt is None or pairs is None or learnt == pairs:
        return []
    return [
        f"probe_router learnt from {learnt:,} of the {pairs:,} labelled training cases "
        "(route.probe.max_cases, and prompts that its model can't read)."
    ]


_RIGHT = {"cases": "Cases", "all": "All routes right", "none": "None right"}


def _right(material: Material) -> list[Table]:
    """What there is to gain by routing: how many cases each route alone gets right."""
    counts = {name: RightCounts() for name, _ in material.by_answer_model()}
    for case in material.cases:
        pair = material.score_of.get(case.case_id)
        for name, found in counts.items():
            if pair and name in (ALL_MODELS, case.answer_model.name):
                found.add(pair)
    reports = {name: found.report() for name, found in counts.items()}
    first = next(iter(reports.values()))
    if not first["cases"]:
        return []
    few = material.section.min_cases
    rows = [
        [
            text_cell(name),
            *(
                count_cell(found.get(key, 0), FEW if key == "cases" and found[key] < few else None)
                for key in first
            ),
        ]
        for name, found in reports.items()
    ]
    return [
        Table(
            name="right",
            caption="Cases by the routes whose answer has full marks: where one alone has them, "
            "a router can win or lose",
            columns=[
                Column("Answer model", numeric=False),
                *(Column(_RIGHT.get(key, key.replace("only", "Only") + " right")) for key in first),
            ],
            rows=rows,
        )
    ]


def _cells(row: RoutingRow, material: Material) -> list[Cell]:
    model = row.answer_model
    if model is POOLED:
        model = ALL_MODELS if len(material.answer_models) > 1 else material.answer_models[0]
    return [
        text_cell(row.router),
        text_cell(model, UNSEEN if row.unseen else None),
        *(measured_cell(row.measures[measure], SHOWN[measure]) for measure in HEADINGS),
        count_cell(row.undecided),
        count_cell(row.n, FEW if row.few_cases else None),
        text_cell(verdict_of(row)),
    ]
