from __future__ import annotations

import pytest

from prerouter.core.errors import StageError
from prerouter.core.records import ArmScore, Label, MissingReason, PairedScore, Reject, Route
from prerouter.stages.label import label_scores


def pair(rag: float | None, lc: float | None) -> PairedScore:
    def arm(score: float | None) -> ArmScore:
        if score is None:
            return ArmScore(missing=MissingReason.CALL_FAILED)
        return ArmScore(score=score)

    arms = {Route.RAG: arm(rag), Route.LC: arm(lc)}
    return PairedScore(case_id="case", arms=arms, low=0, high=4, judge="human")


def only(scores: PairedScore, min_margin: float = 0.0) -> Label | Reject:
    [result] = label_scores([scores], min_margin)
    return result


@pytest.mark.parametrize(
    ("rag", "lc", "route"),
    [(1, 3, "LC"), (3, 1, "RAG"), (2, 2, "RAG"), (0, 0, "RAG"), (4, 4, "RAG"), (0, 0.1, "LC")],
)
def test_lc_only_where_it_is_strictly_better(rag: float, lc: float, route: str) -> None:
    label = only(pair(rag, lc))
    assert isinstance(label, Label)
    assert label.route == route
    assert label.margin == pytest.approx(lc - rag)


@pytest.mark.parametrize(("lc", "route"), [(2.5, "RAG"), (2.51, "LC")])
def test_a_minimum_margin_has_to_be_passed(lc: float, route: str) -> None:
    label = only(pair(2, lc), min_margin=0.5)
    assert isinstance(label, Label)
    assert label.route == route


@pytest.mark.parametrize(("rag", "lc"), [(0.7, 0.8), (0.1, 0.2), (0.2, 0.3)])
def test_rounding_passes_no_margin(rag: float, lc: float) -> None:
    label = only(pair(rag, lc), min_margin=0.1)
    assert isinstance(label, Label)
    assert label.route == "RAG"


def test_rounding_breaks_no_tie() -> None:
    label = only(pair(0.3, 0.1 + 0.2))
    assert isinstance(label, Label)
    assert label.route == "RAG"


def test_a_margin_that_is_no_number_is_an_error_in_words() -> None:
    arms = {Route.RAG: ArmScore(score=-1.7e308), Route.LC: ArmScore(score=1.7e308)}
    far = PairedScore(case_id="far", arms=arms, low=-1.7e308, high=1.7e308, judge="human")
    with pytest.raises(
        StageError, match=r"label: far: the scores -1.7e\+308 and 1.7e\+308 lie too"
    ):
        only(far)


@pytest.mark.parametrize(
    ("rag", "lc", "detail"),
    [
        (None, 4, "RAG call_failed"),
        (4, None, "LC call_failed"),
        (None, None, "RAG call_failed; LC call_failed"),
    ],
)
def test_a_missing_arm_gives_no_label(rag: float | None, lc: float | None, detail: str) -> None:
    reject = only(pair(rag, lc))
    assert isinstance(reject, Reject)
    assert (reject.reason, reject.detail) == ("missing_arm", detail)
