"""Tests and corrections against statsmodels, and the Brier score against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss

from prerouter.measures.calibration import brier_score
from prerouter.measures.comparisons import holm, mcnemar_exact, paired_t

multitest = pytest.importorskip("statsmodels.stats.multitest")
contingency = pytest.importorskip("statsmodels.stats.contingency_tables")

RNG = np.random.default_rng(11)
ONE = RNG.random(120) < 0.7
OTHER = np.where(RNG.random(120) < 0.75, ONE, RNG.random(120) < 0.4)


def test_mcnemars_exact_test() -> None:
    table = np.array(
        [[(ONE & OTHER).sum(), (ONE & ~OTHER).sum()], [(~ONE & OTHER).sum(), (~ONE & ~OTHER).sum()]]
    )
    expected = contingency.mcnemar(table, exact=True)
    assert mcnemar_exact(ONE, OTHER).p == pytest.approx(expected.pvalue, rel=1e-12)
    assert expected.pvalue < 1


@pytest.mark.parametrize(
    "p", [[0.01, 0.04, 0.03, 0.005], [0.5], [0.9, 0.9, 0.02], RNG.random(30).tolist()]
)
def test_holms_correction(p: list[float]) -> None:
    _, expected, _, _ = multitest.multipletests(p, method="holm")
    assert holm(p) == pytest.approx(expected.tolist(), rel=1e-12)


def test_the_paired_t_test_and_cohens_d() -> None:
    one, other = RNG.normal(3.4, 0.8, 90), RNG.normal(3.3, 0.8, 90)
    found, dz = paired_t(one - other)
    expected = stats.ttest_rel(one, other)
    assert found.p == pytest.approx(expected.pvalue, rel=1e-10)
    assert found.statistic == pytest.approx(expected.statistic, rel=1e-10)
    assert dz.value == pytest.approx(expected.statistic / np.sqrt(90), rel=1e-10)


def test_the_brier_score() -> None:
    p = RNG.random(120)
    assert brier_score(p, ONE) == pytest.approx(brier_score_loss(ONE, p), rel=1e-12)
