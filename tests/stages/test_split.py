from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from prerouter.core.records import Split
from prerouter.recipe.cases import SplitSection
from prerouter.stages.split import split_counts, split_questions, straddling

STRATA = [("novel", "location", "32k"), ("paper", "comparison", "128k"), ("novel", "fact", "32k")]


def questions(count: int) -> dict[str, tuple[str, str, str]]:
    return {f"q{number:04}": STRATA[number % len(STRATA)] for number in range(count)}


def test_every_stratum_is_divided_by_the_shares() -> None:
    found = questions(300)
    assignments = split_questions(found, {q: q for q in found}, SplitSection(), seed=1)
    counts = split_counts(assignments, found)
    for name, sides in counts.items():
        whole = 300 if name == "all" else 100
        for split, share in (("train", 0.7), ("validation", 0.1), ("test", 0.2)):
            assert sides[split] == pytest.approx(share * whole, abs=1), (name, split)


def test_many_strata_of_one_question_still_fill_every_side() -> None:
    found = {f"q{number:03}": (f"type{number}", "level", "32k") for number in range(100)}
    assignments = split_questions(found, {q: q for q in found}, SplitSection(), seed=1)
    sides = Counter(assignment.split for assignment in assignments)
    assert sides[Split.TRAIN] == pytest.approx(70, abs=3)
    assert sides[Split.TEST] == pytest.approx(20, abs=3)
    assert sides[Split.VALIDATION] == pytest.approx(10, abs=3)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 12), min_size=1, max_size=80), st.integers(0, 5))
def test_no_group_straddles(group_numbers: list[int], seed: int) -> None:
    found = questions(len(group_numbers))
    groups = {q: f"g{n}" for q, n in zip(found, group_numbers, strict=True)}
    assignments = split_questions(found, groups, SplitSection(group_by="document"), seed)
    assert {a.question_id for a in assignments} == set(found)
    assert straddling(assignments, groups)["on_two_sides"] == 0


def test_straddling_counts_groups_that_the_split_did_not_keep_whole() -> None:
    found = questions(30)
    assignments = split_questions(found, {q: q for q in found}, SplitSection(), seed=1)
    assert straddling(assignments, dict.fromkeys(found, "one")) == {"count": 1, "on_two_sides": 1}


def test_a_seed_gives_one_split_whatever_the_order_of_the_rows() -> None:
    found = questions(60)
    backwards = dict(reversed(found.items()))
    same = {q: q for q in found}
    first = split_questions(found, same, SplitSection(), seed=5)
    assert first == split_questions(backwards, same, SplitSection(), seed=5)
    assert first != split_questions(found, same, SplitSection(), seed=6)


def test_a_share_of_nothing_gets_nothing() -> None:
    section = SplitSection(train=0.8, validation=0.0, test=0.2)
    found = questions(50)
    assignments = split_questions(found, {q: q for q in found}, section, seed=1)
    assert Split.VALIDATION not in {assignment.split for assignment in assignments}
