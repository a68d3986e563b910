from __future__ import annotations

from typing import Any

from prerouter.answering.reading import AnsweringModel, Asked
from prerouter.core.records import ROUTES, Answer, AnswerModel, Reject, Route
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.retrieval.retriever import Retriever

from .scripted import ScriptedModel, make_case, question_of, shown, window

HARBOUR = "The harbour froze in March. " * 30
MILL = "The mill burned in June. " * 30


def model(engine: ScriptedModel, **settings: Any) -> AnsweringModel:
    retriever = Retriever(RetrievalSection(vector_ratio=0))
    return AnsweringModel(engine, {Route.RAG: retriever}, window(), **settings)


def asked(*questions: str, **changes: Any) -> list[Asked]:
    return [
        Asked(make_case(question, question, **changes), route)
        for question in questions
        for route in ROUTES
    ]


def test_each_question_has_an_answer_by_each_route() -> None:
    engine = ScriptedModel()
    questions = asked("When did the harbour freeze?", "Is the harbour frozen?")
    found = list(model(engine).answer([(HARBOUR, questions)]))
    assert not [each for each in found if isinstance(each, Reject)]
    answers = {(a.case_id, a.route): a.text for a in found if isinstance(a, Answer)}
    assert answers == {
        (each.case.case_id, each.route): f"Answer to: {each.case.question}" for each in questions
    }


def test_a_route_is_one_call_and_documents_stay_together() -> None:
    engine = ScriptedModel()
    documents = [(HARBOUR, asked("harbour A", "harbour B")), (MILL, asked("mill C", "mill D"))]
    list(model(engine).answer(documents))
    rag, lc = engine.calls
    assert [question_of(request)[-1] for request in rag] == ["A", "B", "C", "D"]
    assert [shown(request)[0] for request in lc] == [HARBOUR, HARBOUR, MILL, MILL]


def test_only_what_is_due_is_asked() -> None:
    engine = ScriptedModel()
    due = [each for each in asked("harbour A", "harbour B") if each.route is Route.LC][1:]
    (answer,) = model(engine).answer([(HARBOUR, due)])
    assert isinstance(answer, Answer)
    assert (answer.case_id, answer.route) == ("harbour B", Route.LC)
    assert len(engine.requests) == 1


def test_a_case_says_whether_the_model_thinks() -> None:
    engine = ScriptedModel()
    thinking = AnswerModel(name="reader", context_window=1000, thinking=True)
    due = asked("harbour A") + asked("harbour B", answer_model=thinking)
    list(model(engine).answer([(HARBOUR, due)]))
    assert [sampling.thinking for sampling in engine.samplings] == [False, True] * 2
    assert [len(call) for call in engine.calls] == [1] * 4


def test_sampled_answers_have_a_seed_of_their_own_and_greedy_ones_none() -> None:
    sampled, again, other, greedy = (ScriptedModel() for _ in range(4))
    due = asked("harbour A", "harbour B")
    list(model(sampled, temperature=0.7, seed=1).answer([(HARBOUR, due)]))
    list(model(again, temperature=0.7, seed=1).answer([(HARBOUR, due[2:])]))
    list(model(other, temperature=0.7, seed=2).answer([(HARBOUR, due)]))
    list(model(greedy).answer([(HARBOUR, due)]))
    seeds = {(question_of(it), "document>" in str(it.messages)): it.seed for it in sampled.requests}
    assert len(set(seeds.values())) == 4
    for request in again.requests:
        key = (question_of(request), "document>" in str(request.messages))
        assert seeds[key] == request.seed
    assert not {request.seed for request in other.requests} & set(seeds.values())
    assert {request.seed for request in greedy.requests} == {None}


def test_choices_reach_both_prompts() -> None:
    engine = ScriptedModel()
    due = [Asked(make_case("harbour?"), route, ("March", "June")) for route in ROUTES]
    list(model(engine).answer([(HARBOUR, due)]))
    for request in engine.requests:
        assert 'A: "March"\nB: "June"' in request.messages[1].content


def test_an_empty_document_costs_no_call() -> None:
    engine = ScriptedModel()
    answers = list(model(engine).answer([("", asked("harbour A"))]))
    assert [answer.text for answer in answers if isinstance(answer, Answer)] == [
        "The document does not tell."
    ] * 2
    assert engine.calls == []


def test_ten_million_characters_are_answered_by_both_routes() -> None:
    engine = ScriptedModel()
    text = f"{MILL * 12_000}The harbour froze in March. {MILL}"
    assert len(text) > 9_000_000
    rag, lc = model(engine).answer([(text, asked("When did the harbour freeze?"))])
    assert isinstance(rag, Answer)
    assert isinstance(lc, Answer)
    assert any("harbour" in text[span.start : span.end] for span in rag.retrieved)
    assert lc.document_cut
