"""Who counts as deciding after retrieval, and what that took."""

from __future__ import annotations

import dataclasses

from prerouter.core.records import Answer, Route
from prerouter.reporting.sections.escalation import escalation
from tests.measures.matched import Evaluation, evaluation

from .made import material
from .test_report import column, table

RAG, LC = Route.RAG, Route.LC


def made(**changes: object) -> Evaluation:
    """Six cases in three documents; the router keeps RAG for the first three."""
    found = evaluation(
        [(0.6, 0.4)] * 3 + [(0.2, 0.8)] * 3,
        {"always_rag": "RRRRRR", "checked": "RRRLLL"},
    )
    decisions = [each.model_copy(update=changes) for each in found.decisions["checked"]]
    return dataclasses.replace(found, decisions={**found.decisions, "checked": decisions})


def answers(evaluated: Evaluation, rag: int, lc: int) -> dict[tuple[str, Route], Answer]:
    return {
        (case.case_id, route): Answer(
            case_id=case.case_id,
            route=route,
            text="May.",
            prompt_tokens=tokens,
            completion_tokens=0,
        )
        for case in evaluated.cases
        for route, tokens in ((RAG, rag), (LC, lc))
    }


def test_answers_that_were_dropped_are_paid_for() -> None:
    evaluated = made(wrote=RAG)
    section = escalation(material(evaluated, answers=answers(evaluated, 100, 500)))
    rows = table(section, "escalation")
    assert column(rows, "Router") == ["checked"]
    assert column(rows, "Decisions") == ["6"]
    assert column(rows, "Dropped for LC")[0].startswith("50")
    assert column(rows, "P_route")[0].startswith("100")
    # Three keep 100, three pay 100 and 500: 2,100 against 600.
    assert column(rows, "Tokens, times RAG's") == ["3.500"]


def test_a_model_that_bears_the_name_of_the_answer_model_checks_nothing() -> None:
    plain = made()
    name = plain.cases[0].answer_model.name
    section = escalation(material(made(model=name, calls=1)))
    assert section.parts == ()
    assert "No router looked at an answer" in section.words[0]


def test_what_people_say_of_the_passages_is_what_triggers_are_held_against() -> None:
    evaluated = made(wrote=RAG)
    ids = [case.case_id for case in evaluated.cases]
    # Kept: two answerable, one not. Dropped: one answerable, one not, and one nobody spoke of.
    said = dict(zip(ids[:5], [True, True, False, True, False], strict=True))
    triples = {(case_id, RAG): answerable for case_id, answerable in said.items()}
    section = escalation(material(evaluated, triples=triples))
    rows = table(section, "escalation")
    assert column(rows, "Answerable") == ["3"]
    assert column(rows, "Not answerable") == ["2"]
    assert column(rows, "Over-triggered")[0].startswith("33.3")
    assert column(rows, "Under-triggered")[0].startswith("50.0")
    assert "as people say" in " ".join(section.words)


def test_triggers_without_triples_are_not_told() -> None:
    rows = table(escalation(material(made(wrote=RAG), triples={})), "escalation")
    assert column(rows, "Over-triggered") == ["n/a"]
    assert column(rows, "Answerable") == ["0"]
