"""The ray engine where neither Ray nor vLLM is needed. The rest is under tests/vllm."""

from __future__ import annotations

import sys
import threading
from collections.abc import Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from prerouter.core.errors import CombinedError, MissingDependencyError, RecipeError
from prerouter.core.protocols import Completion, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines import ray_replica
from prerouter.engines.ray_replica import (
    Replica,
    pack_completion,
    pack_refusal,
    pack_request,
    unpack_reply,
    unpack_request,
)
from prerouter.engines.start import start_engine
from prerouter.recipe.base import validate
from prerouter.recipe.engine import RayEngine, VllmEngine
from prerouter.recipe.teach import TeachSection


def section(**changes: Any) -> dict[str, Any]:
    return {"kind": "ray", "model": "some/model", **changes}


def test_an_environment_without_ray_is_told_which_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"^ray.*is not installed.*-e '\.\[ray\]'"):
        start_engine(validate(RayEngine, section(), "engine"))


def test_a_replica_runs_what_the_recipe_says() -> None:
    shared = {
        "revision": "v1",
        "dtype": "float16",
        "max_model_len": 4096,
        "tensor_parallel_size": 4,
        "pipeline_parallel_size": 2,
        "quantization": "fp8",
        "arguments": {"enforce_eager": True},
    }
    engine = validate(RayEngine, section(replicas=3, batch_size=8, **shared), "engine")
    assert engine.replica == VllmEngine(kind="vllm", model="some/model", **shared)


@pytest.mark.parametrize("address", ["auto", "local", "10.0.0.1:6379", "head.cluster:6379"])
def test_addresses(address: str) -> None:
    assert validate(RayEngine, section(address=address), "engine").address == address


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"address": "http://key@host"}, r"engine: address"),
        ({"address": "ray://host:10001"}, r"engine: address"),
        ({"replicas": 0}, r"engine: replicas"),
        ({"replica": 2}, r"engine: replica: unknown key.*did you mean replicas\?"),
        ({"arguments": {"data_parallel_size": 2}}, r"`replicas` says how many"),
        ({"arguments": {"trust_remote_code": True}}, r"trust_remote_code is never set"),
        ({"arguments": {"dtype": "auto"}}, r"dtype stand beside `arguments`"),
    ],
)
def test_a_section_that_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(CombinedError, match=problem):
        validate(RayEngine, section(**changes), "engine")


def test_a_teacher_can_be_of_kind_ray() -> None:
    teach = validate(TeachSection, {"engine": section()}, "teach")
    assert isinstance(teach.engine, RayEngine)
    with pytest.raises(CombinedError, match=r"one of: transformers, vllm, openai, ray"):
        validate(TeachSection, {"engine": section(kind="rey")}, "teach")


def request(text: str, seed: int | None = None) -> GenerationRequest:
    return GenerationRequest((Message(role="user", content=text),), seed)


def test_what_travels_arrives_as_it_was() -> None:
    hostile = 'a "quote", a line\n, half a character \ud800 and é'
    sent = GenerationRequest(
        (Message(role="system", content="s"), Message(role="user", content=hostile)), seed=7
    )
    assert pack_request(sent).isascii()
    assert unpack_request(pack_request(sent)) == sent
    whole = Completion("text é", "length", 5, 3, reasoning="why", seconds=1.5)
    failed = Completion("", "error", error="too long", passing=False)
    measured = Completion("a", "stop", 5, 1, entropies=(0.5, 1.25))
    back = [whole, failed, measured]
    assert [unpack_reply(pack_completion(one)) for one in back] == back


def test_a_refusal_arrives_with_all_its_lines() -> None:
    errors = [RecipeError("a", "is wrong", "b", "do c"), RecipeError("d", "is wrong too")]
    with pytest.raises(CombinedError) as caught:
        unpack_reply(pack_refusal(CombinedError(errors)))
    assert caught.value.lines == ["a: is wrong; b; do c", "d: is wrong too"]


class Echo:
    """An engine that answers what has arrived, but "slow" only once it is let go."""

    let_go = threading.Event()

    def __init__(self, section: VllmEngine) -> None:
        if section.model == "refused":
            raise RecipeError("engine", "is refused")

    def stream(
        self, arriving: Iterable[tuple[int, GenerationRequest] | None], sampling: Sampling
    ) -> Generator[tuple[int, Completion], None, None]:
        held: list[int] = []
        for arrived in arriving:
            if arrived is not None:
                number, asked = arrived
                text = asked.messages[0].content
                if text == "unfit":
                    raise RecipeError("engine.arguments", "don't fit")
                if text == "slow":
                    held.append(number)
                    continue
                yield number, Completion(f"{text} {asked.seed} {sampling.max_tokens}", "stop")
            elif self.let_go.wait(0.01):
                yield from ((number, Completion("at last", "stop")) for number in held)
                held = []


@pytest.fixture
def replica(monkeypatch: pytest.MonkeyPatch) -> Replica:
    monkeypatch.setattr(ray_replica, "VllmModel", Echo)
    monkeypatch.setattr(Echo, "let_go", threading.Event())
    return made("some/model")


def made(model: str) -> Replica:
    return Replica(VllmEngine(kind="vllm", model=model).model_dump_json(), '{"max_tokens": 9}')


def block(*texts: str, first: int = 0) -> dict[str, list[Any]]:
    packed = [pack_request(request(text, seed)) for seed, text in enumerate(texts)]
    return {"index": list(range(first, first + len(texts))), "request": packed}


def test_a_block_comes_back_in_its_own_order(replica: Replica) -> None:
    for first in (0, 40):
        done = replica(block("a", "b", "c", first=first))
        assert done["index"] == [first, first + 1, first + 2]
        replies = [unpack_reply(reply).text for reply in done["reply"]]
        assert replies == ["a 0 9", "b 1 9", "c 2 9"]


def test_no_block_waits_for_the_slowest_of_another(replica: Replica) -> None:
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(replica, block("a", "slow"))
        quick = threads.submit(replica, block("b", "c"))
        texts = [unpack_reply(reply).text for reply in quick.result(timeout=10)["reply"]]
        assert texts == ["b 0 9", "c 1 9"]
        assert not slow.done()
        Echo.let_go.set()
        replies = slow.result(timeout=10)["reply"]
        assert [unpack_reply(reply).text for reply in replies] == ["a 0 9", "at last"]


def test_a_section_that_is_refused_is_told_for_every_block(replica: Replica) -> None:
    for refusing in (made("refused"), replica):
        for texts in (("unfit",), ("a", "b")):
            done = refusing(block(*texts))
            assert len(done["reply"]) == len(done["index"]) == len(texts)
            with pytest.raises(CombinedError, match=r"^engine"):
                unpack_reply(done["reply"][0])
