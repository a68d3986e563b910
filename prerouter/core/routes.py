"""The ways to answer, and their order."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Route(StrEnum):
    """The ways to answer, declared from cheap to dear: order is the tie-break of every label."""

    RAG = "RAG"
    LONG_RAG = "LONG_RAG"
    LC = "LC"


ROUTES: tuple[Route, ...] = (Route.RAG, Route.LC)
"""The routes that every case has: what a learned router chooses between. LONG_RAG (Jiang et al.,
2024, arXiv 2406.15319) stands beside them where a recipe asks for it."""


def by_cost(routes: Iterable[Route]) -> tuple[Route, ...]:
    """These routes from cheap to dear."""
    asked = set(routes)
    return tuple(route for route in Route if route in asked)
