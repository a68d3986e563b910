"""How many questions every route gets right, one alone, or none: what there is to gain by routing.

Pre-Route's counts of questions that only LC or only RAG answers right (Chen et al., 2026, arXiv
2605.10235). Right is the best score of the scale: all there is to say of multiple choice, and full
marks where answers are graded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from prerouter.core.records import ROUTES, PairedScore, Route, by_cost

_ROUNDING = 1e-9


class RightCounts:
    """Counts over the cases of one answer model. A pair with a missing arm is in none of them."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, ...]] = Counter()
        self._routes: tuple[Route, ...] = ROUTES

    def add(self, pair: PairedScore) -> None:
        best = pair.high - _ROUNDING
        right = []
        self._routes = by_cost({*self._routes, *pair.arms})
        for route in self._routes:
            if route not in pair.arms:
                return
            score = pair.arms[route].score
            if score is None:
                return
            if score >= best:
                right.append(route.value)
        self._counts[tuple(right)] += 1

    def report(self) -> dict[str, int]:
        """`cases`, and of these those that all routes, each set of some, and none get right.

        Every single route is named, even with 0; a set of several only where it is there.
        """
        names = tuple(route.value for route in self._routes)
        single = [(name,) for name in names]
        several = sorted(right for right in self._counts if 1 < len(right) < len(names))
        some = {f"only {' and '.join(right)}": self._counts[right] for right in single + several}
        return {
            "cases": self._counts.total(),
            "all": self._counts[names],
            **some,
            "none": self._counts[()],
        }


def right_by_model(counts: Mapping[str, RightCounts]) -> dict[str, dict[str, int]]:
    """Answer model to its counts, models in the order of their names."""
    return {model: counts[model].report() for model in sorted(counts)}
