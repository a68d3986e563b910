"""How well a linear probe reads a target off a model's states, with intervals over documents.

A probe alone can know documents by heart, so each is held against a control task (Hewitt and Liang,
2019, arXiv 1909.03368): the same probe on labels that were shuffled over the documents. Where
no test document stands in training, the control is right as often as the class shares have it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from prerouter.core.records import Record
from prerouter.measures.statistics import (
    Floats,
    Measured,
    cluster_bootstrap,
    group_sums,
    percentile_interval,
    resampled_weights,
    with_interval,
)

Ints = NDArray[np.int64]

# Cells of a comparison of scores held at a time: 8 million doubles are 64 MB.
_CELLS = 8_000_000


class ProbeMeasure(StrEnum):
    """`majority` is the accuracy of the training split's most frequent class. `control` is the
    accuracy of the control task, and `selectivity` what accuracy is above it. `auc` is the area
    under the ROC curve, the mean of each class against the rest where there are more than two."""

    ACCURACY = "accuracy"
    BALANCED_ACCURACY = "balanced_accuracy"
    AUC = "auc"
    MAJORITY = "majority"
    CONTROL = "control"
    SELECTIVITY = "selectivity"


class ProbeResult(Record):
    """One model and prompt, one target, one layer: what its probe reached on the test split.

    `layer` counts from 0, the embedding, to `layers`. `left_out` counts cases of both splits
    without a target or without a state, by reason. `classes` are the training cases of each.
    `memorised` is the training accuracy on the control labels: what the probe can learn by heart.
    """

    row: str
    model: str
    prompt: str
    distilled: bool
    target: str
    layer: Annotated[int, Field(ge=0)]
    layers: int
    train_cases: int
    test_cases: int
    test_documents: int
    classes: dict[str, int]
    left_out: dict[str, int] = {}
    c: float | None = None
    control_c: float | None = None
    memorised: float | None = None
    measures: dict[ProbeMeasure, Measured]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Predictions:
    """What a probe says of the test cases. Classes are numbers into the training split's classes,
    -1 for one that isn't among them.

    `truth`, `predicted`, `control_truth`, `control_predicted` and `groups` are (cases,), `scores`
    (cases, classes): the higher, the likelier.
    """

    truth: Ints
    predicted: Ints
    scores: Floats
    majority: int
    control_truth: Ints
    control_predicted: Ints
    groups: NDArray[np.generic]


def measure_probe(
    found: Predictions, resamples: int, confidence: float, seed: int
) -> dict[ProbeMeasure, Measured]:
    """Every measure with its interval from resampled documents; one without a value says why."""
    right = found.predicted == found.truth
    control = found.control_predicted == found.control_truth
    shares = {
        ProbeMeasure.ACCURACY: right,
        ProbeMeasure.MAJORITY: found.truth == found.majority,
        ProbeMeasure.CONTROL: control,
        ProbeMeasure.SELECTIVITY: right.astype(float) - control,
    }

    def bootstrapped(columns: Floats) -> Measured:
        sums = group_sums(found.groups, columns)
        value = float(_mean_share(sums.sum(axis=0)))
        drawn = cluster_bootstrap(sums, _mean_share, resamples, confidence, seed)
        return with_interval(value, drawn)

    ones = np.ones(len(right))
    measures = {
        name: bootstrapped(np.column_stack([share, ones])) for name, share in shares.items()
    }
    present = np.unique(found.truth)
    if len(present) < 2:
        reason = "the test split holds one class only"
        none = Measured(note=reason)
        return measures | {ProbeMeasure.BALANCED_ACCURACY: none, ProbeMeasure.AUC: none}
    members = [found.truth == each for each in present]
    recalls = np.column_stack([column for of in members for column in (right & of, of)])
    measures[ProbeMeasure.BALANCED_ACCURACY] = bootstrapped(recalls.astype(float))
    measures[ProbeMeasure.AUC] = _auc(found, resamples, confidence, seed)
    return measures


def _mean_share(sums: Floats) -> Floats:
    """The mean of the shares that pairs of columns (part, whole) give; NaN where a whole is 0."""
    part, whole = sums[..., 0::2], sums[..., 1::2]
    shares = np.divide(part, whole, out=np.full(part.shape, np.nan), where=whole > 0)
    mean: Floats = shares.mean(axis=-1)
    return mean


def _auc(found: Predictions, resamples: int, confidence: float, seed: int) -> Measured:
    """The AUC is no sum over documents: it is one over pairs of them, and so is a resample's."""
    names, member = np.unique(found.groups, return_inverse=True)
    known = [each for each in np.unique(found.truth) if each >= 0]
    if not known:
        return Measured(note="the test split holds no class that was trained on")
    # Of two classes, one against the other says it all.
    asked = known[-1:] if found.scores.shape[1] == 2 else known
    pairs = [
        _ordered_pairs(found.scores[:, each], found.truth == each, member, len(names))
        for each in asked
    ]
    counts = [(np.bincount(member, found.truth == each, len(names))) for each in asked]
    others = [np.bincount(member, found.truth != each, len(names)) for each in asked]

    def areas(weights: Floats) -> Floats:
        each = []
        for won, positive, negative in zip(pairs, counts, others, strict=True):
            total = (weights @ positive) * (weights @ negative)
            area = ((weights @ won) * weights).sum(axis=-1)
            each.append(np.divide(area, total, out=np.full(area.shape, np.nan), where=total > 0))
        mean: Floats = np.mean(each, axis=0)
        return mean

    value = float(areas(np.ones((1, len(names))))[0])
    if len(names) < 2:
        return with_interval(value, percentile_interval(np.empty(0), confidence, len(names)))
    drawn = np.concatenate([areas(w) for w in resampled_weights(len(names), resamples, seed)])
    return with_interval(value, percentile_interval(drawn, confidence, len(names)))


def _ordered_pairs(
    scores: Floats, positive: NDArray[np.bool_], member: NDArray[np.intp], groups: int
) -> Floats:
    """How many pairs the scores put in order, by document of the positive and of the negative case,
    shape (groups, groups); ties count half."""
    won = np.zeros((groups, groups))
    above, below = scores[positive], scores[~positive]
    of_above, of_below = member[positive], member[~positive]
    columns = np.zeros((len(below), groups))
    columns[np.arange(len(below)), of_below] = 1
    step = max(1, _CELLS // max(len(below), 1))
    for start in range(0, len(above), step):
        block = above[start : start + step, None]
        ordered = (block > below) + 0.5 * (block == below)
        np.add.at(won, of_above[start : start + step], ordered @ columns)
    return won
