from __future__ import annotations

import json
from pathlib import Path

import pytest

from prerouter.cli.show import show_run
from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import ArmScore, Label, MissingReason, PairedScore, Reject, Route
from prerouter.recipe.recipe import Recipe
from prerouter.runs.stage import execute
from prerouter.stages import cases, label, score
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


def test_the_report_counts_what_each_route_gets_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    replies = [
        *(("The answer is A", "(A)"), ("A", "The answer is C"), ("I can't tell.", "A")),
        *(("B", "C"), ("B", "It is A"), ("A or B", "A"), ("A", "It does not mention it.")),
    ]
    rows = [
        {"question": f"{number}?", "answer": "A", "rag_answer": rag, "lc_answer": lc}
        for number, (rag, lc) in enumerate(replies)
    ]
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = Recipe.model_validate(
        {
            "name": "mine",
            "runs_dir": str(tmp_path / "runs"),
            "cases": {"source": "table", "path": str(path), "answer_models": [{"name": "m"}]},
            "score": {"metric": "choice"},
        }
    )
    for stage in (cases.STAGE, score.STAGE, label.STAGE):
        report = execute(stage, recipe, SilentProgress()).manifest.report
    assert report["right_by_model"] == {
        "m": {"cases": 6, "all": 1, "only RAG": 2, "only LC": 2, "none": 1}
    }
    assert report["labels"] == {"RAG": 4, "LC": 2}
    assert report["missing_by_model_arm_reason"] == {"m": {"RAG": {"not_scorable": 1}}}
    show_run(recipe.run_dir)
    assert "only LC: 2" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("scores", "route"),
    [((1, 1, 1), "RAG"), ((0, 1, 1), "LONG_RAG"), ((0, 1, 2), "LC"), ((2, 3, 0), "LONG_RAG")],
)
def test_of_three_routes_the_cheapest_of_the_best(scores: tuple[int, ...], route: str) -> None:
    arms = {route: ArmScore(score=score) for route, score in zip(Route, scores, strict=True)}
    three = PairedScore(case_id="case", arms=arms, low=0, high=4, judge="human")
    [found] = label_scores([three], 0.0, tuple(Route))
    assert isinstance(found, Label)
    assert found.route == route
    assert found.margin == scores[2] - scores[0]


def test_a_missing_third_arm_leaves_a_case_without_a_label() -> None:
    arms = dict(pair(1, 2).arms) | {Route.LONG_RAG: ArmScore(missing=MissingReason.CUT_OFF)}
    three = PairedScore(case_id="case", arms=arms, low=0, high=4, judge="human")
    # Whether it is compared or not: the table has a column for it.
    for routes in ((Route.RAG, Route.LC), tuple(Route)):
        [found] = label_scores([three], 0.0, routes)
        assert isinstance(found, Reject)
        assert found.detail == "LONG_RAG cut_off"
    [unanswered] = label_scores([pair(1, 2)], 0.0, tuple(Route))
    assert isinstance(unanswered, Reject)
    assert unanswered.detail == "LONG_RAG not_given"
