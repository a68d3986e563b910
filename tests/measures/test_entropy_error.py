"""Pearson's r of entropy with error against scipy, and its bins by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from prerouter.core.errors import StageError
from prerouter.measures.entropy_error import entropy_against_error

RNG = np.random.default_rng(5)
BITS = RNG.gamma(2.0, 0.6, 200)
ERROR = (RNG.random(200) < np.clip(BITS / 3, 0, 1)).astype(float)
GROUPS = np.repeat(np.arange(50), 4)


def test_r_is_scipys() -> None:
    found = entropy_against_error(BITS, ERROR, GROUPS)
    expected = stats.pearsonr(BITS, ERROR)
    assert found.pearson.value == pytest.approx(expected.statistic, abs=1e-12)
    assert found.n == 200
    assert found.n_groups == 50


def test_the_interval_of_single_answers_is_near_scipys() -> None:
    found = entropy_against_error(BITS, ERROR, np.arange(200), resamples=4000, seed=1)
    interval = found.pearson.interval
    assert interval is not None
    expected = stats.bootstrap(
        (BITS, ERROR),
        lambda x, y: stats.pearsonr(x, y).statistic,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        random_state=np.random.default_rng(2),
    ).confidence_interval
    assert interval.low == pytest.approx(expected.low, abs=0.02)
    assert interval.high == pytest.approx(expected.high, abs=0.02)


def test_r_stands_where_large_values_lie_close_together() -> None:
    found = entropy_against_error(1e6 + BITS, ERROR, GROUPS)
    assert found.pearson.value == pytest.approx(stats.pearsonr(BITS, ERROR).statistic, abs=1e-6)


@pytest.mark.parametrize(
    ("bits", "error", "what"),
    [([1.0] * 6, [0, 1] * 3, "entropy"), ([1, 2] * 3, [1.0] * 6, "error")],
)
def test_what_is_the_same_everywhere_has_no_r(
    bits: list[float], error: list[float], what: str
) -> None:
    found = entropy_against_error(bits, error, np.arange(6))
    assert found.pearson.value is None
    assert found.pearson.note == f"n/a: the {what} is the same in every case"


def test_two_answers_always_lie_on_a_line() -> None:
    found = entropy_against_error([1.0, 2.0], [0, 1], np.arange(2))
    assert found.pearson.value is None
    assert "fewer than three" in (found.pearson.note or "")


def test_bins_hold_equally_many_and_never_part_equals() -> None:
    found = entropy_against_error(
        [0.1, 0.2, 0.2, 0.2, 0.9, 1.0], [0, 0, 1, 0, 1, 1], np.arange(6), bins=3
    )
    assert [(each.low, each.high, each.n) for each in found.bins] == [(0.1, 0.2, 4), (0.9, 1.0, 2)]
    assert [each.mean_error for each in found.bins] == [0.25, 1.0]
    assert found.caution is not None
    assert "only 6" in found.caution


def test_nan_is_refused() -> None:
    with pytest.raises(StageError, match="not finite"):
        entropy_against_error([0.1, float("nan")], [0, 1], np.arange(2))
