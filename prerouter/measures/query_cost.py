"""What a query costs in all: its decision, the answer that stands, and one written in vain.

C = C_route + p(LC)·C_LC + (1 - p(LC))·C_RAG (Pre-Route, section 1: Cost), case by case. A router
that looks at an answer before it decides has that answer written on the way (`Decision.wrote`):
where it is dropped, the query pays for two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from math import fsum

import numpy as np

from prerouter.core.records import (
    ROUTES,
    Answer,
    AnswerModel,
    Decision,
    DecisionFailure,
    Record,
    Route,
    RoutingCase,
)
from prerouter.measures.cost import Tokens, usd
from prerouter.measures.statistics import Floats, Measured, cluster_bootstrap, with_interval
from prerouter.recipe.prices import Price

Answers = Mapping[tuple[str, Route], Answer]
"""The answers of all cases, by case id and route."""


class Spend(StrEnum):
    """What a query takes. Tokens are of the model that is called; seconds are its own, as though
    nothing else were asked of it."""

    CALLS = "calls"
    INPUT = "input_tokens"
    OUTPUT = "output_tokens"
    SECONDS = "seconds"
    USD = "usd"


class CostRow(Record):
    """Means over the `n` cases whose answers' tokens are known by every route; `unknown` cases are
    in none. `estimated`: of the n, how many have an answer whose tokens nobody counted."""

    router: str
    n: int
    unknown: int
    estimated: int
    measures: dict[Spend, Measured]


def estimate_answer(case: RoutingCase, route: Route, output_tokens: int) -> Answer | None:
    """An answer with the tokens that it likely took, by what the case tells of document, window and
    retrieval; None where the document's length isn't known, or the route is another."""
    length = case.document.tokens
    if length is None or route is Route.LONG_RAG:
        return None
    shown = length
    if route is Route.RAG:
        shown = min(length, case.rag.top_k * case.rag.chunk_tokens)
    return Answer(
        case_id=case.case_id,
        route=route,
        text="",
        prompt_tokens=_within(case.answer_model, shown, output_tokens),
        completion_tokens=output_tokens,
    )


def _within(model: AnswerModel, tokens: int, output_tokens: int) -> int:
    window = model.context_window
    return tokens if window is None else max(0, min(tokens, window - output_tokens))


def query_spend(
    decision: Decision,
    answer_of: Mapping[Route, Answer],
    prices: Mapping[str, Price],
    answer_model: str,
    fallback: Route,
) -> dict[Spend, float | None]:
    """What one query took; a value is None where it isn't known. An undecided case goes to the
    fallback route and pays for it; a call that failed gave no reply to pay for."""
    stands = decision.route or fallback
    written = dict.fromkeys((stands, decision.wrote or stands))
    found: list[dict[Spend, float | None]] = [
        _answered(answer_of[route], prices.get(answer_model)) for route in written
    ]
    found.append(_decided(decision, prices))
    return {spend: _total([each[spend] for each in found]) for spend in Spend}


def _answered(answer: Answer, price: Price | None) -> dict[Spend, float | None]:
    given, got = answer.prompt_tokens, answer.completion_tokens
    if given is None or got is None:
        return dict.fromkeys(Spend)
    # Where there was nothing to read, nothing was asked.
    return {
        Spend.CALLS: float(given > 0),
        Spend.INPUT: given,
        Spend.OUTPUT: got,
        Spend.SECONDS: answer.seconds,
        Spend.USD: usd(Tokens(given, got), price) if price else None,
    }


_NOTHING_READ = (DecisionFailure.CALL_FAILED, DecisionFailure.TOO_LONG)


def _decided(decision: Decision, prices: Mapping[str, Price]) -> dict[Spend, float | None]:
    tokens = Tokens(decision.prompt_tokens, decision.completion_tokens)
    given: float | None = tokens.input
    got: float | None = tokens.output
    price = prices.get(decision.model or "")
    cost = usd(tokens, price) if price else None
    if not (tokens.input or tokens.output):
        cost = 0.0
        if decision.calls and decision.failure not in _NOTHING_READ:
            # No prompt is empty: the server didn't tell.
            given = got = cost = None
    return {
        Spend.CALLS: decision.calls,
        Spend.INPUT: given,
        Spend.OUTPUT: got,
        Spend.SECONDS: decision.seconds,
        Spend.USD: cost,
    }


def _total(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fsum(known) if len(known) == len(values) else None


def cost_rows(
    decisions_by_router: Mapping[str, Sequence[Decision]],
    answers: Answers,
    cases: Sequence[RoutingCase],
    prices: Mapping[str, Price],
    *,
    output_tokens: int,
    fallback: Route = Route.RAG,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> list[CostRow]:
    """A row for each router, over `cases`, each of which every router has decided.

    Where an answer's tokens nobody counted they are estimated (`estimate_answer`, with
    `output_tokens` for the reply). Intervals resample documents. `prices` are by model name, as
    the cases and the decisions name them.
    """
    routes = {decision.route for some in decisions_by_router.values() for decision in some}
    routes |= {decision.wrote for some in decisions_by_router.values() for decision in some}
    wanted = [route for route in Route if route in routes | {*ROUTES, fallback}]
    answer_of: dict[str, dict[Route, Answer]] = {}
    estimated = 0
    for case in cases:
        counted = {route: _counted(answers.get((case.case_id, route))) for route in wanted}
        filled = {
            route: answer or estimate_answer(case, route, output_tokens)
            for route, answer in counted.items()
        }
        known = {route: answer for route, answer in filled.items() if answer is not None}
        if len(known) == len(wanted):
            answer_of[case.case_id] = known
            estimated += None in counted.values()
    by_id = {case.case_id: case for case in cases}
    rows = []
    for router, decisions in decisions_by_router.items():
        spent = [
            (
                by_id[decision.case_id],
                query_spend(
                    decision,
                    answer_of[decision.case_id],
                    prices,
                    by_id[decision.case_id].answer_model.name,
                    fallback,
                ),
            )
            for decision in decisions
            if decision.case_id in answer_of
        ]
        rows.append(
            CostRow(
                router=router,
                n=len(spent),
                unknown=len(decisions) - len(spent),
                estimated=estimated,
                measures={
                    spend: _mean(
                        [(case.group_id, each[spend]) for case, each in spent],
                        spend,
                        resamples,
                        confidence,
                        seed,
                    )
                    for spend in Spend
                },
            )
        )
    return rows


def _counted(answer: Answer | None) -> Answer | None:
    if answer is None or answer.prompt_tokens is None or answer.completion_tokens is None:
        return None
    return answer


_UNTOLD = "a server did not tell the tokens of a decision"
_WHY_UNKNOWN = {
    Spend.INPUT: _UNTOLD,
    Spend.OUTPUT: _UNTOLD,
    Spend.SECONDS: "nobody timed the answers",
    Spend.USD: f"the price table lacks a model that is called, or {_UNTOLD}",
}


def _mean(
    values: Sequence[tuple[str, float | None]],
    spend: Spend,
    resamples: int,
    confidence: float,
    seed: int,
) -> Measured:
    known = [(group, value) for group, value in values if value is not None]
    if not known or len(known) < len(values):
        why = _WHY_UNKNOWN[spend] if values else "no case whose answers' tokens are known"
        return Measured(note=f"n/a: {why}")
    groups: dict[str, list[float]] = {}
    for group, value in known:
        sums = groups.setdefault(group, [0.0, 0.0])
        sums[0] += value
        sums[1] += 1
    table = np.array(list(groups.values()))
    mean = float(table[:, 0].sum() / table[:, 1].sum())
    if len(table) == 1:
        return Measured(value=mean, note="no interval: one document only")
    return with_interval(mean, cluster_bootstrap(table, _ratio, resamples, confidence, seed))


def _ratio(sums: Floats) -> Floats:
    found: Floats = sums[..., 0] / sums[..., 1]
    return found
