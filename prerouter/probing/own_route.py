"""Which route a model would take itself: the likelier of both as the text after a prompt.

A forced choice, and no reading of what the model would write: it is told with the prompt's states,
and every prompt has one. A model whose own decisions a run holds is better asked there (`own_route`
of a study's row).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from prerouter.core.records import ROUTES, Route, StudentMode
from prerouter.recipe.probe_router import ProbePrompt


def route_texts(prompt: ProbePrompt, mode: StudentMode) -> tuple[str, ...]:
    """Both routes as the prompt asks for them, in the order of ROUTES. Where the prompt asks for
    steps first, the decision is put in their place."""
    if prompt == "unconstrained":
        return tuple(f"Decision: {route.value}" for route in ROUTES)
    if prompt == "compact" and mode is StudentMode.DECIDE:
        return tuple(route.value for route in ROUTES)
    return tuple(f'{{"decision": "{route.value}"}}' for route in ROUTES)


def likelier(log_probabilities: Sequence[float]) -> Route | None:
    """The route with the higher log-probability, of two in the order of ROUTES; a tie goes to the
    cheap one. None where one is no number: a broken model has no route of its own."""
    if any(map(math.isnan, log_probabilities)):
        return None
    return max(
        zip(ROUTES, log_probabilities, strict=True),
        key=lambda pair: (pair[1], -ROUTES.index(pair[0])),
    )[0]
