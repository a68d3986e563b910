"""How good decisions to escalate are, for a router that tries RAG first and may fall back to LC.

Self-Route (Li et al., 2024, arXiv 2407.16833) is watched by its fallback rate and by what it
triggers wrongly; EDAR (Olufadewa et al., 2026, arXiv 2609.35831) by routing precision and token
efficiency. A case that goes straight to LC is no decision to escalate: leave it out. Rates are
shares with a bootstrap interval over documents; arrays are (n,), `groups` name the documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Record
from prerouter.measures.checks import MIN_CASES, binary, caution, finite
from prerouter.measures.statistics import (
    Floats,
    Measured,
    cluster_bootstrap,
    group_sums,
    with_interval,
)

PLACE = "escalation"

Groups = npt.NDArray[np.generic] | Sequence[str]

_ROUNDING = 1e-9


class TriggerRates(Record):
    """`over`: escalated though the passages answer the question, which costs. `under`: kept though
    they don't, which is a silent wrong answer. Shares of the n cases of their kind."""

    n_answerable: int
    n_unanswerable: int
    over: Measured
    under: Measured
    caution: str | None = None


class FallbackRow(Record):
    """Share of the n cases of one value of a key (a query type, say) that were escalated; None
    stands for cases whose value isn't known."""

    value: str | None
    n: int
    rate: Measured
    caution: str | None = None


def rag_was_right(
    qa_rag: npt.ArrayLike, qa_lc: npt.ArrayLike, high: float
) -> npt.NDArray[np.bool_]:
    """The oracle of an escalation: a RAG answer with full marks (`high`, the top of the scale), or
    one at least as good as the LC answer, is right to keep. An escalation could only cost. EDAR's
    own asks whether the RAG answer is right; that LC may be no better is ours."""
    rag = finite(PLACE, "QA of RAG", qa_rag)
    lc = finite(PLACE, "QA of LC", qa_lc, rag.size)
    if max(rag.max(), lc.max()) > high + _ROUNDING:
        raise StageError(PLACE, f"a QA score above {high:g}", "scores of one scale, and its top")
    return (rag >= high - _ROUNDING) | (rag >= lc - _ROUNDING)


def routing_precision(
    escalated: npt.ArrayLike,
    rag_right: npt.ArrayLike,
    groups: Groups,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """P_route: share of decisions, to escalate or to keep, that agree with the oracle.

    One agrees that escalates an answer which is not right, or keeps one which is.
    """
    members = _members(groups)
    up = binary(PLACE, "escalated", escalated, members.size)
    right = binary(PLACE, "the oracle", rag_right, members.size)
    return _share(up != right, np.ones_like(up), members, resamples, confidence, seed)


def trigger_rates(
    escalated: npt.ArrayLike,
    answerable: npt.ArrayLike,
    groups: Groups,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> TriggerRates:
    """Decisions against labelled triples: `answerable` is whether the retrieved passages answer the
    question."""
    members = _members(groups)
    up = binary(PLACE, "escalated", escalated, members.size)
    can = binary(PLACE, "answerable", answerable, members.size)
    options = (members, resamples, confidence, seed)
    return TriggerRates(
        n_answerable=int(can.sum()),
        n_unanswerable=int((~can).sum()),
        over=_share(up & can, can, *options),
        under=_share(~up & ~can, ~can, *options),
        caution=caution(min(int(can.sum()), int((~can).sum())), min_cases, "cases of one kind"),
    )


def fallback_rates(
    escalated: npt.ArrayLike,
    values: Sequence[str | None],
    groups: Groups,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
    min_cases: int = MIN_CASES,
) -> list[FallbackRow]:
    """The escalation rate for each value of a key, in the order of their names, the unknown last.

    StageError unless there is one value, or None, for each case.
    """
    members = _members(groups)
    up = binary(PLACE, "escalated", escalated, members.size)
    if len(values) != members.size:
        raise StageError(PLACE, f"{len(values)} values of the key for {members.size} cases")
    rows = []
    for value in sorted(set(values), key=lambda value: (value is None, value or "")):
        inside = np.array([other == value for other in values])
        n = int(inside.sum())
        rate = _share(up & inside, inside, members, resamples, confidence, seed)
        rows.append(FallbackRow(value=value, n=n, rate=rate, caution=caution(n, min_cases)))
    return rows


def token_efficiency(
    qa: npt.ArrayLike,
    qa_rag: npt.ArrayLike,
    tokens: npt.ArrayLike,
    tokens_rag: npt.ArrayLike,
    groups: Groups,
    *,
    resamples: int = 1000,
    confidence: float = 0.95,
    seed: int = 0,
) -> Measured:
    """TER: QA gained over always RAG for each token that is read more than by always RAG.

    QA of the routed and of the RAG answers on one scale, and tokens from 0 of each case, all that
    its answer took. n/a in words where no token more is read.
    """
    members = _members(groups)
    names = ("QA", "QA of RAG", "tokens", "tokens of RAG")
    given = (qa, qa_rag, tokens, tokens_rag)
    columns = [
        finite(PLACE, name, values, members.size) for name, values in zip(names, given, strict=True)
    ]
    sums = group_sums(members, np.column_stack((columns[0] - columns[1], columns[2] - columns[3])))
    value = float(_per_token(sums.sum(axis=0)))
    if np.isnan(value):
        return Measured(note="n/a: no token more is read than by always RAG")
    return with_interval(value, cluster_bootstrap(sums, _per_token, resamples, confidence, seed))


def _members(groups: Groups) -> npt.NDArray[np.generic]:
    members = np.asarray(groups)
    if members.ndim != 1 or not members.size:
        raise StageError(PLACE, "no cases", "the document of each of one or more cases")
    return members


def _share(
    hits: npt.NDArray[np.bool_],
    base: npt.NDArray[np.bool_],
    members: npt.NDArray[np.generic],
    resamples: int,
    confidence: float,
    seed: int,
) -> Measured:
    """Share of `base` that are `hits`, which lie in it."""
    if not base.any():
        return Measured(note="n/a: no case of the kind")
    sums = group_sums(members[base], np.column_stack((hits[base], base[base])).astype(np.float64))
    found = cluster_bootstrap(sums, lambda s: s[..., 0] / s[..., 1], resamples, confidence, seed)
    return with_interval(float(hits[base].mean()), found)


def _per_token(sums: Floats) -> Floats:
    gained, more = np.moveaxis(sums, -1, 0)
    ratio = np.full(np.shape(gained), np.nan)
    np.divide(gained, more, out=ratio, where=more > 0)
    return ratio
