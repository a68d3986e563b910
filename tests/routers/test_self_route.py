"""Self-Route in both forms: what stands, what is dropped, what was paid."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from prerouter.core.protocols import ChoiceScores, Completion, GenerationRequest
from prerouter.core.records import Answer, DecisionFailure, MissingReason, Route, RoutingCase
from prerouter.engines.transformers import PROMPT_TOO_LONG
from prerouter.prompts.answer import DECLINE
from prerouter.prompts.checks import VERDICTS
from prerouter.recipe.checks import AskBy
from prerouter.routers.self_route import SelfRoute, SelfRouteVerdict

from ..answering.scripted import ScriptedModel, make_case, question_of, shown


def written(texts: dict[str, str | None], route: Route = Route.RAG):  # type: ignore[no-untyped-def]
    def answers(cases: Sequence[RoutingCase]) -> list[Answer]:
        return [
            Answer(
                case_id=case.case_id,
                route=route,
                text=texts[case.case_id],
                missing=None if texts[case.case_id] else MissingReason.CALL_FAILED,
            )
            for case in cases
        ]

    return answers


def test_an_answer_stands_and_a_refusal_is_read_anew() -> None:
    texts = {"a": "In March.", "b": DECLINE, "c": None, "d": "The excerpts do not mention a horse."}
    # A caveat behind an answer is none; the words that the prompt gives are, wherever they stand.
    texts |= {"e": "In March. The text does not say why.", "f": f"In March?\n{DECLINE}"}
    cases = [make_case(case_id=name) for name in texts]
    found = {d.case_id: d for d in SelfRoute("self_route", written(texts)).route(cases)}
    assert list(found) == list(texts)
    assert [found[name].route for name in "abd"] == [Route.RAG, Route.LC, Route.LC]
    assert [found[name].route for name in "ef"] == [Route.RAG, Route.LC]
    assert found["c"].failure is DecisionFailure.NO_ANSWER
    assert found["c"].raw == "call_failed"
    # The answer was written either way; the router itself called nothing.
    assert [found[name].wrote for name in "abcd"] == [Route.RAG, Route.RAG, None, Route.RAG]
    assert {decision.calls for decision in found.values()} == {0}


def test_over_long_units_it_chooses_between_these_and_the_document() -> None:
    texts = {"a": "In March.", "b": DECLINE}
    router = SelfRoute("long", written(texts, Route.LONG_RAG), Route.LONG_RAG)
    found = list(router.route([make_case(case_id=name) for name in texts]))
    assert [d.route for d in found] == [Route.LONG_RAG, Route.LC]
    assert {d.wrote for d in found} == {Route.LONG_RAG}


NO_SCORES = {
    "Broken?": ChoiceScores(error="the call failed"),
    "Long?": ChoiceScores(prompt_tokens=9_000, error=f"{PROMPT_TOO_LONG}: 9000", seconds=0.5),
    "Overflown?": ChoiceScores((math.nan, math.nan), 40),
    "Neither?": ChoiceScores((-math.inf, -math.inf), 40),
}


class Verdicts(ScriptedModel):
    """Says "answerable" where the excerpts hold the question's first word."""

    passes = 1

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        assert tuple(choices) == VERDICTS
        self.calls.append(list(requests))
        found = []
        for request in requests:
            if question_of(request) in NO_SCORES:
                found.append(NO_SCORES[question_of(request)])
                continue
            holds = question_of(request).rstrip("?") in " ".join(shown(request))
            p = 0.9 if holds else 0.2
            scores = (math.log(p), math.log(1 - p))
            found.append(ChoiceScores(scores, 40, seconds=0.25, calls=self.passes))
        return found


PASSAGES = {"a": ["The harbour froze."], "b": ["A mill."], "c": [], "d": ["A mill."]}
QUESTIONS = {"a": "harbour?", "b": "harbour?", "c": "harbour?", "d": "Broken?"}


def test_a_verdict_is_a_call_of_its_own_with_a_probability() -> None:
    model = Verdicts()
    router = SelfRouteVerdict("v", lambda name: model, lambda case: PASSAGES[case.case_id])
    cases = [make_case(QUESTIONS[name], case_id=name) for name in PASSAGES]
    found = {decision.case_id: decision for decision in router.route(cases)}
    assert list(found) == list(PASSAGES)
    assert [found[name].route for name in "abc"] == [Route.RAG, Route.LC, Route.LC]
    assert found["a"].p_lc == pytest.approx(0.1)
    assert found["b"].p_lc == pytest.approx(0.8)
    assert (found["a"].calls, found["a"].prompt_tokens, found["a"].model) == (1, 40, "reader")
    # Nothing was found for it: that is a verdict, and no model was asked.
    assert (found["c"].calls, found["c"].p_lc) == (0, None)
    assert found["d"].failure is DecisionFailure.CALL_FAILED
    assert [question_of(request) for request in model.requests] == ["harbour?"] * 2 + ["Broken?"]
    assert {decision.wrote for decision in found.values()} == {None}


def test_an_engine_that_reads_a_prompt_for_each_word_is_paid_for_each() -> None:
    model = Verdicts()
    model.passes = 2
    router = SelfRouteVerdict("v", lambda name: model, lambda case: ["A mill."])
    (decision,) = router.route([make_case("harbour?")])
    assert (decision.calls, decision.prompt_tokens) == (2, 40)


@pytest.mark.parametrize(
    ("question", "failure", "tokens"),
    [
        ("Long?", DecisionFailure.TOO_LONG, 9_000),
        ("Overflown?", DecisionFailure.UNPARSABLE, 40),
        ("Neither?", DecisionFailure.UNPARSABLE, 40),
    ],
)
def test_what_gives_no_odds_is_no_verdict_and_its_tokens_are_kept(
    question: str, failure: DecisionFailure, tokens: int
) -> None:
    router = SelfRouteVerdict("v", lambda name: Verdicts(), lambda case: ["A mill."])
    (decision,) = router.route([make_case(question)])
    assert (decision.route, decision.p_lc, decision.failure) == (None, None, failure)
    assert (decision.calls, decision.prompt_tokens) == (1, tokens)
    assert decision.raw


def test_passages_that_nobody_knows_are_no_verdict() -> None:
    router = SelfRouteVerdict("v", lambda name: Verdicts(), lambda case: None)
    (decision,) = router.route([make_case()])
    assert (decision.failure, decision.calls) == (DecisionFailure.NO_ANSWER, 0)


def test_the_options_of_a_question_are_part_of_it() -> None:
    model = ScriptedModel(lambda request: Completion("answerable", "stop"))
    options = ("In March.", "In <May>.")
    router = SelfRouteVerdict(
        "v", lambda name: model, lambda case: ["Text."], AskBy.REPLY, lambda case: options
    )
    list(router.route([make_case()]))
    asked = model.requests[0].messages[1].content
    assert '"In March."' in asked
    assert r'"In \u003cMay>."' in asked
    assert "letter" not in asked


@pytest.mark.parametrize(
    ("reply", "route", "failure"),
    [
        ('{"word": "answerable"}', Route.RAG, None),
        ('{"word": "unanswerable"}', Route.LC, None),
        ("Unanswerable.", Route.LC, None),
        ("  answerable\n", Route.RAG, None),
        ("It is not answerable", None, DecisionFailure.UNPARSABLE),
        ("answerable, unanswerable", None, DecisionFailure.UNPARSABLE),
        ("", None, DecisionFailure.UNPARSABLE),
    ],
)
def test_a_written_verdict_is_one_word_or_none(
    reply: str, route: Route | None, failure: DecisionFailure | None
) -> None:
    model = ScriptedModel(lambda request: Completion(reply, "stop", 40, 3, seconds=0.5))
    router = SelfRouteVerdict("v", lambda name: model, lambda case: ["Text."], AskBy.REPLY)
    (decision,) = router.route([make_case()])
    assert (decision.route, decision.failure) == (route, failure)
    assert (decision.completion_tokens, decision.p_lc) == (3, None)
    assert model.samplings[0].schema is not None


@pytest.mark.parametrize(
    ("finish", "failure"),
    [("length", DecisionFailure.CUT_OFF), ("error", DecisionFailure.CALL_FAILED)],
)
def test_a_verdict_that_fails_is_no_verdict(finish: str, failure: DecisionFailure) -> None:
    error = "no server" if finish == "error" else None
    completion = Completion("answerable", finish, error=error)  # type: ignore[arg-type]
    model = ScriptedModel(lambda request: completion)
    router = SelfRouteVerdict("v", lambda name: model, lambda case: ["Text."], AskBy.REPLY)
    (decision,) = router.route([make_case()])
    assert decision.failure is failure
