from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import bootstrap

from prerouter.measures.statistics import (
    Floats,
    Interval,
    Measured,
    NoInterval,
    cluster_bootstrap,
    group_sums,
    percentile_interval,
    resampled_sums,
    resampled_weights,
    with_interval,
)


def mean(sums: Floats) -> Floats:
    """Columns: number of cases, sum of their values."""
    return sums[..., 1] / sums[..., 0]


def as_sums(values: Floats, groups: Floats) -> Floats:
    return group_sums(groups, np.column_stack((np.ones(len(values)), values)))


def interval(sums: Floats, resamples: int = 2000, seed: int = 0) -> Interval:
    found = cluster_bootstrap(sums, mean, resamples, 0.95, seed)
    assert isinstance(found, Interval)
    return found


def test_one_row_a_group_agrees_with_scipy() -> None:
    values = np.random.default_rng(1).gamma(2.0, size=200)
    ours = interval(as_sums(values, np.arange(200)), resamples=20_000)
    theirs = bootstrap(
        (values,), np.mean, n_resamples=20_000, method="percentile", rng=2
    ).confidence_interval
    width = theirs.high - theirs.low
    assert ours.low == pytest.approx(theirs.low, abs=0.03 * width)
    assert ours.high == pytest.approx(theirs.high, abs=0.03 * width)
    assert (ours.n_groups, ours.resamples, ours.left_out) == (200, 20_000, 0)


def test_two_groups_by_hand() -> None:
    # Draws of two groups: both 0 (1 in 4), one of each (1 in 2), both 1 (1 in 4).
    totals = resampled_sums(np.array([[1.0, 0.0], [1.0, 1.0]]), 4000, seed=3)
    assert set(mean(totals)) == {0.0, 0.5, 1.0}
    assert (mean(totals) == 0.5).mean() == pytest.approx(0.5, abs=0.03)
    assert (totals[:, 0] == 2).all()
    found = interval(np.array([[1.0, 0.0], [1.0, 1.0]]))
    assert (found.low, found.high) == (0.0, 1.0)


def test_percentiles_by_hand() -> None:
    found = percentile_interval(np.arange(101.0), 0.9, n_groups=5)
    assert isinstance(found, Interval)
    assert (found.low, found.high) == (pytest.approx(5.0), pytest.approx(95.0))


def test_groups_that_agree_give_a_wider_interval_than_rows() -> None:
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(30), 20)
    values = np.repeat(rng.normal(size=30), 20) + 0.1 * rng.normal(size=600)
    by_document = interval(as_sums(values, groups))
    by_row = interval(as_sums(values, np.arange(600)))
    assert by_document.high - by_document.low > 3 * (by_row.high - by_row.low)


def test_the_seed_decides() -> None:
    sums = as_sums(np.random.default_rng(5).normal(size=50), np.arange(50))
    assert interval(sums, seed=1) == interval(sums, seed=1)
    assert interval(sums, seed=1) != interval(sums, seed=2)


def test_chunked_draws_are_the_same_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    sums = np.random.default_rng(5).normal(size=(40, 3, 2))
    whole = resampled_sums(sums, 100, seed=1)
    monkeypatch.setattr("prerouter.measures.statistics._CHUNK_CELLS", 40 * 7)
    assert whole.shape == (100, 3, 2)
    np.testing.assert_allclose(resampled_sums(sums, 100, seed=1), whole)


def test_resamples_without_a_value_are_left_out_and_counted() -> None:
    values = np.array([1.0, 2.0, np.nan, 3.0])
    found = percentile_interval(values, 0.5, n_groups=4)
    assert isinstance(found, Interval)
    assert found.left_out == 1
    assert (found.low, found.high) == (1.5, 2.5)


def test_no_interval_without_a_reason() -> None:
    one = cluster_bootstrap(np.array([[3.0, 1.0]]), mean, 100, 0.95, 0)
    assert isinstance(one, NoInterval)
    assert "fewer than two" in one.reason
    mostly = percentile_interval(np.array([1.0, np.nan, np.nan]), 0.95, n_groups=9)
    assert isinstance(mostly, NoInterval)
    assert "2 of 3" in mostly.reason
    with pytest.raises(ValidationError, match="says why"):
        Measured(value=None)


def test_group_sums_are_by_group_in_their_order() -> None:
    values = np.array([[1.0, 10.0], [2.0, 20.0], [3.0, 30.0]])
    assert group_sums(np.array(["b", "a", "b"]), values).tolist() == [[2.0, 20.0], [4.0, 40.0]]


def test_the_weights_are_those_of_the_resampled_sums() -> None:
    sums = np.random.default_rng(1).random((7, 3))
    weights = np.concatenate(list(resampled_weights(7, 50, seed=2)))
    assert weights.shape == (50, 7)
    assert (weights.sum(axis=1) == 7).all()
    assert weights @ sums == pytest.approx(resampled_sums(sums, 50, seed=2))


def test_a_value_keeps_the_reason_why_it_has_no_interval_or_a_partial_one() -> None:
    whole = Interval(low=0, high=1, confidence=0.95, n_groups=3, resamples=10)
    partial = whole.model_copy(update={"left_out": 4})
    assert with_interval(0.5, whole) == Measured(value=0.5, interval=whole)
    assert "leaves out 4 of 10 resamples" in (with_interval(0.5, partial).note or "")
    assert with_interval(0.5, NoInterval("none")) == Measured(value=0.5, note="none")
