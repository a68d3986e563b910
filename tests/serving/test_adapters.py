"""The branch of LangChain and the selector of LlamaIndex, against the real packages."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.response.schema import Response
from llama_index.core.callbacks import CallbackManager
from llama_index.core.schema import QueryBundle
from llama_index.core.tools import QueryEngineTool
from pydantic import ValidationError

from prerouter.core.errors import InputError
from prerouter.core.records import AnswerModel, Decision, Route, RoutingCase
from prerouter.serving.client import Client, ServiceError
from prerouter.serving.langchain import route_branch
from prerouter.serving.llama_index import RouteSelector, route_query_engine
from prerouter.serving.wire import AskedCase, Routed

from .routers import Broken, Echo
from .running import asked, running

READER = AnswerModel(name="reader-4k")


def case_of(question: str) -> AskedCase:
    return AskedCase(question=question, answer_model=READER)


class Answers(BaseQueryEngine):
    """A query engine that says which it is."""

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(CallbackManager())

    def _query(self, query_bundle: QueryBundle) -> Response:
        return Response(f"{self.name}: {query_bundle.query_str}")

    async def _aquery(self, query_bundle: QueryBundle) -> Response:
        return self._query(query_bundle)

    def _get_prompt_modules(self) -> dict[str, Any]:
        return {}


def named(name: str) -> RunnableLambda[Any, str]:
    return RunnableLambda(lambda given: f"{name}: {given['question']} over {given['text']}")


def given(number: int) -> dict[str, Any]:
    return {**asked(f"Number {number}"), "text": "the document"}


def test_a_chain_takes_the_branch_that_the_router_decides() -> None:
    told: list[Routed] = []
    branch = route_branch(Echo(), rag=named("rag"), lc=named("lc"), on_decision=told.append)
    chain = branch | RunnableLambda(str.upper)
    assert chain.invoke(given(1)) == "LC: NUMBER 1 OVER THE DOCUMENT"
    assert asyncio.run(chain.ainvoke(given(2))) == "RAG: NUMBER 2 OVER THE DOCUMENT"
    assert branch.batch([given(3), given(4)]) == [
        "lc: Number 3 over the document",
        "rag: Number 4 over the document",
    ]
    assert [each.route for each in told[:2]] == [Route.LC, Route.RAG]
    assert told[0].p_lc == 0.75


def test_what_the_branch_streams_is_streamed() -> None:
    def letters(parts: Iterator[Any]) -> Iterator[str]:
        for part in parts:
            yield from part["question"]

    branch = route_branch(Echo(), rag=named("rag"), lc=letters)
    assert list(branch.stream(given(1))) == list("Number 1")


def test_a_chain_asks_a_service() -> None:
    with running(Echo()) as address, Client(address) as client:
        branch = route_branch(client, rag=named("rag"), lc=named("lc"))
        assert branch.invoke(given(1)).startswith("lc")
        assert asyncio.run(branch.ainvoke(given(2))).startswith("rag")


def test_an_undecided_case_takes_the_fallback_and_an_error_goes_on() -> None:
    branch = route_branch(Broken(), rag=named("rag"), lc=named("lc"), fallback=Route.RAG)
    assert branch.invoke({**given(1), "question": "undecided"}).startswith("rag")
    with pytest.raises(FloatingPointError):
        branch.invoke({**given(1), "question": "raise"})
    gone = Client("http://127.0.0.1:9", attempts=1)
    with pytest.raises(ServiceError):
        route_branch(gone, rag=named("rag"), lc=named("lc")).invoke(given(1))


def test_an_input_of_ones_own_is_made_a_case_by_ones_own_function() -> None:
    by_text = route_branch(
        Echo(),
        rag=RunnableLambda(lambda text: f"rag {text}"),
        lc=RunnableLambda(lambda text: f"lc {text}"),
        case=case_of,
    )
    assert by_text.invoke("Number 1") == "lc Number 1"
    with pytest.raises(InputError, match="is no dict but str"):
        route_branch(Echo(), rag=named("rag"), lc=named("lc")).invoke("Number 1")
    with pytest.raises(ValidationError, match="answer_model"):
        route_branch(Echo(), rag=named("rag"), lc=named("lc")).invoke({"question": "Number 1"})


def test_a_router_in_this_process_is_asked_by_one_thread_at_a_time() -> None:
    inside, most = threading.Semaphore(1), []

    class Alone(Echo):
        def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
            most.append(inside.acquire(blocking=False))
            yield from super().route(cases)
            inside.release()

    branch = route_branch(Alone(0.02), rag=named("rag"), lc=named("lc"))
    branch.batch([given(n) for n in range(8)])
    assert most == [True] * 8


def test_a_query_engine_asks_the_one_that_the_router_decides() -> None:
    engine = route_query_engine(Echo(), rag=Answers("rag"), lc=Answers("lc"), case=case_of)
    told = engine.query("Number 1")
    assert str(told) == "lc: Number 1"
    assert told.metadata is not None
    assert told.metadata["selector_result"].reason == "p_lc 0.750"
    assert str(asyncio.run(engine.aquery("Number 2"))) == "rag: Number 2"


def test_a_query_engine_asks_a_service_and_tells_a_fallback() -> None:
    with running(Broken(), fallback=Route.RAG) as address, Client(address) as client:
        engine = route_query_engine(client, rag=Answers("rag"), lc=Answers("lc"), case=case_of)
        told = engine.query("undecided")
    assert str(told) == "rag: undecided"
    assert told.metadata is not None
    assert told.metadata["selector_result"].reason == "fallback: unparsable"


def test_the_choices_are_told_apart_by_name_and_not_by_place() -> None:
    tools = [QueryEngineTool.from_defaults(Answers(n), n, "answers") for n in ("LC", "RAG")]
    selector = RouteSelector(Echo(), case_of)
    assert selector.select([tool.metadata for tool in tools], "Number 2").ind == 1
    with pytest.raises(InputError, match="hold no LC but RAG"):
        selector.select([tools[1].metadata], "Number 1")


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("langchain", "langchain_core", "langchain"), ("llama_index", "llama_index", "llama-index")],
)
def test_an_extra_that_is_missing_is_named(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules['{package}'] = None; import prerouter.serving.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"pip install -e '.[{extra}]'" in done.stderr
