"""Where routers err: kinds of error by level, and the cases on which most was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from prerouter.core.records import Decision, Route
from prerouter.measures.breakdowns import (
    BreakdownKey,
    ErrorRow,
    Regret,
    key_values,
    largest_regrets,
    routing_errors,
)
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    NOT_KNOWN,
    Cell,
    Column,
    Figure,
    RegretCase,
    RegretCases,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import share
from prerouter.reporting.tables import FIXED_ROUTERS

# Of a stranger's text; the whole of it stands in the run's files.
LONGEST_TEXT = 1_200
_ALL = "all levels"


def errors(material: Material) -> Section:
    """Over-conservative errors (a dearer route than the ideal one) of each router, in all and by
    level."""
    outcomes = material.outcomes
    if outcomes is None:
        return Section("errors", "Errors", ["No case has a label: nothing to show."])
    level_of = key_values(BreakdownKey.LEVEL, material.labelled, material.references)
    found = {
        router: routing_errors(
            outcomes,
            router,
            level_of,
            min_cases=material.section.min_cases,
            **material.resampling,
        )
        for router in material.routers
    }
    levels = {row.value for rows in found.values() for row in rows if not row.overall}
    table = Table(
        name="errors",
        caption="Errors by level: over-conservative ones chose a dearer route than the ideal one",
        columns=[
            Column("Router", numeric=False),
            Column("Level", numeric=False),
            *map(
                Column,
                (
                    "Cases",
                    "Undecided",
                    "Errors",
                    "Over-conservative",
                    "Share of errors",
                ),
            ),
        ],
        rows=[
            _cells(router, row)
            for router, rows in found.items()
            for row in rows
            if row.overall or levels != {None}
        ],
        filters=("Router", "Level") if levels != {None} else (),
        chosen=("", _ALL) if levels != {None} else (),
    )
    words = ["An error is a decision for another route than the ideal one."]
    if levels == {None}:
        words.append("The level isn't known of any case.")
    return Section("errors", "Errors", words, [_figure(found), table])


def _cells(router: str, row: ErrorRow) -> list[Cell]:
    level = _ALL if row.overall else row.value or NOT_KNOWN
    few = "so few errors say little about their kinds" if row.caution and row.errors else None
    return [
        text_cell(router),
        text_cell(level),
        count_cell(row.n),
        count_cell(row.undecided),
        count_cell(row.errors),
        count_cell(row.over_conservative),
        replace(
            measured_cell(row.share, share),
            note="; ".join(filter(None, (row.share.note, few))) or None,
        ),
    ]


def _figure(found: dict[str, list[ErrorRow]]) -> Figure:
    overall = [rows[0] for rows in found.values()]
    parts = [
        ("chose too dear a route", [row.over_conservative / row.n for row in overall]),
        (
            "chose too cheap a route",
            [(row.errors - row.over_conservative) / row.n for row in overall],
        ),
        ("undecided", [row.undecided / row.n for row in overall]),
    ]
    said = "; ".join(
        f"{router} {row.over_conservative} too dear, {row.errors - row.over_conservative} too "
        f"cheap, {row.undecided} undecided"
        for router, row in zip(found, overall, strict=True)
    )
    return Figure(
        name="errors",
        title="What goes wrong, as a share of all cases",
        alternative=f"A bar for each router, of {overall[0].n} cases: {said}.",
        size=(8.2, 0.9 + 0.26 * len(found)),
        paint=charts.stacked_bars(list(found), parts, "Share of all labelled cases"),
    )


def regrets(material: Material) -> Section:
    """The cases that each router lost most on, with the grounds that it gave."""
    title, k = "Cases with the largest regret", material.section.worst_cases
    outcomes = material.outcomes
    if outcomes is None:
        return Section("regrets", title, ["No case has a label: nothing to show."])
    parts: list[RegretCases] = []
    for router in material.routers:
        if router in FIXED_ROUTERS:
            continue
        decisions = material.decisions[router]
        worst = largest_regrets(outcomes, router, decisions, k)
        if worst:
            parts.append(RegretCases(router, [_case(material, regret) for regret in worst]))
    table = _regrets_table(parts)
    # The first one that gives grounds stands open.
    first = next((part for part in parts if part.cases[0].grounds), parts[0] if parts else None)
    parts = [replace(part, folded=part is not first) for part in parts]
    words = [
        "Regret is the score of the ideal route less that of the chosen one. Shown are at most "
        f"{k} cases of each router that decides case by case (evaluate.worst_cases). Questions, "
        "titles, heads and rationales are quoted as they came; what is longer than "
        f"{LONGEST_TEXT:,} characters is cut."
    ]
    if not parts:
        words.append("No router that decides case by case lost anything.")
        return Section("regrets", title, words)
    return Section("regrets", title, words, [*parts, table])


def _regrets_table(parts: Sequence[RegretCases]) -> Table:
    """All cases of all routers: a page may have room for the first ones only."""
    return Table(
        name="regrets",
        caption="Every case of these",
        columns=[
            *(
                Column(name, numeric=False)
                for name in ("Router", "Case", "Answer model", "Chosen", "Ideal", "Scores")
            ),
            Column("Regret"),
            *(Column(name, numeric=False) for name in ("Question", "Title", "Head", "Grounds")),
        ],
        rows=[
            [
                *map(text_cell, (part.router, case.case_id, case.answer_model)),
                *map(text_cell, (case.chosen, case.ideal)),
                text_cell(", ".join(f"{route} {score}" for route, score in case.scores)),
                Cell(case.regret, float(case.regret)),
                *map(text_cell, (case.question, case.title, case.head)),
                text_cell(
                    " ".join(f"{heading}: {text}" for heading, text in case.grounds)
                    or case.otherwise
                ),
            ]
            for part in parts
            for case in part.cases
        ],
        shown=False,
    )


def _case(material: Material, regret: Regret) -> RegretCase:
    case = next(case for case in material.cases if case.case_id == regret.case_id)
    pair = next(score for score in material.scores if score.case_id == regret.case_id)
    decision = regret.decision
    return RegretCase(
        case_id=case.case_id,
        answer_model=case.answer_model.name,
        title=_cut(case.document.title or ""),
        head=_cut(case.document.head or ""),
        question=_cut(case.question),
        chosen=_chosen(decision, regret.chosen),
        ideal=regret.ideal.value,
        scores=[
            (route.value, "n/a" if arm.score is None else f"{arm.score:.4g}")
            for route, arm in pair.arms.items()
        ],
        regret=f"{regret.regret:.4g}",
        grounds=_grounds(decision),
        otherwise=_otherwise(decision),
    )


def _chosen(decision: Decision, stands: Route) -> str:
    if decision.failure is None:
        return stands.value
    return f"{stands.value} as the fallback: {decision.failure.value}"


def _grounds(decision: Decision) -> list[tuple[str, str]]:
    """The rationale as (heading, text), in the order it was written."""
    given = decision.rationale
    if given is None:
        return []
    found = [(step.value.replace("_", " "), text) for step, text in given.steps.items()]
    found += [("reflection", given.reflection)] if given.reflection else []
    found += [("free text", given.free_text)] if given.free_text else []
    return [(heading, _cut(text)) for heading, text in found]


def _otherwise(decision: Decision) -> str:
    """What is told where there is no rationale in words."""
    if decision.raw:
        return f"What the model wrote instead of a trace: {_cut(decision.raw)}"
    if decision.p_lc is not None:
        return f"No rationale: decided by p_lc {decision.p_lc:.3f}."
    return "No rationale was given."


def _cut(text: str) -> str:
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
