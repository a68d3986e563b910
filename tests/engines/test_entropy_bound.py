from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Sampling
from prerouter.engines.entropy_bound import entropy_at_least
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.replies import read_reply
from prerouter.engines.retries import ServerError
from tests.engines.fault_server import FaultServer, reply, requests, running_server, section

SAMPLING = Sampling(max_tokens=5, entropy_tokens=2)


class TellingServer(FaultServer):
    """Tells the probabilities 1/2 and 1/4 of each token."""

    def answer_to(self, body: dict[str, Any]) -> dict[str, Any]:
        return telling([[0.5, 0.25]] * 3)


def telling(tokens: list[list[float]]) -> dict[str, Any]:
    body = reply("answer")
    listed = [[{"token": "a", "logprob": math.log(p)} for p in token] for token in tokens]
    body["choices"][0]["logprobs"] = {
        "content": [{"token": "a", "logprob": -1.0, "top_logprobs": top} for top in listed]
    }
    return body


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TellingServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running_server(TellingServer) as server:
        yield server


@pytest.mark.parametrize(
    ("probabilities", "bits"),
    [
        ([1.0], 0.0),
        # A half is left, for one token that nobody names: 1 bit between the two.
        ([0.5], 1.0),
        ([0.5, 0.5], 1.0),
        # The last quarter lies on tokens of at most a quarter each.
        ([0.5, 0.25], 1.5),
        # The first four of an even distribution over 16.
        ([1 / 16] * 4, 4.0),
        # The sampled token, of 1/64, is no measure of what isn't listed.
        ([1 / 4, 1 / 4, 1 / 64], 1 + 6 / 64 + 2 * (1 / 2 - 1 / 64)),
    ],
)
def test_the_bound_by_hand(probabilities: list[float], bits: float) -> None:
    assert entropy_at_least([math.log(p) for p in probabilities]) == pytest.approx(bits)


def test_a_token_that_hardly_ever_comes_adds_nothing() -> None:
    assert entropy_at_least([0.0, -9999.0, -9999.0]) == 0.0
    assert entropy_at_least([-1e-6, -9999.0, -9999.0]) < 1e-4
    assert entropy_at_least([1e-7]) == 0.0


@given(
    weights=st.lists(st.floats(1e-6, 1), min_size=2, max_size=60),
    size=st.integers(1, 20),
    outsider=st.integers(0, 59),
)
def test_it_is_never_above_the_entropy(weights: list[float], size: int, outsider: int) -> None:
    p = np.sort(np.array(weights) / np.sum(weights))[::-1]
    true = -(p * np.log2(p)).sum()
    # As servers tell them: the sampled token first, which may be none of the likeliest.
    sampled = outsider % p.size
    top = [sampled, *(place for place in range(p.size) if place != sampled)][:size]
    if sampled < size:
        top = list(range(min(size, p.size)))
    bound = entropy_at_least(np.log(p[top]).tolist())
    assert bound <= true + 1e-9
    if len(top) == p.size:
        assert bound == pytest.approx(true, abs=1e-6)


def test_bounds_are_asked_for_read_and_said_to_be_bounds(server: TellingServer) -> None:
    engine = OpenAIServer(section(server, entropies="lower_bound", top_logprobs=7))
    ((_, done),) = engine.generate(requests("a"), SAMPLING)
    assert done.entropies == pytest.approx((1.5, 1.5))
    assert done.entropies_are_bounds
    assert (server.seen.bodies[0]["logprobs"], server.seen.bodies[0]["top_logprobs"]) == (True, 7)


def test_nothing_is_asked_for_where_no_entropies_are_wanted(server: TellingServer) -> None:
    engine = OpenAIServer(section(server, entropies="lower_bound"))
    ((_, done),) = engine.generate(requests("a"), Sampling(max_tokens=5))
    assert (done.entropies, done.entropies_are_bounds) == ((), False)
    assert "top_logprobs" not in server.seen.bodies[0]


def test_entropies_are_refused_unless_the_recipe_takes_bounds(server: TellingServer) -> None:
    with pytest.raises(RecipeError, match=r"biased low.*entropies: lower_bound"):
        next(OpenAIServer(section(server)).generate(requests("a"), SAMPLING))
    assert not server.seen.bodies


@pytest.mark.parametrize("changes", [{"schema": {"type": "object"}}, {"temperature": 1.5}])
def test_what_would_be_no_bound_is_refused(server: TellingServer, changes: dict[str, Any]) -> None:
    engine = OpenAIServer(section(server, entropies="lower_bound"))
    with pytest.raises(RecipeError, match="no bound"):
        next(engine.generate(requests("a"), Sampling(5, entropy_tokens=2, **changes)))


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        {"content": []},
        {"content": None},
        {"content": [{"token": "a", "logprob": -1.0, "top_logprobs": []}]},
        {"content": [{"token": "a", "top_logprobs": [{"token": "a", "logprob": 7.0}]}]},
        {"content": [{"token": "a", "top_logprobs": [{"token": "a", "logprob": float("nan")}]}]},
    ],
)
def test_a_reply_without_them_is_a_fault_and_paid_for(logprobs: object) -> None:
    body = reply("answer")
    body["choices"][0]["logprobs"] = logprobs
    text = json.dumps(body)
    with pytest.raises(ServerError, match="no top_logprobs") as caught:
        read_reply(text, thinking=False, entropy_tokens=2)
    assert not caught.value.passing
    assert caught.value.prompt_tokens == 10
    assert read_reply(text, thinking=False).completion.text == "answer"


def test_the_recipe_sets_the_fields_and_not_extra_body(server: TellingServer) -> None:
    with pytest.raises(ValidationError, match="top_logprobs"):
        section(server, extra_body={"top_logprobs": 5})
