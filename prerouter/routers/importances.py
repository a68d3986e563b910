"""What a classical router's decisions rest on: permutation importances (Breiman, 2001)."""

from __future__ import annotations

from collections.abc import Sequence

from prerouter.core.records import Label, Route, RoutingCase
from prerouter.measures.importances import Importance, Importances
from prerouter.routers.classical import ClassicalRouter
from prerouter.routers.pipelines import columns, matrix


def permutation_importances(
    router: ClassicalRouter,
    pairs: Sequence[tuple[RoutingCase, Label]],
    seed: int,
    repeats: int = 5,
    min_cases: int = 30,
) -> Importances:
    """Importances over labelled cases that the router wasn't fitted on. The AUC needs no threshold,
    so that a router that says RAG of all of them still shows what its p_lc rests on."""
    import numpy as np
    from sklearn.inspection import permutation_importance
    from sklearn.metrics import roc_auc_score

    names = columns(router.kind)
    is_lc = np.array([label.route is Route.LC for _, label in pairs])
    empty = Importances(router=router.name, cases=len(pairs), repeats=repeats)
    if len(pairs) < min_cases:
        return empty.model_copy(update={"note": f"fewer than {min_cases} labelled cases"})
    if is_lc.all() or not is_lc.any():
        return empty.model_copy(update={"note": "the labels are of one route only"})
    rows = matrix([case for case, _ in pairs], router.kind, router.metadata)
    if router.kind == "nearest_neighbours":
        # Each question is read once: places are dealt out anew, and the vectors go with them.
        vectors = router.inputs(rows)
        rows = np.arange(len(pairs))[:, None]

    def auc(_: object, shuffled: np.ndarray, truth: np.ndarray) -> float:
        inputs = vectors[shuffled[:, 0]] if router.kind == "nearest_neighbours" else shuffled
        return float(roc_auc_score(truth, router.p_lc(inputs)))

    found = permutation_importance(
        router._fitted(), rows, is_lc, scoring=auc, n_repeats=repeats, random_state=seed
    )
    order = sorted(range(len(names)), key=lambda index: (-found.importances_mean[index], index))
    return Importances(
        router=router.name,
        cases=len(pairs),
        repeats=repeats,
        auc=auc(None, rows, is_lc),
        features=tuple(
            Importance(
                feature=names[index],
                mean=float(found.importances_mean[index]),
                sd=float(found.importances_std[index]),
            )
            for index in order
        ),
    )
