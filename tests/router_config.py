"""What router.json says of a router that only tests make."""

from __future__ import annotations

from prerouter.core.records import MetadataSetting, Route, StudentMode
from prerouter.prompts.render import PROMPT_VERSION, prompt_hash
from prerouter.publishing.checkpoint import Provenance, RouterConfig


def router_config(**changes: object) -> RouterConfig:
    """A compact router of the prompts of this version, in both modes."""
    config = RouterConfig(
        prompt_form="compact",
        metadata=MetadataSetting.FULL,
        prompt_version=PROMPT_VERSION,
        prompt_hash=prompt_hash("compact"),
        thinking=False,
        max_tokens=12,
        modes=(StudentMode.EXPLAIN, StudentMode.DECIDE),
        fallback=Route.LC,
        base_model="tiny",
        teacher="guideline",
        provenance=Provenance(recipe="test", seed=1),
    )
    return config.model_copy(update=changes)
