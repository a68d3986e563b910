"""How far two raters of the same answers agree: a judge with itself, a judge with people.

All measures are functions of one table that counts pairs of scores, so that a bootstrap over
documents is a resampling of tables. Cohen's kappa (1960) counts equal scores against chance, the
quadratic-weighted one (Cohen, 1968) squared differences. Which measures, and the intervals, are
ours: Chen et al., 2026, arXiv 2605.10235, give none for their judge.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Record
from prerouter.measures.checks import finite
from prerouter.measures.statistics import (
    Floats,
    Measured,
    group_sums,
    percentile_interval,
    resampled_sums,
    with_interval,
)

PLACE = "agreement"
MOST_SCORES = 64
"""Distinct scores that a table is made for; a 0-4 rubric in quarters has 17."""

_ROUNDING = 1e-9


class RaterAgreement(Record):
    """Agreement over `n` answers of `n_groups` documents; every measure with its interval.

    `exact` and `within_one` are shares, the latter of scores at most 1 apart; the kappas and
    `spearman` (mid-ranks for ties) lie in -1..1 and are n/a where all scores are the same.
    """

    n: int
    n_groups: int
    exact: Measured
    within_one: Measured
    mean_absolute_difference: Measured
    kappa: Measured
    quadratic_kappa: Measured
    spearman: Measured


def repeat_agreement(
    grades: Sequence[Sequence[int]],
    groups: Sequence[str],
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> RaterAgreement | None:
    """Of the judgements of one answer, how far do two agree? None where no answer has two.

    `grades` holds each answer's readable grades, `groups` its document. Every answer weighs the
    same: its ordered pairs of repeats share a weight of 1. Repeats change places freely, so both
    orders count and both raters of the kappas have the same mean.
    """
    first, second, weights, members = [], [], [], []
    for values, group in zip(grades, groups, strict=True):
        pairs = [(a, b) for i, a in enumerate(values) for j, b in enumerate(values) if i != j]
        for a, b in pairs:
            first.append(float(a))
            second.append(float(b))
            weights.append(1 / len(pairs))
            members.append(group)
    if not weights:
        return None
    return _agreement(
        np.array(first), np.array(second), np.array(weights), members, resamples, confidence, seed
    )


def rater_agreement(
    one: npt.ArrayLike,
    other: npt.ArrayLike,
    groups: Sequence[str],
    *,
    resamples: int,
    confidence: float,
    seed: int,
) -> RaterAgreement:
    """Agreement of two raters' scores of the same answers, shape (n,) each, on one scale.

    `groups` names the document of each. Two scores are equal only where their numbers are: a
    median of 2.5 is neither 2 nor 3. Raises StageError for no scores, and for scores that are not
    finite or take too many values.
    """
    first = finite(PLACE, "the first rater's scores", one)
    second = finite(PLACE, "the second rater's scores", other, first.size)
    return _agreement(first, second, np.ones(first.size), list(groups), resamples, confidence, seed)


def _agreement(
    first: Floats,
    second: Floats,
    weights: Floats,
    groups: Sequence[str],
    resamples: int,
    confidence: float,
    seed: int,
) -> RaterAgreement:
    values, places = np.unique(np.concatenate([first, second]), return_inverse=True)
    if values.size > MOST_SCORES:
        raise StageError(
            PLACE, f"the scores take {values.size} different values", f"{MOST_SCORES} at most"
        )
    cell = places[: first.size] * values.size + places[first.size :]
    cells = np.zeros((first.size, values.size**2))
    cells[np.arange(first.size), cell] = weights
    sums = group_sums(np.asarray(groups), cells)
    shape = (values.size, values.size)
    whole = sums.sum(axis=0).reshape(shape)
    drawn = resampled_sums(sums, resamples, seed).reshape(-1, *shape) if len(sums) > 1 else None

    def measured(statistic: Callable[[Floats, Floats], Floats], none: str) -> Measured:
        value = float(statistic(whole, values))
        if not np.isfinite(value):
            return Measured(note=none)
        resampled = np.empty(0) if drawn is None else statistic(drawn, values)
        return with_interval(value, percentile_interval(resampled, confidence, len(sums)))

    same = "n/a: all scores are the same"
    return RaterAgreement(
        n=round(float(whole.sum())),
        n_groups=len(sums),
        exact=measured(_exact, same),
        within_one=measured(_within_one, same),
        mean_absolute_difference=measured(_difference, same),
        kappa=measured(_kappa, same),
        quadratic_kappa=measured(_quadratic_kappa, same),
        spearman=measured(_spearman, "n/a: all scores of one rater are the same"),
    )


def _mean(table: Floats, cost: Floats) -> Floats:
    """Mean of `cost` (K, K) over the pairs that `table` (..., K, K) counts."""
    found: Floats = (table * cost).sum(axis=(-2, -1)) / table.sum(axis=(-2, -1))
    return found


def _exact(table: Floats, values: Floats) -> Floats:
    return _mean(table, np.eye(values.size))


def _within_one(table: Floats, values: Floats) -> Floats:
    return _mean(table, (_apart(values) <= 1 + _ROUNDING).astype(float))


def _difference(table: Floats, values: Floats) -> Floats:
    return _mean(table, _apart(values))


def _kappa(table: Floats, values: Floats) -> Floats:
    return _chance_corrected(table, 1 - np.eye(values.size))


def _quadratic_kappa(table: Floats, values: Floats) -> Floats:
    return _chance_corrected(table, _apart(values) ** 2)


def _apart(values: Floats) -> Floats:
    found: Floats = np.abs(values[:, None] - values[None, :])
    return found


def _chance_corrected(table: Floats, cost: Floats) -> Floats:
    """1 - cost / cost by chance; NaN where chance costs nothing."""
    rows, columns, total = _margins(table)
    chance = rows[..., :, None] * columns[..., None, :] / total[..., None, None]
    expected = _mean(chance, cost)
    observed = _mean(table, cost)
    return np.where(expected > _ROUNDING, 1 - observed / np.maximum(expected, _ROUNDING), np.nan)


def _spearman(table: Floats, values: Floats) -> Floats:
    rows, columns, total = _margins(table)
    middle = total[..., None] / 2
    # The mid-rank of all that share a score, from the middle of all ranks.
    first = np.cumsum(rows, axis=-1) - rows / 2 - middle
    second = np.cumsum(columns, axis=-1) - columns / 2 - middle
    together = (table * first[..., :, None] * second[..., None, :]).sum(axis=(-2, -1))
    spread = (rows * first**2).sum(axis=-1) * (columns * second**2).sum(axis=-1)
    return np.where(spread > _ROUNDING, together / np.sqrt(np.maximum(spread, _ROUNDING)), np.nan)


def _margins(table: Floats) -> tuple[Floats, Floats, Floats]:
    return table.sum(axis=-1), table.sum(axis=-2), table.sum(axis=(-2, -1))
