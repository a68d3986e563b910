from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import hypergeom, multivariate_hypergeom

from prerouter.core.errors import StageError
from prerouter.core.records import Route
from prerouter.measures.best_of_n import best_of_n, majority_chance, oracle_chance
from tests.measures.matched import LETTERS, evaluation

RAG, LC = Route.RAG, Route.LC


def vote(drawn: tuple[Route | None, ...]) -> Route | None:
    rag, lc = drawn.count(RAG), drawn.count(LC)
    if not rag + lc:
        return None
    return LC if lc > rag else RAG


@given(
    routes=st.lists(st.sampled_from([RAG, LC, None]), min_size=1, max_size=8),
    draws=st.integers(1, 8),
    ideal=st.sampled_from([RAG, LC]),
)
def test_both_chances_are_the_share_of_all_choices_of_n(
    routes: list[Route | None], draws: int, ideal: Route
) -> None:
    n, draws = len(routes), min(draws, len(routes))
    chosen = list(combinations(routes, draws))
    assert oracle_chance(n, routes.count(ideal), draws) == pytest.approx(
        sum(ideal in drawn for drawn in chosen) / len(chosen)
    )
    assert majority_chance(n, routes.count(RAG), routes.count(LC), draws, ideal) == pytest.approx(
        sum(vote(drawn) is ideal for drawn in chosen) / len(chosen)
    )


@pytest.mark.parametrize(("n", "right", "draws"), [(8, 3, 4), (16, 1, 8), (10, 0, 2), (8, 8, 1)])
def test_the_oracle_by_scipys_hypergeometric(n: int, right: int, draws: int) -> None:
    assert oracle_chance(n, right, draws) == pytest.approx(hypergeom.sf(0, n, right, draws))


@pytest.mark.parametrize(("rag", "lc", "draws"), [(9, 7, 4), (3, 13, 8), (8, 8, 2), (16, 0, 4)])
def test_the_vote_by_scipys_hypergeometric(rag: int, lc: int, draws: int) -> None:
    to_lc = hypergeom.sf(draws // 2, rag + lc, lc, draws)
    assert majority_chance(rag + lc, rag, lc, draws, LC) == pytest.approx(to_lc)
    assert majority_chance(rag + lc, rag, lc, draws, RAG) == pytest.approx(1 - to_lc)


def test_samples_without_a_decision_do_not_vote() -> None:
    # 2 of 5: LC wins with one or both votes LC and none RAG.
    chance = sum(multivariate_hypergeom.pmf([0, lc, 2 - lc], m=[1, 2, 2], n=2) for lc in (1, 2))
    assert majority_chance(5, 1, 2, 2, LC) == pytest.approx(chance)
    assert majority_chance(4, 0, 0, 4, RAG) == 0.0


def rows(samples: dict[str, str], labels: str = "LRLR", **settings: object):  # type: ignore[no-untyped-def]
    made = evaluation([(0.0, 1.0) if c == "L" else (1.0, 0.0) for c in labels], {}, "aabb")
    routes = {case_id: [LETTERS[c] for c in letters] for case_id, letters in samples.items()}
    return best_of_n(routes, made.labels, made.cases, resamples=200, **settings)  # type: ignore[arg-type]


def test_the_rows_by_hand() -> None:
    one, two, four = rows(
        {"c0": "LRRR", "c1": "RRLL", "c2": "RRRR", "c3": "R???"}, numbers=(1, 2, 4)
    )
    assert (one.samples, one.n, one.n_groups, one.too_few_samples) == (1, 4, 2, 0)
    assert one.oracle.value == pytest.approx((1 / 4 + 2 / 4 + 0 + 1 / 4) / 4)
    assert one.majority.value == one.oracle.value
    assert two.oracle.value == pytest.approx((1 / 2 + 5 / 6 + 0 + 1 / 2) / 4)
    # Ties go to RAG: LC needs both, so c0 never, c1 wrong once in six.
    assert two.majority.value == pytest.approx((0 + 5 / 6 + 0 + 1 / 2) / 4)
    assert four.oracle.value == pytest.approx(3 / 4)
    assert four.majority.value == pytest.approx(2 / 4)
    assert one.oracle.interval is not None
    assert one.oracle.interval.n_groups == 2
    assert "only 4 cases" in (one.caution or "")


def test_cases_with_too_few_samples_are_left_out_and_counted() -> None:
    found = rows({"c0": "LL", "c1": "R", "c2": "LLLLLLLL"})
    assert [(row.samples, row.n, row.too_few_samples) for row in found] == [
        (1, 3, 1),
        (2, 2, 2),
        (4, 1, 3),
        (8, 1, 3),
    ]
    assert found[3].oracle.value == 1.0
    assert "fewer than two documents" in (found[3].oracle.note or "")


def test_no_case_with_enough_samples_is_none_in_words() -> None:
    row = rows({"c0": "L"}, numbers=(4,))[0]
    assert row.oracle.value is None
    assert row.majority.note == "no labelled case has 4 samples or more"


def test_no_sample_for_rag_is_right_where_long_rag_is_ideal() -> None:
    made = evaluation([(0.0, 1.0)], {}, "a")
    label = made.labels[0].model_copy(update={"route": Route.LONG_RAG})
    (row,) = best_of_n({"c0": [RAG, RAG]}, [label], made.cases, numbers=(1,))
    assert (row.oracle.value, row.majority.value) == (0.0, 0.0)


def test_unlabelled_cases_are_counted() -> None:
    made = evaluation([(0.0, 1.0), (0.0, 1.0)], {}, "ab")
    row = best_of_n({"c0": [LC], "c1": [LC]}, made.labels[:1], made.cases, numbers=(1,))[0]
    assert (row.n, row.unlabelled, row.oracle.value) == (1, 1, 1.0)


def test_samples_of_unknown_cases_and_an_n_of_0_are_refused() -> None:
    with pytest.raises(StageError, match="samples of 1 cases that aren't given, c9"):
        rows({"c9": "L"})
    with pytest.raises(StageError, match="N = 0"):
        rows({"c0": "L"}, numbers=(0, 1))
    with pytest.raises(StageError, match="3 of 2 samples"):
        oracle_chance(2, 1, 3)


def test_more_samples_never_lower_the_oracle() -> None:
    found = rows({f"c{i}": "LRRLRRRR" for i in range(4)})
    values = [row.oracle.value for row in found]
    assert values == sorted(values)
    assert len(set(values)) == 4
