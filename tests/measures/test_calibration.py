from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, log_loss

from prerouter.core.errors import StageError
from prerouter.measures.calibration import (
    CERTAIN_LOG_ODDS,
    apply_temperature,
    brier_score,
    calibration,
    expected_calibration_error,
    fit_temperature,
    from_odds,
    log_odds,
    reliability_bins,
)

RNG = np.random.default_rng(7)
TRUE_LOG_ODDS = RNG.normal(size=4000)
TRUE_P = expit(TRUE_LOG_ODDS)
LABELS = RNG.random(4000) < TRUE_P


def test_odds_become_a_probability_and_no_number_becomes_none() -> None:
    odds = [-np.inf, -1e4, -2.0, 0.0, 3.0, 1e4, np.inf]
    assert [from_odds(each) for each in odds] == pytest.approx(list(expit(odds)))
    with pytest.raises(StageError, match="no number"):
        from_odds(float("nan"))


@pytest.mark.parametrize("boldness", [0.4, 1.0, 3.0])
def test_the_temperature_is_that_of_a_logistic_regression_through_the_origin(
    boldness: float,
) -> None:
    z = boldness * TRUE_LOG_ODDS
    fit = fit_temperature(z, LABELS)
    peer = LogisticRegression(C=np.inf, fit_intercept=False, tol=1e-10).fit(z[:, None], LABELS)
    assert fit.temperature == pytest.approx(1 / peer.coef_[0, 0], rel=1e-4)
    assert fit.temperature == pytest.approx(boldness, rel=0.1)
    assert fit.loss_before == pytest.approx(log_loss(LABELS, expit(z)))
    assert fit.loss_after == pytest.approx(log_loss(LABELS, expit(z / fit.temperature)))
    assert fit.loss_after <= fit.loss_before
    assert (fit.n, fit.n_lc, fit.certain, fit.note) == (4000, LABELS.sum(), 0, None)


def test_calibrating_a_bold_router_lowers_brier_and_error() -> None:
    bold = expit(3 * TRUE_LOG_ODDS)
    cooled = apply_temperature(bold, fit_temperature(log_odds(bold), LABELS).temperature)
    before, after = calibration(bold, LABELS), calibration(cooled, LABELS)
    assert after.brier < before.brier
    assert after.ece_equal_width < before.ece_equal_width / 3
    assert after.ece_equal_mass < before.ece_equal_mass / 3


def test_a_fit_at_its_bound_says_so() -> None:
    apart = np.array([-1.0, 1.0] * 20)
    assert "without an error" in (fit_temperature(apart, apart > 0).note or "")
    backwards = fit_temperature(apart, apart < 0)
    assert (backwards.temperature, "the opposite" in (backwards.note or "")) == (20.0, True)


@pytest.mark.parametrize(
    ("z", "y", "words"),
    [
        ([0.1, -0.2] * 14, [1, 0] * 14, "28 cases means little; 30 labelled"),
        ([0.1] * 40, [1] * 40, "all 40 labels are LC"),
        ([0.1] * 40, [0] * 40, "all 40 labels are RAG"),
        ([0.1, float("nan")] * 20, [1, 0] * 20, "20 of 40 values are missing"),
        ([0.1, None] * 20, [1, 0] * 20, "20 of 40 values are missing"),
        ([0.1, 0.2] * 20, [1, None] * 20, "the labels: 20 of 40"),
        ([0.1, 0.2] * 20, [1, 0] * 19, "38 values for 40 cases"),
    ],
)
def test_a_fit_that_means_nothing_is_refused(z: list, y: list, words: str) -> None:
    with pytest.raises(StageError, match="calibration: ") as caught:
        fit_temperature(z, y)
    assert words in caught.value.line


def test_certain_probabilities_are_held_and_counted() -> None:
    z = log_odds([0.0, 0.5, 1.0])
    assert z.tolist() == [-CERTAIN_LOG_ODDS, 0.0, CERTAIN_LOG_ODDS]
    fit = fit_temperature(np.tile(z, 20), [0, 1, 1] * 19 + [1, 1, 1])
    assert fit.certain == 40
    assert "40 cases with a p_lc of 0 or 1 steer the fit" in (fit.note or "")
    assert np.isfinite(fit.loss_before)


@given(
    p=st.lists(st.floats(0, 1), min_size=1, max_size=30),
    temperature=st.floats(0.05, 20),
)
def test_a_temperature_keeps_order_and_the_middle(p: list[float], temperature: float) -> None:
    scaled = apply_temperature(p, temperature)
    assert (np.diff(scaled[np.argsort(p, kind="stable")]) >= 0).all()
    low, middle, high = apply_temperature([0.0, 0.5, 1.0], temperature)
    assert (low, middle) == (pytest.approx(1 - high), 0.5)
    assert apply_temperature(p, 1.0).tolist() == p
    # Odds of 4 to 1 become odds of 4^(1/T) to 1.
    assert apply_temperature([0.8], temperature) == pytest.approx(1 / (1 + 4 ** (-1 / temperature)))


def test_certainty_is_softened_as_the_fit_took_it() -> None:
    p = [0.0, 1e-300, 1.0]
    held = expit(CERTAIN_LOG_ODDS / 20)
    assert apply_temperature(p, 20.0) == pytest.approx([1 - held, 1 - held, held])
    y = np.array([1, 1, 0] * 20)
    fit = fit_temperature(log_odds(p * 20), y)
    right = apply_temperature(p * 20, fit.temperature)
    assert fit.loss_after == pytest.approx(log_loss(y, right))


def test_a_router_that_tells_nothing_is_left_as_it_is() -> None:
    fit = fit_temperature(np.zeros(40), [0, 1] * 20)
    assert (fit.temperature, fit.note) == (1.0, None)
    assert fit.loss_after == fit.loss_before


def test_brier_by_hand_and_by_sklearn() -> None:
    # 0.01, 0.16, 0.36 and 1 over four cases.
    assert brier_score([0.9, 0.4, 0.4, 1.0], [1, 0, 1, 0]) == pytest.approx(1.53 / 4)
    p = expit(2 * TRUE_LOG_ODDS)
    assert brier_score(p, LABELS) == pytest.approx(brier_score_loss(LABELS, p))


def test_calibration_errors_by_hand() -> None:
    p = [0.1, 0.2, 0.3, 0.6, 0.6, 0.9]
    y = [0, 0, 1, 1, 0, 1]
    halves = reliability_bins(p, y, bins=2)
    assert [(b.low, b.high, b.n) for b in halves] == [(0.0, 0.5, 3), (0.5, 1.0, 3)]
    assert [b.mean_p_lc for b in halves] == pytest.approx([0.2, 0.7])
    assert [b.lc_share for b in halves] == pytest.approx([1 / 3, 2 / 3])
    assert expected_calibration_error(halves) == pytest.approx((2 / 15 + 1 / 30) / 2)
    thirds = reliability_bins(p, y, bins=3, equal_mass=True)
    assert [(b.low, b.high, b.n) for b in thirds] == [(0.1, 0.2, 2), (0.2, 0.6, 3), (0.6, 0.9, 1)]
    assert expected_calibration_error(thirds) == pytest.approx(
        (2 * 0.15 + 3 * (2 / 3 - 0.5) + 1 * 0.1) / 6
    )


def test_equal_width_points_are_those_of_sklearn() -> None:
    p = expit(2 * TRUE_LOG_ODDS)
    shares, means = calibration_curve(LABELS, p, n_bins=15, strategy="uniform")
    ours = reliability_bins(p, LABELS, bins=15)
    assert [b.lc_share for b in ours] == pytest.approx(shares)
    assert [b.mean_p_lc for b in ours] == pytest.approx(means)


def test_equal_mass_bins_of_distinct_values_hold_equally_many() -> None:
    assert {b.n for b in reliability_bins(TRUE_P, LABELS, bins=8, equal_mass=True)} == {500}


@given(
    cases=st.lists(
        st.tuples(st.sampled_from([0.0, 0.1, 0.3, 0.5, 1.0]), st.booleans()), min_size=1
    ),
    bins=st.integers(1, 12),
    equal_mass=st.booleans(),
)
def test_every_case_is_in_one_bin_and_ties_share_it(
    cases: list[tuple[float, bool]], bins: int, equal_mass: bool
) -> None:
    p, y = [list(column) for column in zip(*cases, strict=True)]
    made = reliability_bins(p, y, bins=bins, equal_mass=equal_mass)
    assert sum(b.n for b in made) == len(cases)
    assert len(made) <= bins
    for b in made:
        at_start = b is made[0]
        assert b.n == sum(b.low < v <= b.high or (at_start and v == b.low) for v in p)
    assert 0 <= expected_calibration_error(made) <= 1


def test_one_value_makes_one_bin_and_few_cases_are_said() -> None:
    made = calibration([0.3] * 4, [1, 0, 0, 0])
    assert [b.n for b in made.equal_mass] == [4]
    assert made.ece_equal_mass == pytest.approx(0.05)
    assert made.ece_equal_width == pytest.approx(0.05)
    assert (made.n, made.n_lc) == (4, 1)
    assert "only 4 cases" in (made.caution or "")


@pytest.mark.parametrize("measure", [brier_score, calibration, reliability_bins])
def test_missing_probabilities_are_refused(measure) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StageError, match="missing or not finite"):
        measure([0.1, None], [0, 1])
