"""Arms without a score, counted by route and reason: missing is missing, and never lost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from prerouter.core.records import ROUTES, MissingReason, PairedScore, Route, by_cost


def missing_arms(pair: PairedScore | None) -> Iterator[tuple[Route, MissingReason]]:
    """The arms of a case that have no score, and why; all of ROUTES where nobody scored it."""
    for route in by_cost(pair.arms) if pair else ROUTES:
        reason = pair.arms[route].missing if pair else MissingReason.NOT_GIVEN
        if reason:
            yield route, reason


class MissingArms:
    """Counts over many cases. A case that lacks both arms counts once for each."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[Route, MissingReason]] = Counter()

    def add(self, pair: PairedScore | None) -> None:
        for arm in missing_arms(pair):
            self._counts[arm] += 1

    def total(self) -> int:
        return self._counts.total()

    def by_route(self) -> dict[Route, dict[MissingReason, int]]:
        """Route to reason to count, routes and reasons in their declared order, no zero."""
        found: dict[Route, dict[MissingReason, int]] = {}
        for route in Route:
            for reason in MissingReason:
                if count := self._counts[route, reason]:
                    found.setdefault(route, {})[reason] = count
        return found


def by_model(counts: Mapping[str, MissingArms]) -> dict[str, dict[Route, dict[MissingReason, int]]]:
    """Answer model to route to reason to count, of the models that lack any."""
    return {model: counts[model].by_route() for model in sorted(counts) if counts[model].total()}
