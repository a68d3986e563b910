"""Agreement of raters against sklearn and scipy, and of repeats that have no order."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import spearmanr
from sklearn.metrics import cohen_kappa_score

from prerouter.core.errors import StageError
from prerouter.measures.agreement import RaterAgreement, rater_agreement, repeat_agreement

GRADES = [0, 1, 2, 3, 4]


def draw(seed: int, n: int = 60) -> tuple[list[int], list[int], list[str]]:
    rng = np.random.default_rng(seed)
    one = rng.integers(0, 5, n)
    other = np.clip(one + rng.integers(-1, 2, n), 0, 4)
    return one.tolist(), other.tolist(), [f"d{place % 12}" for place in range(n)]


def agree(one: list[float], other: list[float], groups: list[str] | None = None) -> RaterAgreement:
    groups = groups or [str(place) for place in range(len(one))]
    return rater_agreement(one, other, groups, resamples=200, confidence=0.95, seed=1)


@pytest.mark.parametrize("seed", range(5))
def test_values_are_those_of_the_libraries(seed: int) -> None:
    one, other, groups = draw(seed)
    found = agree(one, other, groups)
    a, b = np.array(one), np.array(other)
    assert (found.n, found.n_groups) == (60, 12)
    assert found.exact.value == pytest.approx((a == b).mean())
    assert found.within_one.value == pytest.approx((abs(a - b) <= 1).mean())
    assert found.mean_absolute_difference.value == pytest.approx(abs(a - b).mean())
    assert found.kappa.value == pytest.approx(cohen_kappa_score(a, b))
    assert found.quadratic_kappa.value == pytest.approx(
        cohen_kappa_score(a, b, labels=GRADES, weights="quadratic")
    )
    assert found.spearman.value == pytest.approx(spearmanr(a, b).statistic)


def test_intervals_are_those_of_a_bootstrap_over_documents() -> None:
    one, other, groups = draw(9)
    found = agree(one, other, groups)
    a, b, member = np.array(one), np.array(other), np.array(groups)
    names = np.unique(member)
    drawn = np.random.default_rng(1).integers(0, len(names), size=(200, len(names)))
    kappas, spearmans = [], []
    for places in drawn:
        rows = np.concatenate([np.flatnonzero(member == names[place]) for place in places])
        kappas.append(cohen_kappa_score(a[rows], b[rows], labels=GRADES, weights="quadratic"))
        spearmans.append(spearmanr(a[rows], b[rows]).statistic)
    for measured, values in ((found.quadratic_kappa, kappas), (found.spearman, spearmans)):
        assert measured.interval is not None
        expected = np.quantile(values, (0.025, 0.975))
        assert (measured.interval.low, measured.interval.high) == pytest.approx(tuple(expected))
        assert measured.interval.n_groups == 12


def test_medians_between_two_grades_are_scores_of_their_own() -> None:
    found = agree([2.5, 1, 0, 4], [2, 1, 0, 3.5])
    assert found.exact.value == 0.5
    assert found.within_one.value == 1
    # Weights go by the distance of the scores, not by their place in a list.
    a, b = np.array([2.5, 1, 0, 4]), np.array([2, 1, 0, 3.5])
    expected = 1 - ((a - b) ** 2).mean() / ((a[:, None] - b[None, :]) ** 2).mean()
    assert found.quadratic_kappa.value == pytest.approx(expected)


def test_raters_without_any_variety_have_no_kappa() -> None:
    found = agree([3, 3, 3], [3, 3, 3])
    assert found.exact.value == 1
    for measured in (found.kappa, found.quadratic_kappa, found.spearman):
        assert measured.value is None
        assert measured.note is not None
    one_sided = agree([3, 3, 3], [3, 2, 3])
    assert one_sided.spearman.value is None
    assert one_sided.kappa.value == pytest.approx(0)


def test_one_document_has_no_interval() -> None:
    found = agree([1, 2], [1, 3], ["d", "d"])
    assert found.exact.value == 0.5
    assert found.exact.interval is None
    assert "fewer than two documents" in (found.exact.note or "")


@pytest.mark.parametrize("bad", [[], [1.0, float("nan")], [1.0, float("inf")]])
def test_missing_scores_are_refused(bad: list[float]) -> None:
    with pytest.raises(StageError, match="agreement"):
        agree(bad, [1.0] * len(bad))


def test_a_continuous_scale_is_refused() -> None:
    values = np.linspace(0, 4, 70).tolist()
    with pytest.raises(StageError, match="70 different values"):
        agree(values, values)


def repeats(
    grades: list[tuple[int, ...]], groups: list[str] | None = None
) -> RaterAgreement | None:
    groups = groups or [str(place) for place in range(len(grades))]
    return repeat_agreement(grades, groups, resamples=100, confidence=0.95, seed=1)


def test_two_repeats_are_raters_in_either_order() -> None:
    one, other, groups = draw(3)
    found = repeats(list(zip(one, other, strict=True)), groups)
    assert found is not None
    assert found == repeats(list(zip(other, one, strict=True)), groups)
    both = np.array(one + other), np.array(other + one)
    assert found.n == 60
    assert found.quadratic_kappa.value == pytest.approx(
        cohen_kappa_score(*both, labels=GRADES, weights="quadratic")
    )


def test_every_answer_weighs_the_same_however_many_repeats_could_be_read() -> None:
    found = repeats([(4, 4, 4, 4), (0, 2), (3,), ()])
    assert found is not None
    assert found.n == 2
    assert found.exact.value == pytest.approx(0.5)
    assert found.mean_absolute_difference.value == pytest.approx(1)


def test_three_repeats_agree_by_pairs() -> None:
    found = repeats([(1, 1, 4)])
    assert found is not None
    assert found.exact.value == pytest.approx(1 / 3)


def test_single_judgements_have_no_agreement() -> None:
    assert repeats([(1,), (2,), ()]) is None
