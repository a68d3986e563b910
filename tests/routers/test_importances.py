from __future__ import annotations

import pytest

from prerouter.core.records import Label, Route
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.importances import permutation_importances
from prerouter.routers.pipelines import ClassicalKind, columns

from .test_classical import KINDS, make_case, training_pairs


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_labels_depend_on_stands_first(kind: ClassicalKind) -> None:
    router = ClassicalRouter(kind, seed=5).fit(training_pairs(400))
    found = permutation_importances(router, training_pairs(200, seed=9), seed=1)
    assert found.router == kind
    assert found.cases == 200
    assert {each.feature for each in found.features} == set(columns(kind))
    assert found.features[0].feature == "task_type"
    by_name = {each.feature: each.mean for each in found.features}
    means = [each.mean for each in found.features]
    assert means == sorted(means, reverse=True)
    assert by_name["task_type"] > 0.1
    # All cases have the same one.
    assert by_name["document_type"] == 0
    assert found.auc is not None
    assert 0.7 < found.auc <= 1


def test_it_repeats_under_its_seed() -> None:
    router = ClassicalRouter("random_forest", seed=5).fit(training_pairs())
    cases = training_pairs(60, seed=2)
    assert permutation_importances(router, cases, 1) == permutation_importances(router, cases, 1)
    assert permutation_importances(router, cases, 1) != permutation_importances(router, cases, 2)


def test_too_few_cases_and_one_route_are_told() -> None:
    router = ClassicalRouter("decision_tree", seed=5).fit(training_pairs())
    few = permutation_importances(router, training_pairs(10), 1)
    assert (few.features, few.note) == ((), "fewer than 30 labelled cases")
    one = [(make_case(n), Label(case_id="c", route=Route.RAG, margin=0.0)) for n in range(40)]
    assert permutation_importances(router, one, 1).note == "the labels are of one route only"


def test_words_of_the_question_count_where_they_tell_the_route() -> None:
    def told(count: int, start: int) -> list[tuple[object, Label]]:
        found: list[tuple[object, Label]] = []
        for number in range(start, start + count):
            lc = number % 3 == 0
            words = "compare the totals" if lc else "name the author"
            case = make_case(number).model_copy(update={"question": f"{words} of {number}"})
            route = Route.LC if lc else Route.RAG
            found.append((case, Label(case_id=case.case_id, route=route, margin=0.1)))
        return found

    router = ClassicalRouter("logistic_regression", seed=1).fit(told(90, 0))  # type: ignore[arg-type]
    found = permutation_importances(router, told(60, 500), 1)  # type: ignore[arg-type]
    assert found.features[0].feature == "question"
    assert found.auc == 1.0
