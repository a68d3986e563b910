"""A router with what has to be known of it to put questions to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from prerouter.core.protocols import Router
from prerouter.core.records import RagConfig, Route, StudentMode
from prerouter.publishing.threshold import Threshold
from prerouter.recipe.engine import Dtype
from prerouter.routers.learned import LearnedRouter, RouterEngine
from prerouter.serving.wire import RouterIdentity


@dataclass(frozen=True)
class ServedRouter:
    """`fallback` is answered where the router gives no route; `checkpoint` is the sha256 of its
    weights; `head_characters` and `rag` are what it was trained for."""

    router: Router
    fallback: Route
    checkpoint: str | None = None
    mode: StudentMode | None = None
    head_characters: int = 600
    rag: RagConfig = field(default_factory=RagConfig)

    @property
    def identity(self) -> RouterIdentity:
        return RouterIdentity(name=self.router.name, checkpoint=self.checkpoint)


def as_served(router: Router, fallback: Route | None = None) -> ServedRouter:
    """Any router; a learned one brings its fallback and what it was trained for along."""
    if isinstance(router, LearnedRouter):
        return ServedRouter(
            router,
            fallback=fallback or router.fallback,
            checkpoint=router.checkpoint,
            mode=router.mode,
            head_characters=router.head_characters,
            rag=router.rag,
        )
    return ServedRouter(router, fallback or Route.RAG)


def load_router(
    folder: Path,
    *,
    mode: StudentMode | None = None,
    threshold: float | Threshold | None = None,
    fallback: Route | None = None,
    batch_size: int = 16,
    dtype: Dtype = "bfloat16",
    engine: RouterEngine = "transformers",
) -> ServedRouter:
    """The router of `folder`, once it has been found whole and safe; what isn't given is as
    published. Raises CheckpointError as `prerouter.Router.from_pretrained` does."""
    router = LearnedRouter.from_pretrained(
        folder,
        batch_size=batch_size,
        dtype=dtype,
        mode=mode,
        threshold=threshold,
        engine=engine,
    )
    return as_served(router, fallback)
