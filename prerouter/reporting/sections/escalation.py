"""What the routers that decide after retrieval do to the answers that they look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from prerouter.core.records import (
    Answer,
    Decision,
    PairedScore,
    Reference,
    Route,
    RoutingCase,
)
from prerouter.measures.escalation import (
    TriggerRates,
    fallback_rates,
    rag_was_right,
    routing_precision,
    token_efficiency,
    trigger_rates,
)
from prerouter.measures.query_cost import Spend, query_spend
from prerouter.measures.retrieval import evidence_spans, retrieved_recall
from prerouter.measures.statistics import Measured
from prerouter.reporting.contents import (
    Cell,
    Column,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.sections.routing import share
from prerouter.reporting.tables import fixed

_PER_TOKENS = 1_000
_NO_TRIPLE = Measured(note="n/a: no question whose evidence has its place in the document")
_NOBODY_SAID = Measured(note="n/a: evaluate.triples tells of none of these cases")
_NO_TOKENS = Measured(note="n/a: nobody counted the tokens of these answers")


@dataclass(frozen=True)
class _Checked:
    """One case whose answer, or passages, a router looked at before it decided."""

    case: RoutingCase
    decision: Decision
    pair: PairedScore
    wrote: Route

    @property
    def escalated(self) -> bool:
        return self.decision.route is Route.LC

    def qa(self, route: Route) -> float:
        score = self.pair.arms[route].score
        assert score is not None
        return score


def escalation(material: Material) -> Section:
    """A row for each router that looks at answers, or passages, before it decides."""
    title = "Deciding after retrieval"
    checked = {router: _checked(material, router) for router in material.routers}
    checked = {router: cases for router, cases in checked.items() if cases}
    if not checked:
        return Section("escalation", title, ["No router looked at an answer before it decided."])
    held = "held all the evidence" if material.triples is None else "answer it, as people say"
    rows, types = [], []
    for router, cases in checked.items():
        groups = [each.case.group_id for each in cases]
        escalated = [each.escalated for each in cases]
        kinds = _kinds(material, cases)
        all_of_it = fallback_rates(escalated, ["all"] * len(cases), groups, **material.resampling)
        precision = routing_precision(
            escalated,
            rag_was_right(
                [each.qa(each.wrote) for each in cases],
                [each.qa(Route.LC) for each in cases],
                cases[0].pair.high,
            ),
            groups,
            **material.resampling,
        )
        triggers = _triggers(material, cases)
        none = _NO_TRIPLE if material.triples is None else _NOBODY_SAID
        efficiency, factor = _tokens(material, router)
        rows.append(
            [
                text_cell(router),
                count_cell(len(cases)),
                measured_cell(all_of_it[0].rate, share),
                measured_cell(precision, share),
                measured_cell(efficiency, fixed),
                measured_cell(triggers.over if triggers else none, share),
                measured_cell(triggers.under if triggers else none, share),
                count_cell(triggers.n_answerable if triggers else 0),
                count_cell(triggers.n_unanswerable if triggers else 0),
                measured_cell(factor, fixed),
            ]
        )
        types += [
            [
                text_cell(router),
                text_cell(row.value if row.value is not None else "not known"),
                measured_cell(row.rate, share),
                count_cell(row.n),
            ]
            for row in fallback_rates(escalated, kinds, groups, **material.resampling)
        ]
    return Section(
        "escalation",
        title,
        [
            "These routers look at a RAG answer, or at its passages, and may drop it for LC. What "
            "a classifier or another router had sent to LC before is in the routing table alone.",
            "P_route: share of decisions, to keep or to drop, that agree with whether the answer "
            "was right to keep (full marks, or no worse than LC's). Over-triggered: dropped though "
            f"the passages {held}; under-triggered: kept though they did not.",
        ],
        [_main_table(rows), _type_table(types)],
    )


def _main_table(rows: list[list[Cell]]) -> Table:
    return Table(
        name="escalation",
        caption="Answers dropped, and whether that was right",
        columns=[
            Column("Router", numeric=False),
            Column("Decisions"),
            Column("Dropped for LC"),
            Column("P_route"),
            Column(f"QA for {_PER_TOKENS:,} tokens more"),
            Column("Over-triggered"),
            Column("Under-triggered"),
            Column("Answerable"),
            Column("Not answerable"),
            Column("Tokens, times RAG's"),
        ],
        rows=rows,
    )


def _type_table(rows: list[list[Cell]]) -> Table:
    return Table(
        name="escalation-types",
        caption="Answers dropped, by query type",
        columns=[
            Column("Router", numeric=False),
            Column("Query type", numeric=False),
            Column("Dropped for LC"),
            Column("Decisions"),
        ],
        rows=rows,
        folded=True,
    )


def _checked(material: Material, router: str) -> list[_Checked]:
    """The labelled cases on which the router decided with an answer, or its passages, before it."""
    decisions = {decision.case_id: decision for decision in material.decisions[router]}
    found = []
    for case in material.labelled:
        decision = decisions[case.case_id]
        # A verdict looks at the passages, and no answer is written before it.
        by_verdict = router.removesuffix("_tuned") == "self_route_verdict"
        if decision.route is not None and (decision.wrote is not None or by_verdict):
            wrote = decision.wrote or Route.RAG
            found.append(_Checked(case, decision, material.score_of[case.case_id], wrote))
    return found


def _kinds(material: Material, cases: Sequence[_Checked]) -> list[str | None]:
    levels = {reference.question_id: reference.level for reference in material.references}
    return [each.case.task_type or levels.get(each.case.question_id) for each in cases]


def _triggers(material: Material, cases: Sequence[_Checked]) -> TriggerRates | None:
    """Against labelled triples: people's, where there are any; else questions that the document
    answers, with their evidence's place, and what was retrieved for them."""
    references = {reference.question_id: reference for reference in material.references}
    escalated, answerable, groups = [], [], []
    for each in cases:
        answer = (each.case.case_id, each.wrote)
        if material.triples is not None:
            held = material.triples.get(answer)
        else:
            reference = references.get(each.case.question_id)
            held = _evidence_held(reference, material.answers.get(answer))
        if held is not None:
            escalated.append(each.escalated)
            answerable.append(held)
            groups.append(each.case.group_id)
    if not groups:
        return None
    return trigger_rates(escalated, answerable, groups, **material.resampling)


def _evidence_held(reference: Reference | None, answer: Answer | None) -> bool | None:
    """Whether all evidence lies in what was retrieved; None where either isn't known."""
    if reference is None or not reference.answerable or answer is None:
        return None
    spans = evidence_spans(reference.evidence)
    return retrieved_recall(spans, answer.retrieved) == 1.0 if spans else None


def _tokens(material: Material, router: str) -> tuple[Measured, Measured]:
    """TER for 1,000 tokens over all labelled cases, and all tokens as a multiple of RAG's."""
    decisions = {decision.case_id: decision for decision in material.decisions[router]}
    always_rag = Decision(case_id="-", router="-", route=Route.RAG)
    columns: list[tuple[float, float, float, float]] = []
    groups = []
    for case in material.labelled:
        decision, pair = decisions[case.case_id], material.score_of[case.case_id]
        taken = decision.route or material.section.fallback
        answer_of = {r: a for r in Route if (a := material.answers.get((case.case_id, r)))}
        if not {taken, decision.wrote or taken, Route.RAG} <= answer_of.keys():
            continue
        spent = [
            _all_tokens(query_spend(each, answer_of, {}, case.answer_model.name, taken))
            for each in (decision, always_rag)
        ]
        if None not in spent:
            own, rag = (float(value or 0) for value in spent)
            qa, qa_rag = pair.arms[taken].score, pair.arms[Route.RAG].score
            assert qa is not None
            assert qa_rag is not None
            columns.append((qa, qa_rag, own, rag))
            groups.append(case.group_id)
    if not columns:
        return _NO_TOKENS, _NO_TOKENS
    qas, qas_rag, owns, rags = zip(*columns, strict=True)
    thousands = [value / _PER_TOKENS for value in owns]
    rag_thousands = [value / _PER_TOKENS for value in rags]
    efficiency = token_efficiency(
        qas, qas_rag, thousands, rag_thousands, groups, **material.resampling
    )
    if not sum(rags):
        return efficiency, _NO_TOKENS
    # What a decision took, what stands and what was dropped, against RAG's answers alone.
    return efficiency, Measured(value=sum(owns) / sum(rags))


def _all_tokens(spent: dict[Spend, float | None]) -> float | None:
    given, got = spent[Spend.INPUT], spent[Spend.OUTPUT]
    return None if given is None or got is None else given + got
