"""Where a router does well and where it errs: measures by a key, kinds of error, largest regrets.

Breakdowns and over-conservative errors as in Pre-Route, section 1 (Chen et al., 2026, arXiv
2605.10235): an error is over-conservative where a dearer route was chosen than the ideal one, which
of two routes is LC where RAG is ideal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import StrEnum

import numpy as np

from prerouter.core.errors import StageError
from prerouter.core.records import (
    Decision,
    Label,
    PairedScore,
    Record,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.measures.checks import MIN_CASES, caution
from prerouter.measures.length_bands import length_band
from prerouter.measures.outcomes import Outcomes, join_outcomes
from prerouter.measures.routing import POOLED, RoutingRow, routing_table
from prerouter.measures.statistics import Measured, cluster_bootstrap, group_sums, with_interval

PLACE = "breakdown"


class BreakdownKey(StrEnum):
    DOCUMENT_TYPE = "document_type"
    TASK_TYPE = "task_type"
    LEVEL = "level"
    CONTEXT_LENGTH = "context_length"
    ANSWER_MODEL = "answer_model"


_VALUE: dict[BreakdownKey, Callable[[RoutingCase, Reference | None], str | None]] = {
    BreakdownKey.DOCUMENT_TYPE: lambda case, _: case.document.type,
    BreakdownKey.TASK_TYPE: lambda case, _: case.task_type,
    BreakdownKey.LEVEL: lambda _, reference: reference.level if reference else None,
    BreakdownKey.CONTEXT_LENGTH: lambda _, reference: (
        reference.context_length if reference else None
    ),
    BreakdownKey.ANSWER_MODEL: lambda case, _: case.answer_model.name,
}


class BreakdownRow(Record):
    """One router on the cases whose key has this value, None where it isn't known.

    `row` is a row of the routing table over these cases, all answer models pooled.
    """

    key: BreakdownKey
    value: str | None
    row: RoutingRow
    caution: str | None = None


class ErrorRow(Record):
    """The errors of one router on the n labelled cases of one value, or on all (`overall`).

    Of the `errors`, cases decided otherwise than the ideal route, `over_conservative` chose a
    dearer route than the ideal one and the rest a cheaper one; `share` is over_conservative /
    errors.
    `undecided` cases got no route and are neither. `caution` warns of few errors.
    """

    overall: bool
    value: str | None
    n: int
    undecided: int
    errors: int
    over_conservative: int
    share: Measured
    caution: str | None = None


class Regret(Record):
    """A case and what the router's choice lost on it: U(ideal) - U(chosen), in units of the scale.

    `chosen` is the fallback route where the decision is a failure.
    """

    case_id: str
    chosen: Route
    ideal: Route
    regret: float
    decision: Decision


def key_values(
    key: BreakdownKey, cases: Sequence[RoutingCase], references: Sequence[Reference]
) -> dict[str, str | None]:
    """The key's value of each case by case_id; None where it isn't known."""
    if key is BreakdownKey.CONTEXT_LENGTH and lengths_are_bands(cases, references):
        lengths = {case.case_id: case.document.tokens for case in cases}
        return {
            case_id: None if tokens is None else length_band(tokens)
            for case_id, tokens in lengths.items()
        }
    reference_of = {reference.question_id: reference for reference in references}
    return {
        case.case_id: _VALUE[key](case, reference_of.get(case.question_id)) or None
        for case in cases
    }


def lengths_are_bands(cases: Sequence[RoutingCase], references: Sequence[Reference]) -> bool:
    """Whether the context length is a band of the document's tokens, since no reference of these
    cases tells one: bands and a source's own strata in one breakdown would be two scales."""
    questions = {case.question_id for case in cases}
    return not any(each.context_length for each in references if each.question_id in questions)


def breakdown(
    key: BreakdownKey,
    decisions_by_router: Mapping[str, Sequence[Decision]],
    labels: Sequence[Label],
    scores: Sequence[PairedScore],
    cases: Sequence[RoutingCase],
    references: Sequence[Reference],
    *,
    fallback: Route = Route.RAG,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
    unseen_models: Collection[str] = (),
) -> list[BreakdownRow]:
    """Every measure of every router and the oracle, for each value of the key.

    Values stand in the order of the cases, the unknown one last. Rows over nothing but
    `unseen_models` are `unseen`. Errors as for the routing table.
    """
    join_outcomes(decisions_by_router, labels, scores, cases, fallback=fallback)
    value_of = key_values(key, cases, references)
    rows = []
    for value in _in_order(value_of.values()):
        inside = [case for case in cases if value_of[case.case_id] == value]
        unseen = all(case.answer_model.name in unseen_models for case in inside)
        table = routing_table(
            {
                router: [d for d in decisions if value_of[d.case_id] == value]
                for router, decisions in decisions_by_router.items()
            },
            labels,
            scores,
            inside,
            fallback=fallback,
            resamples=resamples,
            confidence=confidence,
            seed=seed,
            min_cases=min_cases,
        )
        rows += [
            BreakdownRow(
                key=key,
                value=value,
                row=row.model_copy(update={"unseen": unseen}),
                caution=caution(row.n, min_cases),
            )
            for row in table
            if row.answer_model is POOLED
        ]
    return rows


def _in_order(values: Iterable[str | None]) -> list[str | None]:
    return sorted(dict.fromkeys(values), key=lambda value: value is None)


def routing_errors(
    outcomes: Outcomes,
    router: str,
    value_of: Mapping[str, str | None],
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> list[ErrorRow]:
    """The overall row, then one for each value of a key (`key_values`), such as the task's level.

    Intervals resample documents. StageError for an unknown router or a case without a value.
    """
    _check_router(outcomes, router)
    absent = [case_id for case_id in outcomes.case_ids if case_id not in value_of]
    if absent:
        raise StageError(PLACE, f"no value is given for {absent[0]}", "one, or None, for each case")
    values = [value_of[case_id] for case_id in outcomes.case_ids]
    decided = outcomes.decided[router]
    wrong = decided & (outcomes.chosen[router] != outcomes.ideal)
    cost = np.array([[*Route].index(route) for route in outcomes.routes])
    needless = wrong & (cost[outcomes.chosen[router]] > cost[outcomes.ideal])
    strata = [(True, None), *((False, value) for value in _in_order(values))]
    rows = []
    for overall, value in strata:
        inside = np.array([overall or other == value for other in values])
        counts = np.column_stack((wrong[inside], needless[inside])).astype(np.float64)
        sums = group_sums(outcomes.groups[inside], counts)
        errors, over = (int(total) for total in sums.sum(axis=0))
        share = Measured(note="n/a: no error")
        if errors:
            found = cluster_bootstrap(
                sums,
                lambda s: np.divide(
                    s[..., 1], s[..., 0], out=np.full(s.shape[:-1], np.nan), where=s[..., 0] > 0
                ),
                resamples,
                confidence,
                seed,
            )
            share = with_interval(over / errors, found)
        rows.append(
            ErrorRow(
                overall=overall,
                value=value,
                n=int(inside.sum()),
                undecided=int((~decided[inside]).sum()),
                errors=errors,
                over_conservative=over,
                share=share,
                caution=caution(errors, min_cases, "errors"),
            )
        )
    return rows


def largest_regrets(
    outcomes: Outcomes, router: str, decisions: Sequence[Decision], k: int
) -> list[Regret]:
    """The `k` cases on which the choice lost most, the worst first; equals by case_id.

    Cases that lost nothing are none of them. StageError for an unknown router.
    """
    _check_router(outcomes, router)
    decision_of = {decision.case_id: decision for decision in decisions}
    lost = outcomes.qa[np.arange(outcomes.n), outcomes.ideal] - outcomes.qa_of(router)
    worst = sorted(np.flatnonzero(lost > 0), key=lambda i: (-lost[i], outcomes.case_ids[i]))[:k]
    return [
        Regret(
            case_id=outcomes.case_ids[i],
            chosen=outcomes.routes[outcomes.chosen[router][i]],
            ideal=outcomes.routes[outcomes.ideal[i]],
            regret=float(lost[i]),
            decision=decision_of[outcomes.case_ids[i]],
        )
        for i in worst
    ]


def _check_router(outcomes: Outcomes, router: str) -> None:
    if router not in outcomes.chosen:
        raise StageError(PLACE, f"no router {router}", f"one of {', '.join(outcomes.chosen)}")
