from __future__ import annotations

import json

import pytest

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.protocols import Router
from prerouter.core.records import AnswerModel, DocumentProfile, Label, Route, RoutingCase
from prerouter.routers.fixed import AlwaysLc, AlwaysRag, TaskMajority

RAG, LC = Route.RAG, Route.LC


def case(name: str, task_type: str | None = None) -> RoutingCase:
    return RoutingCase(
        case_id=name,
        question_id=name,
        group_id="d",
        question="Where?",
        task_type=task_type,
        document=DocumentProfile(document_id="d"),
        answer_model=AnswerModel(name="m"),
    )


def pairs(*labels: tuple[str | None, Route]) -> list[tuple[RoutingCase, Label]]:
    return [
        (case(f"c{place}", task), Label(case_id=f"c{place}", route=route, margin=0))
        for place, (task, route) in enumerate(labels)
    ]


def routes(router: Router, *tasks: str | None) -> list[Route | None]:
    cases = [case(f"t{place}", task) for place, task in enumerate(tasks)]
    decisions = list(router.route(cases))
    assert [decision.case_id for decision in decisions] == [c.case_id for c in cases]
    assert {decision.router for decision in decisions} == {router.name}
    return [decision.route for decision in decisions]


def test_one_route_for_all() -> None:
    assert routes(AlwaysRag(), "a", None) == [RAG, RAG]
    assert routes(AlwaysLc(), "a", None) == [LC, LC]


def test_each_task_type_gets_its_majority_and_others_the_overall_one() -> None:
    router = TaskMajority.fit(
        pairs(("a", RAG), ("a", RAG), ("a", LC), ("b", LC), ("b", LC), ("b", LC), (None, LC))
    )
    assert routes(router, "a", "b", "unseen", None) == [RAG, LC, LC, LC]


def test_ties_go_to_the_cheap_route() -> None:
    router = TaskMajority.fit(pairs(("a", LC), ("a", RAG), ("b", RAG), ("b", LC)))
    assert routes(router, "a", "b", "c") == [RAG, RAG, RAG]


def test_an_empty_task_type_is_a_task_type() -> None:
    router = TaskMajority.fit(pairs(("", LC), (None, RAG), (None, RAG)))
    assert routes(router, "", None) == [LC, RAG]


def test_no_label_is_an_error() -> None:
    with pytest.raises(StageError, match="no training label"):
        TaskMajority.fit([])


def test_a_label_of_another_case_is_an_error() -> None:
    with pytest.raises(ValueError, match="paired with label x"):
        TaskMajority.fit([(case("c"), Label(case_id="x", route=RAG, margin=0))])


def test_it_comes_back_from_json_as_it_was() -> None:
    router = TaskMajority.fit(pairs(("b", LC), ("a", RAG), ("a", RAG)))
    text = json.dumps(router.to_dict())
    again = TaskMajority.from_dict(json.loads(text))
    assert json.dumps(again.to_dict()) == text
    assert routes(again, "a", "b", None) == routes(router, "a", "b", None) == [RAG, LC, RAG]


def test_the_order_of_the_labels_does_not_show() -> None:
    labels = pairs(("b", LC), ("a", RAG), ("c", LC))
    written = [json.dumps(TaskMajority.fit(some).to_dict()) for some in (labels, labels[::-1])]
    assert written[0] == written[1]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"router": "task_majority", "labels": 3, "overall": "BOTH", "by_task_type": {}},
        {"router": "other", "labels": 3, "overall": "RAG", "by_task_type": {}},
        {"router": "task_majority", "labels": 3, "overall": "RAG", "by_task_type": {}, "x": 1},
    ],
)
def test_anything_else_is_refused(data: object) -> None:
    with pytest.raises(CheckpointError, match="task_majority"):
        TaskMajority.from_dict(data)


def test_the_majority_may_be_any_route_that_labels_name() -> None:
    routes = [Route.LONG_RAG, Route.LONG_RAG, Route.LC, Route.RAG]
    pairs = [
        (asked, Label(case_id=asked.case_id, route=route, margin=0.0))
        for number, route in enumerate(routes)
        for asked in [case(f"c{number}", "location")]
    ]
    router = TaskMajority.fit(pairs)
    assert next(router.route([pairs[0][0]])).route is Route.LONG_RAG
