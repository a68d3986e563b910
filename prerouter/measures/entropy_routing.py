"""EDAR's threshold τ on entropy: what each τ does on a development set, and which one to take.

EDAR (Olufadewa et al., 2026, arXiv 2609.35831): a query whose RAG answer begins with a mean entropy
above τ is answered anew by LC; a query of global synthesis goes straight to LC. τ is swept from 0.5
to 2.5 bits by 0.05. How ties and dead ends of a choice are settled is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Answer, Record
from prerouter.measures.checks import MIN_CASES, binary, caution, finite
from prerouter.measures.statistics import Floats
from prerouter.recipe.checks import TauRule

PLACE = "EDAR threshold"

FIRST_TOKENS = 30
"""m, the tokens whose entropies are averaged."""

TAUS: tuple[float, ...] = tuple((50 + 5 * step) / 100 for step in range(41))
"""0.5 to 2.5 bits by 0.05."""

NEVER = 64.0
"""A τ that escalates nothing: no vocabulary has 2**64 tokens, so no mean entropy is above it."""

_ROUNDING = 1e-9


class TauPoint(Record):
    """What one τ (bits) does to all n cases: shares, mean QA, and mean cost in the unit of the
    costs. `lc_rate` counts what is escalated and what goes straight to LC."""

    tau: float
    escalation_rate: float
    lc_rate: float
    qa: float
    cost: float


class ChosenTau(Record):
    """A τ and what it does on the n cases it was chosen on.

    `met` is False where no τ reaches the asked `qa_at_least`; `note` says so, and tells of a choice
    that escalates nothing. `caution` warns of few cases.
    """

    rule: TauRule
    qa_at_least: float | None = None
    met: bool = True
    point: TauPoint
    n: int
    note: str | None = None
    caution: str | None = None

    @property
    def tau(self) -> float:
        return self.point.tau


class TauSweep(Record):
    """Points from the highest τ to the lowest, so from few escalations to many; the first is NEVER,
    which stands for no escalation at all. `qa_always_lc` is the mean QA of LC on all n cases."""

    points: tuple[TauPoint, ...]
    qa_always_lc: float
    n: int


def mean_entropy(entropies: Sequence[float], tokens: int = FIRST_TOKENS) -> float | None:
    """Mean over the first `tokens` entropies (bits), or over those there are; None for none.

    EDAR's H. StageError for one that is not finite.
    """
    if tokens < 1:
        raise StageError(PLACE, f"the mean of {tokens} tokens", "one token or more")
    if not len(entropies):
        return None
    return float(finite(PLACE, "the entropies", entropies[:tokens]).mean())


def answer_entropy(answer: Answer) -> float | None:
    """`mean_entropy` of all that was measured of an answer: `answer.entropy_tokens` of them."""
    return mean_entropy(answer.entropies, len(answer.entropies) or 1)


def sweep_tau(
    entropy: npt.ArrayLike | Sequence[float | None],
    qa_rag: npt.ArrayLike,
    qa_lc: npt.ArrayLike,
    cost_rag: npt.ArrayLike,
    cost_lc: npt.ArrayLike,
    straight_to_lc: npt.ArrayLike | None = None,
    taus: Sequence[float] = TAUS,
) -> TauSweep:
    """What each τ does on n cases whose two answers are scored and priced.

    All are (n,): mean entropy in bits, QA on one scale, costs from 0 in one unit, and 1 for a case
    that goes straight to LC. Such a case pays LC alone and needs no entropy (None or NaN); any
    other pays RAG, and LC too where its entropy is above τ. StageError for anything missing.
    """
    rag = finite(PLACE, "QA of RAG", qa_rag)
    n = rag.size
    lc = finite(PLACE, "QA of LC", qa_lc, n)
    pay_rag = finite(PLACE, "cost of RAG", cost_rag, n)
    pay_lc = finite(PLACE, "cost of LC", cost_lc, n)
    if (pay_rag < 0).any() or (pay_lc < 0).any():
        raise StageError(PLACE, "a cost is negative", "numbers from 0")
    given = np.zeros(n) if straight_to_lc is None else straight_to_lc
    straight = binary(PLACE, "straight to LC", given, n)
    bits = _entropies(entropy, straight)
    swept = np.unique(finite(PLACE, "the thresholds", taus))[::-1]
    if (swept >= NEVER).any():
        raise StageError(PLACE, f"a threshold of {swept[0]:g} bits", f"less than {NEVER:g}")
    points = []
    for tau in (NEVER, *swept.tolist()):
        escalated = bits > tau
        by_lc = escalated | straight
        points.append(
            TauPoint(
                tau=tau,
                escalation_rate=float(escalated.mean()),
                lc_rate=float(by_lc.mean()),
                qa=float(np.where(by_lc, lc, rag).mean()),
                cost=float((pay_rag * ~straight + pay_lc * by_lc).mean()),
            )
        )
    return TauSweep(points=tuple(points), qa_always_lc=float(lc.mean()), n=n)


def choose_tau(
    sweep: TauSweep, rule: TauRule, min_share: float, *, min_cases: int = MIN_CASES
) -> ChosenTau:
    """τ by the recipe's rule. The least cost is that of a QA of `min_share` of Always-LC's."""
    if rule is TauRule.ELBOW:
        return by_elbow(sweep, min_cases=min_cases)
    return by_least_cost(sweep, min_share * sweep.qa_always_lc, min_cases=min_cases)


def by_least_cost(sweep: TauSweep, qa_at_least: float, *, min_cases: int = MIN_CASES) -> ChosenTau:
    """The cheapest τ of those whose mean QA is at least `qa_at_least` (EDAR's A_min).

    Of equal costs the one with the better QA, then the highest. Where none reaches it, the best QA
    that is reached, at its least cost, with `met` False and the note in words.
    """
    if not np.isfinite(qa_at_least):
        raise StageError(PLACE, f"a mean QA of at least {qa_at_least:g}", "a finite number")
    qa, cost = _column(sweep, "qa"), _column(sweep, "cost")
    enough = qa >= qa_at_least - _ROUNDING
    note = None
    met = bool(enough.any())
    if not met:
        enough = qa >= qa.max() - _ROUNDING
        note = (
            f"no threshold reaches a mean QA of {qa_at_least:g} on these {sweep.n} cases: the best "
            f"is {qa.max():.4g}, taken here at its least cost"
        )
    affordable = enough & (cost <= cost[enough].min() * (1 + _ROUNDING))
    best = int(np.argmax(np.where(affordable, qa, -np.inf)))
    return ChosenTau(
        rule=TauRule.LEAST_COST,
        qa_at_least=qa_at_least,
        met=met,
        point=sweep.points[best],
        n=sweep.n,
        note=note or _idle(sweep.points[best]),
        caution=caution(sweep.n, min_cases),
    )


def by_elbow(sweep: TauSweep, *, min_cases: int = MIN_CASES) -> ChosenTau:
    """The τ past which accuracy grows more slowly than cost.

    From no escalation on, both are measured in shares of what the sweep spans: a(τ) is the QA
    gained over no escalation against the largest such gain, c(τ) the cost added against the largest
    addition. The elbow is where a - c is largest, the highest τ of equals: on the way to any lower
    τ the marginal accuracy is at most the marginal cost, and on the way there it was above. On a
    concave curve that is the first step where it falls below; on a curve with noise, single steps
    decide nothing. Where no τ gains, or no gain outruns its cost, nothing is escalated, and the
    note says which.
    """
    qa, cost = _column(sweep, "qa"), _column(sweep, "cost")
    gained, added = qa - qa[0], cost - cost[0]
    note, best = None, 0
    if gained.max() <= _ROUNDING:
        note = f"no threshold gains accuracy over no escalation on these {sweep.n} cases"
    else:
        shares = added / added.max() if added.max() > 0 else np.zeros_like(added)
        lead = np.round(gained / gained.max() - shares, 9)
        best = int(np.argmax(lead))
        if best == 0:
            note = "no threshold gains a larger share of the accuracy than it takes of the cost"
    if note is not None:
        note = f"n/a: {note}; nothing is escalated"
    return ChosenTau(
        rule=TauRule.ELBOW,
        point=sweep.points[best],
        n=sweep.n,
        note=note or _idle(sweep.points[best]),
        caution=caution(sweep.n, min_cases),
    )


def _entropies(
    values: npt.ArrayLike | Sequence[float | None], straight: npt.NDArray[np.bool_]
) -> Floats:
    """Entropies, -inf for what goes straight to LC: it is never escalated."""
    try:
        bits = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StageError(PLACE, f"the entropies: {error}", "numbers of bits") from None
    if bits.shape == straight.shape:
        bits[straight] = 0.0
    finite(PLACE, "the entropies", bits, straight.size)
    if (bits < 0).any():
        raise StageError(PLACE, f"an entropy of {bits.min():g} bits", "numbers from 0")
    return np.where(straight, -np.inf, bits)


def _column(sweep: TauSweep, name: Literal["qa", "cost"]) -> Floats:
    return np.array([getattr(point, name) for point in sweep.points], dtype=np.float64)


def _idle(point: TauPoint) -> str | None:
    return None if point.escalation_rate else "nothing is escalated at this threshold"
