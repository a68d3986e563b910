from __future__ import annotations

import pytest

from prerouter.answering.prompted import Prompted, answer_key, generate_answers
from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import ROUTES, Answer, AnswerModel, Message, Reject, Route, Span
from prerouter.measures.abstention import abstention
from prerouter.prompts.answer import DECLINE

from .scripted import ScriptedModel, make_case

REQUEST = GenerationRequest((Message(role="user", content="?"),))


def result(completion: Completion, keep_cut_off: bool = False) -> Answer | Reject:
    prompt = Prompted(make_case(), Route.LC, REQUEST, document_cut=True, seconds=1.0)
    model = ScriptedModel(lambda request: completion)
    sampling = Sampling(max_tokens=5)
    (found,) = generate_answers([prompt], model, sampling, keep_cut_off=keep_cut_off)
    return found


def test_a_reply_is_an_answer_with_its_cost() -> None:
    found = result(Completion(" In March. ", "stop", 9, 3, entropies=(0.5,), seconds=2.0))
    assert found == Answer(
        case_id="c",
        route=Route.LC,
        text="In March.",
        prompt_tokens=9,
        completion_tokens=3,
        seconds=3.0,
        document_cut=True,
        entropies=(0.5,),
    )


def test_an_answer_says_that_its_entropies_are_bounds() -> None:
    completion = Completion("In March.", "stop", entropies=(0.5,), entropies_are_bounds=True)
    found = result(completion)
    assert isinstance(found, Answer)
    assert found.entropies_are_bounds


def test_counts_that_a_server_does_not_tell_are_not_zero() -> None:
    found = result(Completion("In March.", "stop"))
    assert isinstance(found, Answer)
    assert (found.prompt_tokens, found.completion_tokens) == (None, None)


def test_thinking_text_is_no_part_of_the_answer() -> None:
    found = result(Completion("<think>It may be June.</think>\nIn March.", "stop", 9, 9))
    assert isinstance(found, Answer)
    assert found.text == "In March."


@pytest.mark.parametrize(
    ("completion", "reason", "transient"),
    [
        (Completion("", "error", error="503"), "call_failed", True),
        (Completion("", "error", error="too long", passing=False), "call_failed", False),
        (Completion("In Mar", "length", 9, 5), "cut_off", False),
        (Completion("<think>It may be", "stop", 9, 5), "cut_off", False),
        (Completion(" \n", "stop", 9, 1), "empty", False),
        (Completion("<think>June?</think> ", "stop", 9, 1), "empty", False),
    ],
)
def test_what_is_no_answer_has_its_reason(
    completion: Completion, reason: str, transient: bool
) -> None:
    found = result(completion)
    assert isinstance(found, Reject)
    assert (found.key, found.reason) == (answer_key("c", Route.LC), reason)
    assert found.transient is transient
    assert found.raw == (completion.text or None)
    assert completion.error is None or completion.error in found.detail


def test_an_answer_that_is_kept_though_cut_off_says_so() -> None:
    found = result(Completion("<think>June?</think> In Mar", "length", 9, 5), keep_cut_off=True)
    assert isinstance(found, Answer)
    assert (found.text, found.cut_off, found.completion_tokens) == ("In Mar", True, 5)
    whole = result(Completion("In March.", "stop", 9, 5), keep_cut_off=True)
    assert isinstance(whole, Answer)
    assert not whole.cut_off


@pytest.mark.parametrize("text", ["<think>It may be", "", " \n", "<think>June?</think> "])
def test_what_is_cut_off_before_there_is_an_answer_is_missing_all_the_same(text: str) -> None:
    found = result(Completion(text, "length", 9, 5), keep_cut_off=True)
    assert isinstance(found, Reject)
    assert found.reason in ("cut_off", "empty")


def test_a_thought_that_was_opened_in_the_prompt_and_cut_off_is_no_answer() -> None:
    model = AnswerModel(name="reader", context_window=1000, thinking=True)
    prompt = Prompted(make_case(answer_model=model), Route.LC, REQUEST)

    def kept(completion: Completion) -> Answer | Reject:
        engine = ScriptedModel(lambda request: completion)
        (found,) = generate_answers([prompt], engine, Sampling(5), keep_cut_off=True)
        return found

    thought = kept(Completion("It may be June, since", "length", 9, 5))
    assert isinstance(thought, Reject)
    assert thought.reason == "cut_off"
    for past in (
        Completion("June?</think> In Mar", "length", 9, 5),
        Completion("In Mar", "length", 9, 5, reasoning="June?"),
    ):
        answer = kept(past)
        assert isinstance(answer, Answer)
        assert (answer.text, answer.cut_off) == ("In Mar", True)


def test_with_nothing_to_read_the_answer_is_that_the_document_does_not_tell() -> None:
    model = ScriptedModel()
    prompts = [Prompted(make_case(), route, None) for route in ROUTES]
    answers = list(generate_answers(prompts, model, Sampling(max_tokens=5)))
    for answer, route in zip(answers, ROUTES, strict=True):
        assert isinstance(answer, Answer)
        assert (answer.route, answer.text) == (route, DECLINE)
        assert (answer.prompt_tokens, answer.completion_tokens) == (0, 0)
        assert abstention(answer.text or "")
    assert model.calls == []


def test_answers_stand_with_their_own_case() -> None:
    prompts = [
        Prompted(make_case("One?", "c1"), Route.RAG, REQUEST, (Span(start=1, end=2),)),
        Prompted(make_case("Two?", "c2"), Route.RAG, None),
        Prompted(make_case("Three?", "c3"), Route.RAG, GenerationRequest((), seed=3)),
    ]
    model = ScriptedModel(lambda request: Completion(f"seed {request.seed}", "stop", 1, 1))
    answers = {
        answer.case_id: answer
        for answer in generate_answers(prompts, model, Sampling(max_tokens=5))
        if isinstance(answer, Answer)
    }
    assert answers["c1"].text == "seed None"
    assert answers["c1"].retrieved == (Span(start=1, end=2),)
    assert answers["c2"].text == DECLINE
    assert answers["c3"].text == "seed 3"
