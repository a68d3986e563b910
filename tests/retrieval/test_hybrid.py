from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.retrieval.hybrid import blend
from prerouter.retrieval.index import Hits


def hits(*places: int) -> Hits:
    return [(place, 1.0 / (1 + rank)) for rank, place in enumerate(places)]


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.5, [0, 10, 1, 11, 2]),
        (0.6, [0, 10, 1, 2, 11]),
        (0.2, [10, 11, 12, 0, 13]),
        (0.0, [10, 11, 12, 13, 14]),
        (1.0, [0, 1, 2, 3, 4]),
    ],
)
def test_each_gives_its_share_in_turn(ratio: float, expected: list[int]) -> None:
    found = blend(hits(0, 1, 2, 3, 4), hits(10, 11, 12, 13, 14), 5, ratio)
    assert [each.place for each in found] == expected
    assert all((each.source == "dense") == (each.place < 10) for each in found)


def test_a_text_that_both_found_takes_one_place() -> None:
    found = blend(hits(7, 1, 2), hits(7, 1, 12), 4, 0.5)
    assert [(each.place, each.source) for each in found] == [
        (7, "dense"),
        (1, "lexical"),
        (2, "dense"),
        (12, "lexical"),
    ]


def test_who_has_no_more_leaves_its_places_to_the_other() -> None:
    assert [each.place for each in blend(hits(1, 2, 3, 4), hits(9), 4, 0.5)] == [1, 9, 2, 3]
    assert [each.place for each in blend(hits(), hits(9, 8), 4, 1.0)] == [9, 8]
    assert blend(hits(), hits(), 4, 0.5) == []
    assert blend(hits(1), hits(2), 0, 0.5) == []


@given(
    dense=st.lists(st.integers(0, 30), unique=True),
    lexical=st.lists(st.integers(0, 30), unique=True),
    count=st.integers(0, 40),
    ratio=st.floats(0, 1),
)
def test_nothing_twice_and_nothing_left_out(
    dense: list[int], lexical: list[int], count: int, ratio: float
) -> None:
    places = [each.place for each in blend(hits(*dense), hits(*lexical), count, ratio)]
    assert len(places) == len(set(places)) == min(count, len({*dense, *lexical}))
    assert set(places) <= {*dense, *lexical}


@given(count=st.integers(1, 50), ratio=st.floats(0, 1))
def test_shares_are_kept_to_within_one(count: int, ratio: float) -> None:
    found = blend(hits(*range(100)), hits(*range(100, 200)), count, ratio)
    given_by_dense = sum(each.source == "dense" for each in found)
    assert abs(given_by_dense - count * ratio) <= 1
