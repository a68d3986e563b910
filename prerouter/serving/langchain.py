"""Routing in LangChain: a branch whose condition is a router. Needs the extra `langchain`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.core.protocols import Router
from prerouter.core.records import Route
from prerouter.serving.choosing import Chooser
from prerouter.serving.client import Client
from prerouter.serving.wire import AskedCase, Routed

try:
    from langchain_core.runnables import Runnable, RunnableLambda
    from langchain_core.runnables.base import RunnableLike, coerce_to_runnable
except ImportError:
    raise MissingDependencyError("langchain-core", "langchain") from None


def case_of(given: Any) -> AskedCase:
    """The case in a chain's input: the keys of a dict that `AskedCase` has, others passed over."""
    if not isinstance(given, dict):
        raise InputError(
            "the branch's input",
            f"is no dict but {type(given).__name__}",
            ", ".join(AskedCase.model_fields),
            "give `case` a function that makes an AskedCase of it",
        )
    return AskedCase.model_validate({k: given[k] for k in AskedCase.model_fields if k in given})


def route_branch(
    router: Router | Client,
    *,
    rag: RunnableLike[Any, Any],
    lc: RunnableLike[Any, Any],
    case: Callable[[Any], AskedCase] = case_of,
    fallback: Route | None = None,
    on_decision: Callable[[Routed], None] | None = None,
) -> Runnable[Any, Any]:
    """A Runnable that hands its input to `rag` or to `lc`, as `router` decides.

    Streams and runs asynchronously as the chosen one does. `on_decision` is told of every decision.
    What the router or its service raises is raised: `with_fallbacks` is LangChain's word for that.
    """
    chooser = Chooser(router, fallback)
    branches: dict[Route, Runnable[Any, Any]] = {
        Route.RAG: coerce_to_runnable(rag),
        Route.LC: coerce_to_runnable(lc),
    }

    def taken(decision: Routed) -> Runnable[Any, Any]:
        if on_decision:
            on_decision(decision)
        if decision.route not in branches:
            raise InputError("route_branch", f"has no branch for {decision.route.value}", "RAG, LC")
        return branches[decision.route]

    def choose(given: Any) -> Any:
        return taken(chooser.choose(case(given)))

    async def achoose(given: Any) -> Any:
        return taken(await chooser.achoose(case(given)))

    return RunnableLambda(choose, achoose, name="prerouter")
