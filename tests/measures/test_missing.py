from __future__ import annotations

import pytest

from prerouter.core.records import ArmScore, MissingReason, PairedScore, Route
from prerouter.measures.missing import MissingArms, by_model, missing_arms

RAG, LC = Route.RAG, Route.LC
FAILED, CUT, NOT_GIVEN = MissingReason.CALL_FAILED, MissingReason.CUT_OFF, MissingReason.NOT_GIVEN


def pair(rag: MissingReason | None, lc: MissingReason | None) -> PairedScore:
    arms = {
        route: ArmScore(missing=missing) if missing else ArmScore(score=0.5)
        for route, missing in ((RAG, rag), (LC, lc))
    }
    return PairedScore(case_id="case", arms=arms, judge="human")


@pytest.mark.parametrize(
    ("scored", "missing"),
    [
        (pair(None, None), []),
        (pair(FAILED, None), [(RAG, FAILED)]),
        (pair(FAILED, CUT), [(RAG, FAILED), (LC, CUT)]),
        (None, [(RAG, NOT_GIVEN), (LC, NOT_GIVEN)]),
    ],
)
def test_every_arm_without_a_score_is_told(
    scored: PairedScore | None, missing: list[tuple[Route, MissingReason]]
) -> None:
    assert list(missing_arms(scored)) == missing


def test_counts_go_by_model_route_and_reason() -> None:
    one, two, whole = MissingArms(), MissingArms(), MissingArms()
    for scored in (pair(None, CUT), pair(FAILED, CUT), pair(FAILED, FAILED), pair(None, None)):
        one.add(scored)
    two.add(None)
    whole.add(pair(None, None))
    assert one.total() == 5
    assert by_model({"b": one, "a": two, "c": whole}) == {
        "a": {RAG: {NOT_GIVEN: 1}, LC: {NOT_GIVEN: 1}},
        "b": {RAG: {FAILED: 2}, LC: {FAILED: 1, CUT: 2}},
    }
