"""How far p_lc can be taken at its word, and one number that sets it right.

Temperature scaling and the expected calibration error as in Guo et al., 2017 (arXiv 1706.04599);
the Brier score is the mean squared error of p_lc (Brier, 1950).
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Record
from prerouter.measures.checks import MIN_CASES, binary, caution, finite, probabilities
from prerouter.measures.statistics import Floats

PLACE = "calibration"

# A p_lc of exactly 0 or 1 has no finite log-odds: it is taken as certain to one part in 10^15, so
# that one wrong certainty costs 35 nats and not the whole fit. The fit counts these.
CERTAIN_LOG_ODDS = 35.0

TEMPERATURE_BOUNDS = (0.05, 20.0)


class Temperature(Record):
    """The temperature with the least loss: log-odds are divided by it; above 1 it softens.

    The losses are mean negative log-likelihoods in nats over the `n` cases of the fit, `n_lc` of
    which have LC as their ideal route. `certain` of them had a p_lc of (all but) 0 or 1. `note`
    tells of these and of a temperature at its bound.
    """

    temperature: float
    n: int
    n_lc: int
    certain: int
    loss_before: float
    loss_after: float
    note: str | None = None


class ReliabilityBin(Record):
    """The n cases with a p_lc in one bin: their mean p_lc beside their share of LC labels.

    A bin holds what lies above `low` and up to `high`; the first one also what lies at `low`.
    """

    low: float
    high: float
    n: int
    mean_p_lc: float
    lc_share: float


class Calibration(Record):
    """Brier score and calibration errors, all in 0..1 and better when lower, with their bins.

    Empty bins are left out. `caution` is the warning over few cases.
    """

    n: int
    n_lc: int
    brier: float
    ece_equal_width: float
    ece_equal_mass: float
    equal_width: tuple[ReliabilityBin, ...]
    equal_mass: tuple[ReliabilityBin, ...]
    caution: str | None = None


def from_odds(odds: float) -> float:
    """The probability whose log-odds are `odds`: 1 / (1 + e^-odds). StageError for no number."""
    if math.isnan(odds):
        raise StageError(PLACE, "log-odds that are no number", "a number, or an infinity")
    # Past this, e to the power overflows; the probability has long been 0.
    return 1 / (1 + math.exp(-odds)) if odds > -700 else 0.0


def log_odds(p_lc: npt.ArrayLike) -> Floats:
    """ln(p / (1 - p)) of each p_lc, held within -35..35 where p is all but 0 or 1."""
    from scipy.special import logit

    p = probabilities(PLACE, p_lc)
    return np.clip(logit(p), -CERTAIN_LOG_ODDS, CERTAIN_LOG_ODDS)


def fit_temperature(
    log_odds_lc: npt.ArrayLike,
    is_lc: npt.ArrayLike,
    *,
    bounds: tuple[float, float] = TEMPERATURE_BOUNDS,
    min_cases: int = MIN_CASES,
) -> Temperature:
    """The temperature within `bounds` that minimises the negative log-likelihood of the labels.

    `log_odds_lc`, shape (n,), are ln(p_lc / (1 - p_lc)) of validation cases (`log_odds` makes them
    from p_lc); `is_lc` tells whether LC is the ideal route. StageError for fewer than `min_cases`,
    for labels of one route only, and for anything missing or not finite.
    """
    from scipy.optimize import minimize_scalar

    z = finite(PLACE, "log-odds", log_odds_lc)
    y = binary(PLACE, "the labels", is_lc, z.size)
    if z.size < min_cases:
        raise StageError(
            PLACE,
            f"a temperature from {z.size} cases means little",
            f"{min_cases} labelled validation cases or more",
            "bring more cases, or leave the router uncalibrated",
        )
    n_lc = int(y.sum())
    if n_lc in (0, z.size):
        raise StageError(
            PLACE,
            f"all {z.size} labels are {'LC' if n_lc else 'RAG'}",
            "labels of both routes",
            "leave the router uncalibrated",
        )
    low, high = bounds
    if not 0 < low < high < np.inf:
        raise StageError(PLACE, f"the bounds {low:g} to {high:g}", "0 < low < high")
    against = np.where(y, -z, z)

    def loss(log_temperature: float) -> float:
        return float(np.logaddexp(0, against * np.exp(-log_temperature)).mean())

    # The loss is convex in 1 / T, so over ln T it has one valley and a bounded search finds it.
    found = minimize_scalar(
        loss, bounds=(np.log(low), np.log(high)), method="bounded", options={"xatol": 1e-9}
    )
    # The search comes near a bound and never onto it; and where every temperature does as well as
    # another (a p_lc of 1/2 for all), nothing is changed.
    candidates = (float(np.clip(1.0, low, high)), low, float(np.exp(found.x)), high)
    temperature = min(candidates, key=lambda t: loss(float(np.log(t))))
    certain = int((np.abs(z) >= CERTAIN_LOG_ODDS).sum())
    return Temperature(
        temperature=temperature,
        n=z.size,
        n_lc=n_lc,
        certain=certain,
        loss_before=loss(0.0),
        loss_after=loss(float(np.log(temperature))),
        note=_fit_note(temperature, low, high, certain),
    )


def _fit_note(temperature: float, low: float, high: float, certain: int) -> str | None:
    notes = []
    if temperature == low:
        notes.append(
            f"at its bound {low:g} or past it: p_lc is far too timid, or tells the routes apart "
            "without an error"
        )
    if temperature == high:
        notes.append(
            f"at its bound {high:g} or past it: p_lc is far too bold, or tells nothing of the "
            "label, or the opposite"
        )
    if certain:
        notes.append(
            f"{certain} cases with a p_lc of 0 or 1 steer the fit, as log-odds of "
            f"{CERTAIN_LOG_ODDS:g} either way"
        )
    return "; ".join(notes) or None


def apply_temperature(p_lc: npt.ArrayLike, temperature: float) -> Floats:
    """p_lc with its log-odds divided by `temperature` (> 0): the order stays, and so does 1/2.

    A p_lc of all but 0 or 1 is held as `log_odds` holds it, so that certainty is softened as the
    fit took it; a temperature of 1 changes nothing.
    """
    from scipy.special import expit

    if not 0 < temperature < np.inf:
        raise StageError(PLACE, f"a temperature of {temperature:g}", "a positive number")
    if temperature == 1:
        return probabilities(PLACE, p_lc)
    return np.asarray(expit(log_odds(p_lc) / temperature), dtype=np.float64)


def brier_score(p_lc: npt.ArrayLike, is_lc: npt.ArrayLike) -> float:
    """Mean of (p_lc - label)², label 1 for LC: 0 is perfect, 0.25 is what a constant 1/2 gets."""
    p = probabilities(PLACE, p_lc)
    y = binary(PLACE, "the labels", is_lc, p.size)
    return float(np.mean((p - y) ** 2))


def reliability_bins(
    p_lc: npt.ArrayLike, is_lc: npt.ArrayLike, *, bins: int = 10, equal_mass: bool = False
) -> tuple[ReliabilityBin, ...]:
    """The points of a reliability diagram, from the lowest p_lc to the highest.

    Bins divide 0..1 evenly or, with `equal_mass`, hold about equally many cases: equal p_lc always
    share a bin, so that ties make fewer and fuller ones.
    """
    p = probabilities(PLACE, p_lc)
    y = binary(PLACE, "the labels", is_lc, p.size)
    if bins < 1:
        raise StageError(PLACE, f"{bins} bins", "one or more")
    shares = np.arange(1, bins + 1) / bins
    # Upper edges that are values of the data: an edge between them could part equal values.
    uppers = np.unique(np.quantile(p, shares, method="inverted_cdf")) if equal_mass else shares
    lowers = np.concatenate(([p.min() if equal_mass else 0.0], uppers[:-1]))
    place = np.searchsorted(uppers, p, side="left")
    made = []
    for number in np.unique(place):
        inside = place == number
        made.append(
            ReliabilityBin(
                low=float(lowers[number]),
                high=float(uppers[number]),
                n=int(inside.sum()),
                mean_p_lc=float(p[inside].mean()),
                lc_share=float(y[inside].mean()),
            )
        )
    return tuple(made)


def expected_calibration_error(bins: tuple[ReliabilityBin, ...]) -> float:
    """Mean distance of mean p_lc and LC share over the bins, weighted by their cases."""
    total = sum(bin_.n for bin_ in bins)
    return sum(bin_.n * abs(bin_.mean_p_lc - bin_.lc_share) for bin_ in bins) / total


def calibration(
    p_lc: npt.ArrayLike, is_lc: npt.ArrayLike, *, bins: int = 10, min_cases: int = MIN_CASES
) -> Calibration:
    """All of it for one router: shape (n,) each; StageError for anything missing or out of range.

    The calibration error is biased upwards over few cases, the more so with many bins.
    """
    width = reliability_bins(p_lc, is_lc, bins=bins)
    mass = reliability_bins(p_lc, is_lc, bins=bins, equal_mass=True)
    y = np.asarray(is_lc, dtype=np.bool_)
    return Calibration(
        n=y.size,
        n_lc=int(y.sum()),
        brier=brier_score(p_lc, is_lc),
        ece_equal_width=expected_calibration_error(width),
        ece_equal_mass=expected_calibration_error(mass),
        equal_width=width,
        equal_mass=mass,
        caution=caution(y.size, min_cases),
    )
