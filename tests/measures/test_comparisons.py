from __future__ import annotations

from itertools import combinations
from math import comb, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from prerouter.core.errors import StageError
from prerouter.measures.comparisons import (
    PairedTest,
    bootstrap_p,
    compare_routers,
    holm,
    mcnemar_exact,
    paired_t,
)
from prerouter.measures.outcomes import Outcomes
from prerouter.measures.statistics import Interval, cluster_bootstrap, group_sums
from tests.measures.matched import evaluation


def outcomes(n: int = 60, per_document: int = 3) -> Outcomes:
    rng = np.random.default_rng(3)
    qa = [(float(a), float(b)) for a, b in rng.integers(0, 5, (n, 2)) / 4]
    groups = "".join(chr(97 + i // per_document) for i in range(n))
    routers = {name: "".join(rng.choice(list("RL"), n)) for name in ("one", "two", "three")}
    return evaluation(qa, routers, groups).outcomes()


@pytest.mark.parametrize(("only_one", "only_other"), [(9, 2), (2, 9), (5, 5), (1, 0), (12, 3)])
def test_mcnemar_by_the_binomial_sum(only_one: int, only_other: int) -> None:
    one = [1] * only_one + [0] * only_other + [1, 0, 1]
    other = [0] * only_one + [1] * only_other + [1, 0, 1]
    n, k = only_one + only_other, min(only_one, only_other)
    tail = sum(comb(n, i) for i in range(k + 1)) / 2**n
    result = mcnemar_exact(one, other)
    assert result.p == pytest.approx(min(1.0, 2 * tail))
    assert result.statistic == only_one


def test_mcnemar_without_a_differing_case_is_none_in_words() -> None:
    result = mcnemar_exact([1, 0, 1], [1, 0, 1])
    assert result.p is None
    assert "right on the same cases" in (result.note or "")


def test_the_paired_t_test_by_hand_and_by_scipy() -> None:
    one, other = np.array([3.0, 5, 4, 6, 7]), np.array([2.0, 5, 2, 5, 3])
    d = one - other  # 1, 0, 2, 1, 4: mean 1.6, squares about it 9.2
    t, dz = paired_t(d)
    assert dz.value == pytest.approx(1.6 / sqrt(9.2 / 4))
    assert t.statistic == pytest.approx(1.6 / sqrt(9.2 / 4) * sqrt(5))
    assert t.p == pytest.approx(stats.ttest_rel(one, other).pvalue)
    assert t.p == pytest.approx(2 * stats.t.sf(t.statistic, df=4))


@pytest.mark.parametrize(
    ("differences", "words"),
    [
        ([0.0] * 5, "the same in every case"),
        # 0.3 - 0.2 and 0.2 - 0.1 differ in the last bit only.
        ([0.3 - 0.2, 0.2 - 0.1, 0.1], "the same in every case"),
        ([0.5], "fewer than two cases"),
    ],
)
def test_no_spread_is_none_in_words_and_never_nan(differences: list[float], words: str) -> None:
    t, dz = paired_t(differences)
    assert (t.p, t.statistic, dz.value) == (None, None, None)
    assert words in (t.note or "")
    assert words in (dz.note or "")


def test_holm_by_hand() -> None:
    # Sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1; each at least the one before.
    assert holm([0.02, 0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.06, 0.04, 0.06])
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_raw_p_and_bonferronis(p: list[float]) -> None:
    adjusted = holm(p)
    for raw, corrected in zip(p, adjusted, strict=True):
        assert raw <= corrected <= min(1.0, len(p) * raw) + 1e-12
    order = np.argsort(p, kind="stable")
    assert (np.diff(np.array(adjusted)[order]) >= 0).all()
    assert adjusted[order[0]] == pytest.approx(min(1.0, len(p) * p[order[0]]))


def test_a_comparison_is_of_the_same_cases_with_every_test() -> None:
    made = outcomes()
    found = compare_routers(made, [("one", "two")])[0]
    d = made.qa_of("one") - made.qa_of("two")
    right = made.right("one").astype(int) - made.right("two")
    assert (found.one, found.other, found.n, found.n_groups) == ("one", "two", 60, 20)
    assert found.qa.value == pytest.approx(d.mean())
    assert found.accuracy.value == pytest.approx(right.mean())
    assert found.tests[PairedTest.QA_PAIRED_T].p == pytest.approx(
        stats.ttest_rel(made.qa_of("one"), made.qa_of("two")).pvalue
    )
    assert found.tests[PairedTest.ACCURACY_MCNEMAR].p == pytest.approx(
        stats.binomtest(int((right > 0).sum()), int((right != 0).sum())).pvalue
    )
    assert found.caution is None


def test_both_intervals_are_of_their_own_measure_in_every_pair() -> None:
    made = outcomes()
    for found in compare_routers(made, resamples=500):
        qa = made.qa_of(found.one) - made.qa_of(found.other)
        right = made.right(found.one).astype(float) - made.right(found.other)
        for measured, values in ((found.qa, qa), (found.accuracy, right)):
            sums = group_sums(made.groups, np.column_stack((np.ones(made.n), values)))
            peer = cluster_bootstrap(sums, lambda s: s[..., 1] / s[..., 0], 500, 0.95, 0)
            assert isinstance(peer, Interval)
            assert measured.interval is not None
            assert (measured.interval.low, measured.interval.high) == pytest.approx(
                (peer.low, peer.high)
            )


def test_the_interval_is_scipys_where_each_document_is_one_case() -> None:
    made = outcomes(n=26, per_document=1)
    found = compare_routers(made, [("one", "two")], resamples=9999)[0]
    d = made.qa_of("one") - made.qa_of("two")
    peer = stats.bootstrap(
        (d,), np.mean, n_resamples=9999, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    assert found.qa.interval is not None
    assert (found.qa.interval.low, found.qa.interval.high) == pytest.approx(
        (peer.low, peer.high), abs=0.02
    )
    assert "only 26 cases" in (found.caution or "")


def test_documents_of_many_questions_widen_the_interval() -> None:
    qa = [(0.0, 1.0)] * 40 + [(1.0, 0.0)] * 40
    routers = {"one": "L" * 80, "two": "R" * 80}
    widths = []
    for groups in ("".join(chr(200 + i) for i in range(80)), "abcd" * 10 + "efgh" * 10):
        interval = compare_routers(evaluation(qa, routers, groups).outcomes())[0].qa.interval
        assert interval is not None
        widths.append(interval.high - interval.low)
    assert widths[1] > 2 * widths[0]


def test_the_bootstrap_p_counts_the_smaller_tail() -> None:
    draws = np.array([0.2] * 95 + [-0.1] * 4)
    assert bootstrap_p(draws) == pytest.approx(2 * 5 / 100)
    assert bootstrap_p(-draws) == pytest.approx(2 * 5 / 100)
    assert bootstrap_p(np.array([0.1] * 99)) == pytest.approx(2 / 100)
    assert bootstrap_p(np.array([-0.1, 0.1] * 50)) == 1.0


def test_a_bootstrap_p_at_its_floor_says_so() -> None:
    made = evaluation([(0.0, 1.0), (0.0, 0.9)] * 10, {"lc": "L" * 20, "rag": "R" * 20}).outcomes()
    result = compare_routers(made, resamples=199)[0].tests[PairedTest.QA_BOOTSTRAP]
    assert result.p == pytest.approx(2 / 200)
    assert result.note == "or less: 199 resamples can show no smaller p"


def test_all_pairs_are_corrected_for_their_number() -> None:
    found = compare_routers(outcomes())
    names = ["one", "two", "three"]
    assert [(row.one, row.other) for row in found] == list(combinations(names, 2))
    for test in PairedTest:
        raw = [row.tests[test].p for row in found]
        assert None not in raw
        assert [row.tests[test].p_holm for row in found] == pytest.approx(holm(raw))  # type: ignore[arg-type]


def test_a_comparison_without_a_p_counts_in_the_correction() -> None:
    qa = [(0.0, 1.0), (1.0, 0.0)] * 5
    made = evaluation(qa, {"a": "LR" * 5, "same": "LR" * 5, "worse": "RL" * 4 + "LR"}).outcomes()
    a_same, a_worse, same_worse = (
        row.tests[PairedTest.ACCURACY_MCNEMAR] for row in compare_routers(made)
    )
    assert (a_same.p, a_same.p_holm) == (None, None)
    assert a_worse.p == pytest.approx(2 / 2**8)
    assert a_worse.p_holm == pytest.approx(3 * 2 / 2**8)
    assert same_worse.p_holm == pytest.approx(3 * 2 / 2**8)


def test_routers_that_agree_everywhere_are_none_in_words() -> None:
    found = compare_routers(evaluation([(0.0, 1.0)] * 4, {"a": "LRLR", "b": "LRLR"}).outcomes())[0]
    assert (found.qa.value, found.accuracy.value) == (0.0, 0.0)
    for result in found.tests.values():
        assert result.p is None
        assert result.note
        assert result.note.startswith("n/a: ")


def test_one_document_gives_no_interval_and_no_bootstrap_p() -> None:
    made = evaluation([(0.0, 1.0), (1.0, 0.5)], {"a": "LR", "b": "RR"}, "dd").outcomes()
    found = compare_routers(made)[0]
    assert found.qa.value == pytest.approx(0.5)
    assert found.qa.interval is None
    assert "fewer than two documents" in (found.tests[PairedTest.QA_BOOTSTRAP].note or "")


def test_an_undecided_case_is_wrong_and_takes_the_fallback() -> None:
    made = evaluation([(1.0, 0.0)] * 3, {"silent": "??R", "rag": "RRR"}).outcomes()
    found = compare_routers(made)[0]
    assert found.qa.value == 0.0
    assert found.accuracy.value == pytest.approx(-2 / 3)


@pytest.mark.parametrize("pair", [("one", "one"), ("one", "none")])
def test_a_pair_that_is_none_is_refused(pair: tuple[str, str]) -> None:
    with pytest.raises(StageError, match=f"{pair[0]} against {pair[1]}"):
        compare_routers(outcomes(), [pair])


def test_the_same_seed_gives_the_same_comparison() -> None:
    assert compare_routers(outcomes(), seed=5) == compare_routers(outcomes(), seed=5)
    assert compare_routers(outcomes(), seed=5) != compare_routers(outcomes(), seed=6)
