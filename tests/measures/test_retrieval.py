from __future__ import annotations

import pytest

from prerouter.core.records import Evidence, Span
from prerouter.measures.retrieval import (
    Dilution,
    Setting,
    compare_units,
    dilution,
    evidence_spans,
    fragmented,
    merge,
    retrieved_recall,
)


def spans(*edges: tuple[int, int]) -> tuple[Span, ...]:
    return tuple(Span(start=start, end=end) for start, end in edges)


def evidence(*edges: tuple[int, int]) -> tuple[Evidence, ...]:
    return tuple(Evidence(text="said", start=start, end=end) for start, end in edges)


def test_recall_counts_evidence_that_lies_whole_in_what_was_retrieved() -> None:
    # 10-20 lies in 0-30, 25-35 only in the two retrieved spans joined, 60-70 half outside.
    found = retrieved_recall(spans((10, 20), (25, 35), (60, 70)), spans((28, 65), (0, 30)))
    assert found == pytest.approx(2 / 3)
    assert retrieved_recall(spans((10, 20)), []) == 0


def test_recall_without_evidence_is_no_number() -> None:
    with pytest.raises(ValueError, match="at least one passage"):
        retrieved_recall([], spans((0, 5)))


def test_merging_joins_spans_that_touch_and_keeps_gaps() -> None:
    assert merge(spans((8, 9), (0, 4), (4, 6), (1, 2))) == spans((0, 6), (8, 9))


SMALL = spans((0, 10), (8, 20), (20, 30), (30, 40))
LARGE = spans((0, 20), (20, 40))


@pytest.mark.parametrize(
    ("piece", "split"),
    [
        ((8, 12), False),  # whole in the second chunk, thanks to the overlap
        ((7, 12), True),  # in no chunk, whole in the first unit
        ((28, 33), True),
        ((18, 22), False),  # no unit holds it either
    ],
)
def test_evidence_is_fragmented_where_only_the_large_unit_holds_it(
    piece: tuple[int, int], split: bool
) -> None:
    assert fragmented(spans(piece), SMALL, LARGE) is split


@pytest.mark.parametrize(
    ("small", "large", "outcome"),
    [
        (((20, 30), (0, 10)), ((20, 40), (0, 20)), Dilution.NONE),
        (((20, 30), (0, 10)), ((0, 20), (20, 40)), Dilution.RANKED_LOWER),
        (((20, 30), (0, 10)), ((0, 20),), Dilution.MISSED),
        (((0, 10), (20, 30)), ((20, 40),), Dilution.NONE),
        (((0, 10),), ((20, 40),), None),
    ],
)
def test_dilution_compares_the_ranks_of_the_evidence(
    small: tuple[tuple[int, int], ...],
    large: tuple[tuple[int, int], ...],
    outcome: Dilution | None,
) -> None:
    assert dilution(spans((22, 25)), spans(*small), spans(*large)) is outcome


def test_dilution_follows_the_piece_that_the_small_setting_ranks_best() -> None:
    pieces = spans((1, 2), (22, 25))
    assert dilution(pieces, spans((20, 30), (0, 10)), spans((0, 20))) is Dilution.MISSED


def test_evidence_with_a_piece_of_unknown_place_has_no_spans() -> None:
    assert evidence_spans(evidence((1, 2), (3, 4))) == spans((1, 2), (3, 4))
    assert evidence_spans((*evidence((1, 2)), Evidence(text="somewhere"))) is None
    assert evidence_spans(()) is None


def test_a_comparison_by_hand() -> None:
    questions = [
        # split by a chunk border, in the retrieved unit
        (
            evidence((7, 12)),
            Setting(SMALL, spans((0, 10)), 10),
            Setting(LARGE, spans((0, 20)), 20),
        ),
        # found first in the small setting, second in the large one
        (
            evidence((22, 25)),
            Setting(SMALL, spans((20, 30), (0, 10)), 20),
            Setting(LARGE, spans((0, 20), (20, 40)), 40),
        ),
        # found in the small setting, missed in the large one
        (
            evidence((32, 35)),
            Setting(SMALL, spans((30, 40)), 12),
            Setting(LARGE, spans((0, 20)), 20),
        ),
        # no span: in no measure but the tokens
        (
            (Evidence(text="somewhere"),),
            Setting(SMALL, spans((30, 40)), 18),
            Setting(LARGE, spans((20, 40)), 20),
        ),
        # tokens that nobody told are in no mean
        (
            (Evidence(text="somewhere"),),
            Setting(SMALL, spans((30, 40)), None),
            Setting(LARGE, spans((20, 40)), None),
        ),
    ]
    compared = compare_units(questions)
    assert (compared.questions, compared.without_spans) == (5, 2)
    assert compared.recall_small == pytest.approx(2 / 3)
    assert compared.recall_large == pytest.approx(2 / 3)
    assert compared.fragmented.rate == pytest.approx(1 / 3)
    assert (compared.ranked_lower.hits, compared.missed.hits, compared.missed.of) == (1, 1, 2)
    assert (compared.tokens_small, compared.tokens_large) == (15, 25)


def test_nothing_to_compare_gives_no_rates() -> None:
    compared = compare_units([])
    assert compared.questions == 0
    assert compared.recall_small is None
    assert compared.fragmented.rate is None
    assert compared.tokens_large is None
