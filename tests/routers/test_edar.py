"""EDAR: certain answers stand, uncertain ones are read anew, what is missing is undecided."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import ChoiceScores, GenerationRequest
from prerouter.core.records import (
    Answer,
    Decision,
    DecisionFailure,
    MissingReason,
    Route,
    RoutingCase,
)
from prerouter.prompts.checks import QUERY_TYPES
from prerouter.routers.edar import CheckedPreRoute, Edar, Sorted
from prerouter.routers.query_type import DistilledQueryTypes, PromptedQueryTypes

from ..answering.scripted import ScriptedModel, make_case, question_of

ANSWERS = {
    "certain": Answer(case_id="certain", route=Route.RAG, text="May.", entropies=(0.5, 1.5)),
    "edge": Answer(case_id="edge", route=Route.RAG, text="May.", entropies=(1.2, 1.2)),
    "uncertain": Answer(case_id="uncertain", route=Route.RAG, text="May.", entropies=(3.0, 0.0)),
    "failed": Answer(case_id="failed", route=Route.RAG, missing=MissingReason.CALL_FAILED),
    "unmeasured": Answer(case_id="unmeasured", route=Route.RAG, text="May.", prompt_tokens=9),
    "unread": Answer(case_id="unread", route=Route.RAG, text="No.", prompt_tokens=0),
}
CASES = [make_case(f"{name}?", case_id=name) for name in ANSWERS]


def written(cases: Sequence[RoutingCase]) -> list[Answer]:
    return [ANSWERS[case.case_id] for case in cases]


class SynthesisOf:
    def __init__(self, *names: str) -> None:
        self._names = names

    def sort(self, cases: Sequence[RoutingCase]) -> list[Sorted]:
        return [Sorted(case.case_id in self._names, calls=1, prompt_tokens=7) for case in cases]


def test_the_mean_entropy_is_held_against_the_threshold() -> None:
    found = {d.case_id: d for d in Edar("edar", written, 1.2).route(CASES)}
    assert list(found) == list(ANSWERS)
    assert {name: d.route for name, d in found.items()} == {
        "certain": Route.RAG,
        "edge": Route.RAG,
        "uncertain": Route.LC,
        "failed": None,
        "unmeasured": None,
        "unread": Route.LC,
    }
    assert found["failed"].failure is DecisionFailure.NO_ANSWER
    assert found["unmeasured"].failure is DecisionFailure.NO_ENTROPY
    # Its answer was written and is paid for, whatever becomes of the case.
    assert found["unmeasured"].wrote is Route.RAG
    assert found["uncertain"].wrote is found["certain"].wrote is Route.RAG


def test_a_synthesis_query_goes_straight_to_the_document() -> None:
    router = Edar("edar", written, 1.2, SynthesisOf("certain", "failed"))
    found = {d.case_id: d for d in router.route(CASES)}
    for name in ("certain", "failed"):
        assert (found[name].route, found[name].wrote) == (Route.LC, None)
    # The classifier's call is the router's own, whatever came of it.
    assert {(d.calls, d.prompt_tokens) for d in found.values()} == {(1, 7)}


class Before:
    name = "before"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        routes = {"certain": Route.RAG, "uncertain": Route.RAG, "edge": Route.LC, "unread": None}
        for case in cases:
            route = routes.get(case.case_id, Route.LC)
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                route=route,
                failure=None if route else DecisionFailure.UNPARSABLE,
                p_lc=0.4,
                calls=1,
                prompt_tokens=30,
                completion_tokens=5,
                seconds=0.5,
            )


def test_a_check_escalates_what_pre_route_sends_to_rag_and_nothing_else() -> None:
    found = {d.case_id: d for d in CheckedPreRoute("both", Before(), written, 1.2).route(CASES)}
    assert {d.router for d in found.values()} == {"both"}
    assert [found[n].route for n in ("certain", "uncertain", "edge", "failed")] == [
        Route.RAG,
        Route.LC,
        Route.LC,
        Route.LC,
    ]
    assert found["unread"].failure is DecisionFailure.UNPARSABLE
    assert [found[n].wrote for n in ("certain", "uncertain", "edge")] == [
        Route.RAG,
        Route.RAG,
        None,
    ]
    # What Pre-Route took is paid for all the same.
    assert {(d.calls, d.prompt_tokens, d.completion_tokens) for d in found.values()} == {(1, 30, 5)}
    assert found["uncertain"].p_lc is None


QUESTIONS = [f"What was the {noun} of 19{n}?" for n in range(10, 30) for noun in ("name", "date")]
COMPARISONS = [f"How do the years 19{n} and 1950 differ in all respects?" for n in range(10, 30)]


def test_a_small_classifier_learns_from_task_types() -> None:
    questions = QUESTIONS + COMPARISONS
    kinds = ["location"] * len(QUESTIONS) + ["comparison"] * len(COMPARISONS)
    classifier = DistilledQueryTypes(seed=13).fit(questions, kinds, ("comparison",))
    unseen = [
        make_case("What was the price of 1987?"),
        make_case("How do both wars differ in all respects?"),
    ]
    assert [kind.synthesis for kind in classifier.sort(unseen)] == [False, True]
    assert {kind.calls for kind in classifier.sort(unseen)} == {0}
    assert classifier.sort([]) == []


@pytest.mark.parametrize("synthesis", [("summary",), ("location", "comparison")])
def test_one_kind_of_query_teaches_nothing(synthesis: tuple[str, ...]) -> None:
    kinds = ["location", "comparison"]
    with pytest.raises(StageError, match=r"comparison, location.*edar_unclassified"):
        DistilledQueryTypes(seed=13).fit(["Where?", "Which is more?"], kinds, synthesis)


class Kinds(ScriptedModel):
    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        assert tuple(choices) == QUERY_TYPES
        self.calls.append(list(requests))
        odds = [math.log(0.9 if question_of(r).startswith("Compare") else 0.1) for r in requests]
        return [ChoiceScores((math.log(0.5), odd), 20, seconds=0.1, calls=2) for odd in odds]


def test_a_prompted_classifier_asks_once_for_each_question() -> None:
    model = Kinds()
    cases = [
        make_case("Compare all kings.", case_id="1/a", question_id="1"),
        make_case("Compare all kings.", case_id="1/b", question_id="1"),
        make_case("When?", case_id="2/a", question_id="2"),
    ]
    found = PromptedQueryTypes(lambda: model, "small").sort(cases)
    assert [kind.synthesis for kind in found] == [True, True, False]
    assert sorted(question_of(request) for request in model.requests) == [
        "Compare all kings.",
        "When?",
    ]
    # Each case pays for its own, a query by itself would: two passes, of one prompt with each word.
    assert [(kind.calls, kind.prompt_tokens) for kind in found] == [(2, 20)] * 3
    assert {kind.model for kind in found} == {"small"}
