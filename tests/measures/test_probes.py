from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, roc_auc_score

from prerouter.measures.probes import Predictions, ProbeMeasure, measure_probe
from prerouter.measures.statistics import Measured


def predictions(
    truth: list[int],
    scores: np.ndarray,
    control: tuple[list[int], list[int]] | None = None,
    groups: list[str] | None = None,
) -> Predictions:
    asked, said = control or (truth, truth)
    return Predictions(
        truth=np.array(truth),
        predicted=scores.argmax(axis=1),
        scores=scores,
        majority=0,
        control_truth=np.array(asked),
        control_predicted=np.array(said),
        groups=np.array(groups or [f"d{index}" for index in range(len(truth))]),
    )


def measured(found: Predictions, resamples: int = 200) -> dict[ProbeMeasure, Measured]:
    return measure_probe(found, resamples, 0.95, seed=3)


def values(found: Predictions) -> dict[ProbeMeasure, float | None]:
    return {name: each.value for name, each in measured(found).items()}


def drawn(cases: int, classes: int, seed: int) -> tuple[list[int], np.ndarray]:
    draw = np.random.default_rng(seed)
    truth = draw.integers(0, classes, cases)
    # One decimal: many scores tie.
    scores = np.round(draw.random((cases, classes)) + np.eye(classes)[truth] * 0.3, 1)
    return truth.tolist(), scores


def test_against_a_table_worked_out_by_hand() -> None:
    # Of class 0: two of three right. Of class 1: one of one. The control is right once.
    scores = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7], [0.2, 0.8]])
    found = values(predictions([0, 0, 0, 1], scores, ([0, 1, 1, 0], [0, 0, 0, 1])))
    assert found == {
        ProbeMeasure.ACCURACY: pytest.approx(0.75),
        ProbeMeasure.BALANCED_ACCURACY: pytest.approx((2 / 3 + 1) / 2),
        ProbeMeasure.AUC: pytest.approx(1.0),
        ProbeMeasure.MAJORITY: pytest.approx(0.75),
        ProbeMeasure.CONTROL: pytest.approx(0.25),
        ProbeMeasure.SELECTIVITY: pytest.approx(0.5),
    }


@pytest.mark.parametrize("classes", [2, 3, 5])
def test_against_scikit_learn(classes: int) -> None:
    truth, scores = drawn(150, classes, seed=classes)
    found = values(predictions(truth, scores))
    expected = np.mean(
        [
            roc_auc_score(np.array(truth) == each, scores[:, each])
            for each in ([1] if classes == 2 else range(classes))
        ]
    )
    assert found[ProbeMeasure.AUC] == pytest.approx(expected)
    assert found[ProbeMeasure.BALANCED_ACCURACY] == pytest.approx(
        balanced_accuracy_score(truth, scores.argmax(axis=1))
    )


def test_an_auc_of_resampled_documents_is_that_of_their_cases_laid_out() -> None:
    truth, scores = drawn(60, 2, seed=1)
    groups = [f"d{index % 6}" for index in range(60)]
    found = measured(predictions(truth, scores, groups=groups), 400)[ProbeMeasure.AUC].interval
    draw = np.random.default_rng(3)
    plain = []
    for chosen in draw.integers(0, 6, size=(400, 6)):
        cases = [i for group in chosen for i in range(60) if groups[i] == f"d{group}"]
        plain.append(roc_auc_score(np.array(truth)[cases], scores[cases, 1]))
    low, high = np.quantile(plain, (0.025, 0.975))
    assert found is not None
    assert found.low == pytest.approx(low)
    assert found.high == pytest.approx(high)
    assert found.n_groups == 6


def test_documents_are_resampled_and_not_cases() -> None:
    truth = [0, 1] * 100
    right = np.repeat([True, False], 100)
    scores = np.array([[t == r, t != r] for t, r in zip(truth, right, strict=True)], dtype=float)
    alone = measured(predictions(truth, scores))[ProbeMeasure.ACCURACY].interval
    groups = ["good"] * 100 + ["bad"] * 100
    whole = measured(predictions(truth, scores, groups=groups))[ProbeMeasure.ACCURACY].interval
    assert alone is not None
    assert whole is not None
    assert alone.high - alone.low < 0.2
    assert (whole.low, whole.high) == (0, 1)


def test_a_large_comparison_is_cut_into_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    truth, scores = drawn(90, 3, seed=2)
    found = predictions(truth, scores, groups=[f"d{index % 7}" for index in range(90)])
    whole = measured(found)
    monkeypatch.setattr("prerouter.measures.probes._CELLS", 100)
    assert measured(found) == whole


def test_one_class_in_the_test_split_is_told() -> None:
    found = measured(predictions([0] * 40, np.tile([0.8, 0.2], (40, 1))))
    for name in (ProbeMeasure.AUC, ProbeMeasure.BALANCED_ACCURACY):
        assert found[name].value is None
        assert "one class" in str(found[name].note)
    assert found[ProbeMeasure.ACCURACY].value == 1


def test_a_class_that_was_not_trained_on_counts_as_wrong() -> None:
    scores = np.tile([0.8, 0.2], (4, 1))
    found = values(predictions([0, 0, -1, -1], scores))
    assert found[ProbeMeasure.ACCURACY] == 0.5
    assert found[ProbeMeasure.BALANCED_ACCURACY] == 0.5
    only = measured(predictions([-1, -1], scores[:2]))
    assert only[ProbeMeasure.AUC].value is None


def test_one_document_has_no_interval() -> None:
    truth, scores = drawn(40, 2, seed=4)
    found = measured(predictions(truth, scores, groups=["d"] * 40))
    for each in found.values():
        assert each.value is not None
        assert each.interval is None
        assert "fewer than two documents" in str(each.note)
