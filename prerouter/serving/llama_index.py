"""Routing in LlamaIndex: a selector for its RouterQueryEngine. Needs the extra `llama-index`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from prerouter.core.errors import InputError, MissingDependencyError
from prerouter.core.protocols import Router
from prerouter.core.records import Route
from prerouter.serving.choosing import Chooser
from prerouter.serving.client import Client
from prerouter.serving.wire import AskedCase, Routed

try:
    from llama_index.core.base.base_query_engine import BaseQueryEngine
    from llama_index.core.base.base_selector import BaseSelector, SelectorResult, SingleSelection
    from llama_index.core.llms import MockLLM
    from llama_index.core.prompts.mixin import PromptDictType
    from llama_index.core.query_engine import RouterQueryEngine
    from llama_index.core.schema import QueryBundle
    from llama_index.core.tools import QueryEngineTool, ToolMetadata
except ImportError:
    raise MissingDependencyError("llama-index-core", "llama-index") from None


class RouteSelector(BaseSelector):
    """Selects the choice that is named as the route that `router` decides: "RAG" or "LC".

    `case` makes a case of the question that is asked: it knows the document and the answering
    model. The reason of a selection tells p_lc, or why it is the fallback.
    """

    def __init__(
        self,
        router: Router | Client,
        case: Callable[[str], AskedCase],
        fallback: Route | None = None,
    ) -> None:
        self._chooser = Chooser(router, fallback)
        self._case = case

    def _select(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selected(choices, self._chooser.choose(self._case(query.query_str)))

    async def _aselect(self, choices: Sequence[ToolMetadata], query: QueryBundle) -> SelectorResult:
        return _selected(choices, await self._chooser.achoose(self._case(query.query_str)))

    def _get_prompts(self) -> PromptDictType:
        return {}

    def _update_prompts(self, prompts_dict: PromptDictType) -> None:
        """A router's prompt travels with its checkpoint."""


def route_query_engine(
    router: Router | Client,
    *,
    rag: BaseQueryEngine,
    lc: BaseQueryEngine,
    case: Callable[[str], AskedCase],
    fallback: Route | None = None,
) -> RouterQueryEngine:
    """A query engine that asks `rag` or `lc`, as `router` decides. The selection is in the
    response's metadata, as `selector_result`."""
    tools = [
        QueryEngineTool.from_defaults(rag, Route.RAG.value, "answers from retrieved chunks"),
        QueryEngineTool.from_defaults(lc, Route.LC.value, "answers from the whole document"),
    ]
    # One engine is selected, so its answer is never summed up, and no model is needed for that.
    return RouterQueryEngine(RouteSelector(router, case, fallback), tools, llm=MockLLM())


def _selected(choices: Sequence[ToolMetadata], decision: Routed) -> SelectorResult:
    names = [choice.name for choice in choices]
    if decision.route.value not in names:
        raise InputError(
            "the selector's choices",
            f"hold no {decision.route.value} but {', '.join(map(str, names))}",
            "tools that are named as the routes",
        )
    if decision.fallback_reason:
        reason = f"fallback: {decision.fallback_reason.value}"
    else:
        reason = "decided" if decision.p_lc is None else f"p_lc {decision.p_lc:.3f}"
    index = names.index(decision.route.value)
    return SelectorResult(selections=[SingleSelection(index=index, reason=reason)])
