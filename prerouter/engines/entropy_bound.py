"""How little the entropy can be, where a server tells a few log-probabilities of each token."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Sampling
from prerouter.recipe.engine import OpenAIEngine

# Servers write -9999 for "hardly ever"; a float64 has no such probability either.
_NEVER = -700.0


def entropy_at_least(top: Sequence[float]) -> float:
    """A lower bound, in bits, of the entropy of a distribution over a whole vocabulary.

    `top` holds natural log-probabilities of its likeliest tokens and, servers being as they are,
    of one token that was sampled from further down. Their terms -P log2 P are summed as they are.
    What is left of the mass lies on tokens of at most a probability c: none is likelier than the
    second least of the listed (one of the two least is no sampled outsider), and none has more
    than all that is left. So each has -log2 P >= -log2 c, and together they add no less than that
    times their mass. Rounding apart, the bound is reached only by distributions that are even over
    what isn't listed. A temperature below 1 or a top_p, should a server apply them first, sharpen
    a distribution and lower its entropy, and so keep this a bound.
    """
    listed = sorted(value for value in top if value > _NEVER)
    known = -sum(math.exp(value) * value for value in listed)
    left = max(0.0, 1.0 - math.fsum(map(math.exp, listed)))
    if left:
        highest = math.log(left)
        if len(listed) > 1:
            highest = min(highest, listed[1])
        known -= left * highest
    # A log-probability a little above 0 is a rounding of 0.
    return max(0.0, known / math.log(2))


def bound_fields(section: OpenAIEngine, sampling: Sampling) -> dict[str, Any]:
    """What a request for entropies sends along; nothing where none are asked for.

    Raises RecipeError where the recipe wants no bounds, or where they would be none.
    """
    if not sampling.entropy_tokens:
        return {}
    if section.entropies == "refuse":
        raise RecipeError(
            "engine.kind: openai",
            "a server sends its top log-probabilities only, so entropies would be biased low",
            "kind: transformers or vllm for entropies over the whole vocabulary",
            "or take bounds for what they are: entropies: lower_bound",
        )
    if sampling.schema is not None or sampling.temperature > 1:
        raise RecipeError(
            "engine.entropies: lower_bound",
            "a schema, or a temperature above 1, may change what the server tells so that it is "
            "no bound of the model's own entropy",
            "no schema, a temperature from 0 to 1",
        )
    return {"logprobs": True, "top_logprobs": section.top_logprobs}
