"""Entropies over the whole vocabulary from vLLM, which gives out the log-probabilities of few.

They are taken beside the logits (`vllm_worker`), in vLLM's processes, and fetched as requests end:
all log-probabilities of one token are some megabytes to send, its entropy is one number.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Completion
from prerouter.engines.sampling import not_finite

if TYPE_CHECKING:
    from vllm.v1.engine.llm_engine import LLMEngine

ASKED = "prerouter_entropies"
"""Key of a request's own arguments: [name, number of tokens]."""

Kept = list[tuple[int, float]]
"""Places of tokens from 0, with their bits, in any order."""

_KEEPER = "prerouter.engines.vllm_worker:EntropyKeeper"
_WORKER = "prerouter.engines.vllm_worker.EntropyWorker"

# Whoever sets one of these has taken the place, or samples what the logits of no step tell.
_IN_THE_WAY = ("speculative_config", "worker_extension_cls")


def with_entropies(arguments: dict[str, Any]) -> dict[str, Any]:
    """vLLM's engine arguments, so that a request may ask for entropies; unchanged where something
    stands in the way."""
    if _in_the_way(arguments):
        return arguments
    processors = [*(arguments.get("logits_processors") or ()), _KEEPER]
    return {**arguments, "logits_processors": processors, "worker_extension_cls": _WORKER}


def check_entropies(arguments: dict[str, Any], schema: dict[str, Any] | None) -> None:
    """Raise RecipeError where an engine of these arguments can't tell exact entropies."""
    if found := _in_the_way(arguments):
        raise RecipeError(
            f"engine.arguments.{found[0]}",
            "leaves no way to exact entropies",
            "an engine without it",
            "take it out, or ask for no entropies",
        )
    if schema is not None:
        raise RecipeError(
            "engine.kind: vllm",
            "a reply held to a schema has the entropies of what the schema allows",
            "kind: transformers for both",
        )


def asking(name: str, tokens: int) -> dict[str, Any]:
    """Own arguments of a request that asks for the entropies of so many first tokens."""
    return {ASKED: [name, tokens]}


def take_entropies(engine: LLMEngine, names: Sequence[str]) -> dict[str, dict[int, float]]:
    """Bits by place for each name, of all the engine's workers, which forget them."""
    taken: dict[str, dict[int, float]] = {name: {} for name in names}
    if names:
        # Workers that divide a batch among them each hold a part.
        for part in engine.collective_rpc("take_prerouter_entropies", args=(list(names),)):
            for name, kept in part.items():
                taken[name].update(kept)
    return taken


def with_bits(completion: Completion, bits: dict[int, float], tokens: int) -> Completion:
    """`completion` with the entropies of its first `tokens`, or an error where one isn't there."""
    wanted = min(tokens, completion.completion_tokens)
    found = [bits[place] for place in range(wanted) if place in bits]
    error = not_finite(found)
    if len(found) < wanted:
        error = f"vLLM kept {len(found)} entropies of {wanted}"
    if error:
        return dataclasses.replace(
            completion, text="", reasoning=None, finish_reason="error", error=error, passing=False
        )
    return dataclasses.replace(completion, entropies=tuple(found))


def _in_the_way(arguments: dict[str, Any]) -> list[str]:
    return [key for key in _IN_THE_WAY if arguments.get(key)]
