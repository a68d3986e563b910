from __future__ import annotations

import pytest

from prerouter.core.errors import StageError
from prerouter.measures.checks import binary, by_route, caution, finite, probabilities


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([0.1, None, 0.3], "1 of 3 values are missing or not finite, the first at place 1"),
        ([float("nan"), 0.2], "1 of 2 values"),
        ([0.1, float("inf")], "the first at place 1"),
        ([], "the shape (0,)"),
        ([[0.1, 0.2]], "the shape (1, 2)"),
        ([0.1, 0.2, 0.3, 0.4], "4 values for 3 cases"),
        (["high", "low", "low"], "could not convert"),
    ],
)
def test_missing_and_misshapen_numbers_are_refused_in_words(values: list, words: str) -> None:
    with pytest.raises(StageError, match="threshold: ") as caught:
        finite("threshold", "p_lc", values, 3 if len(values) > 3 else None)
    assert words in caught.value.line


@pytest.mark.parametrize("value", [-0.01, 1.01])
def test_a_probability_outside_0_to_1_is_refused(value: float) -> None:
    with pytest.raises(StageError, match="is no probability"):
        probabilities("here", [0.5, value])


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ([(0, 1), (None, 1)], "QA: 1 of 4 values are missing"),
        ([(0, 1), (0,)], "QA: setting an array element"),
        ([(0, 1)], "QA: the shape (1, 2); 2 rows, a column for each route"),
    ],
)
def test_a_table_by_route_is_whole(values: list, words: str) -> None:
    assert by_route("here", "QA", [(0, 1), (2, 3)], 2).tolist() == [[0, 1], [2, 3]]
    with pytest.raises(StageError) as caught:
        by_route("here", "QA", values, 2)
    assert words in caught.value.line


def test_labels_are_0_or_1() -> None:
    assert binary("here", "labels", [True, False], 2).tolist() == [True, False]
    with pytest.raises(StageError, match="other than 0 and 1"):
        binary("here", "labels", [0, 2], 2)


def test_few_cases_are_said() -> None:
    assert caution(30, 30) is None
    assert "only 29 cases (fewer than 30)" in (caution(29, 30) or "")
