"""Permutation importances (Breiman, 2001) as records: what a classical router's p_lc rests on."""

from __future__ import annotations

from prerouter.core.records import Record

IMPORTANCES = "importances.json"
"""The file beside a router's own that holds them."""


class Importance(Record):
    """How far the AUC falls when one feature's values are shuffled over the cases: its mean
    and standard deviation over the repeats. Near 0 or below, the router doesn't need it, or finds
    the same in another feature."""

    feature: str
    mean: float
    sd: float


class Importances(Record):
    """Importances of a router's original features, the largest first; `note` says why there are
    none. `auc` is the area under the ROC curve of p_lc against the ideal label, undisturbed."""

    router: str
    cases: int
    repeats: int
    auc: float | None = None
    features: tuple[Importance, ...] = ()
    note: str | None = None
