"""ragas' own faithfulness over one of our engines. Runs where the extra is installed, in an
environment of its own: see the extra `ragas` in pyproject.toml."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from prerouter.answering.faithfulness import Faithfulness, NoFaithfulness, ReadAnswer
from prerouter.answering.ragas import ragas_faithfulness
from prerouter.core.protocols import Completion
from prerouter.core.records import Answer, Reject, Route, Span
from prerouter.recipe.judge import FaithfulnessSection
from tests.stages.tables import Scripted

pytest.importorskip("ragas.metrics.collections")

SECTION = FaithfulnessSection.model_validate(
    {"engine": {"kind": "transformers", "model": "m"}, "by": "ragas", "max_tokens": 300}
)
CLAIMS = ["It froze in March.", "It thawed in May."]


def due(case_id: str = "c") -> ReadAnswer:
    span = Span(start=0, end=9)
    answer = Answer(case_id=case_id, route=Route.RAG, text="March; May.", retrieved=(span,))
    return ReadAnswer("When did it freeze?", answer, ("It froze in March.", "It was cold."))


def replies(claims: object, verdicts: list[object]) -> Callable[[int, str], Completion]:
    """The claims to the prompt that asks for them, the verdicts to the other."""

    def reply(_: int, prompt: str) -> Completion:
        if "verdict" in prompt:
            judged = [
                {"statement": claim, "reason": "r", "verdict": verdict}
                for claim, verdict in zip(CLAIMS, verdicts, strict=False)
            ]
            return Completion(json.dumps({"statements": judged}), "stop", 10, 5)
        return Completion(json.dumps({"statements": claims}), "stop", 10, 5)

    return reply


def only(engine: Scripted) -> Faithfulness | Reject:
    (found,) = ragas_faithfulness([due()], engine, SECTION)
    return found


def test_claims_and_verdicts_are_those_that_ragas_asked_for() -> None:
    engine = Scripted(replies(CLAIMS, [1, 0]))
    found = only(engine)
    assert isinstance(found, Faithfulness)
    assert [(claim.text, claim.supported) for claim in found.claims] == [
        ("It froze in March.", True),
        ("It thawed in May.", False),
    ]
    assert found.score == 0.5
    assert engine.sampling is not None
    assert engine.sampling.schema is not None
    assert engine.sampling.max_tokens == 300
    assert "It froze in March.\\nIt was cold." in engine.requests[0].messages[0].content


def test_no_claims_is_missing() -> None:
    found = only(Scripted(replies([], [])))
    assert isinstance(found, Faithfulness)
    assert found.missing is NoFaithfulness.NO_CLAIMS


@pytest.mark.parametrize(
    ("claims", "verdicts", "key", "reason"),
    [
        (CLAIMS, [1], "c|RAG|support", "wrong_shape"),
        (CLAIMS, [1, 2], "c|RAG|support", "wrong_shape"),
        (CLAIMS, [1, "not supported"], "c|RAG|support", "wrong_shape"),
        ("It froze.", [], "c|RAG|claims", "wrong_shape"),
    ],
)
def test_what_ragas_would_take_and_is_not_whole_is_refused(
    claims: object, verdicts: list[object], key: str, reason: str
) -> None:
    found = only(Scripted(replies(claims, verdicts)))
    assert isinstance(found, Reject)
    assert (found.key, found.reason, found.transient) == (key, reason, False)


def test_a_failed_call_costs_its_answer_only() -> None:
    whole = replies(CLAIMS, [1, 1])
    calls = iter(range(9))

    def reply(index: int, prompt: str) -> Completion:
        return Completion("", "error", error="503") if next(calls) == 0 else whole(index, prompt)

    first, second = ragas_faithfulness([due("a"), due("b")], Scripted(reply), SECTION)
    assert isinstance(first, Reject)
    assert (first.key, first.transient, first.detail) == ("a|RAG|claims", True, "503")
    assert isinstance(second, Faithfulness)
    assert second.score == 1
