"""prerouter: decide, before anything is retrieved, whether to retrieve or to read it all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["Client", "Router", "__version__"]

if TYPE_CHECKING:
    from prerouter.routers.learned import LearnedRouter as Router
    from prerouter.serving.client import Client


def __getattr__(name: str) -> Any:
    # Loaded on first use: importing prerouter loads neither torch nor transformers.
    if name == "Router":
        from prerouter.routers.learned import LearnedRouter

        return LearnedRouter
    if name == "Client":
        from prerouter.serving.client import Client

        return Client
    raise AttributeError(f"module 'prerouter' has no attribute {name!r}")
