"""What became of each labelled case, joined once for every measure that looks at single cases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import Decision, Label, PairedScore, Route, RoutingCase
from prerouter.measures.checks import probabilities
from prerouter.measures.join import check_decisions, common_scale, to_arrays
from prerouter.measures.statistics import Floats

Indices = npt.NDArray[np.intp]


@dataclass(frozen=True)
class Outcomes:
    """The n labelled cases in the order of the cases. Routes are indices into `routes`: ROUTES
    first, then what else was answered.

    `groups` numbers the documents from 0 without a gap; `qa` is (n, routes). `chosen` and `decided`
    hold every router and the oracle: an undecided case stands in `chosen` with the fallback route.
    """

    routes: tuple[Route, ...]
    case_ids: tuple[str, ...]
    groups: Indices
    qa: Floats
    ideal: Indices
    chosen: dict[str, Indices]
    decided: dict[str, npt.NDArray[np.bool_]]

    @property
    def n(self) -> int:
        return len(self.case_ids)

    @property
    def n_groups(self) -> int:
        return len(np.unique(self.groups))

    def qa_of(self, router: str) -> Floats:
        """QA score of the chosen route, shape (n,), in units of the scale."""
        return np.asarray(self.qa[np.arange(self.n), self.chosen[router]], dtype=np.float64)

    def right(self, router: str) -> npt.NDArray[np.bool_]:
        """Whether the router chose the ideal route, shape (n,); an undecided case is wrong."""
        return np.asarray((self.chosen[router] == self.ideal) & self.decided[router])


def join_outcomes(
    decisions_by_router: Mapping[str, Sequence[Decision]],
    labels: Sequence[Label],
    scores: Sequence[PairedScore],
    cases: Sequence[RoutingCase],
    *,
    fallback: Route = Route.RAG,
) -> Outcomes:
    """The same join as the routing table's, with its errors; StageError where no case has a label.

    Every router decides exactly the `cases`: routers over different cases are refused.
    """
    check_decisions(decisions_by_router, cases)
    common_scale(scores, cases)
    arrays = to_arrays(decisions_by_router, labels, scores, cases, fallback)
    labelled = {label.case_id for label in labels}
    case_ids = tuple(case.case_id for case in cases if case.case_id in labelled)
    if not case_ids:
        raise StageError("evaluate", f"none of {len(cases)} cases has a label", "at least one")
    return Outcomes(
        routes=arrays.routes,
        case_ids=case_ids,
        groups=arrays.groups,
        qa=arrays.qa,
        ideal=arrays.labels,
        chosen=arrays.chosen,
        decided=arrays.decided,
    )


def lc_probabilities(router: str, decisions: Sequence[Decision], case_ids: Sequence[str]) -> Floats:
    """p_lc of these cases in their order, in 0..1. StageError where a case has none."""
    given = {decision.case_id: decision.p_lc for decision in decisions}
    values = [given.get(case_id) for case_id in case_ids]
    absent = [case_id for case_id, p in zip(case_ids, values, strict=True) if p is None]
    if absent:
        raise StageError(
            f"router {router}",
            f"gives no p_lc for {len(absent)} of {len(case_ids)} cases, {absent[0]} among them",
            "a p_lc for each case",
            "use a router that gives one, or leave these cases out and say so",
        )
    return probabilities(f"router {router}", values)
