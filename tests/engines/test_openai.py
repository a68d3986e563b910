"""The openai engine where nothing fails: what it sends, what it reads, when, and with which key."""

from __future__ import annotations

import datetime
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Sampling
from prerouter.engines.http import _proxy, api_key
from prerouter.engines.openai import OpenAIServer
from prerouter.engines.replies import read_reply
from prerouter.engines.schema_probe import PROBE, follows_probe
from prerouter.engines.start import start_engine
from prerouter.prompts.trace import trace_schema
from prerouter.recipe.engine import OpenAIEngine
from tests.engines.fault_server import FaultServer, reply, requests, running_server, section

SAMPLING = Sampling(max_tokens=50, temperature=0.7, top_p=0.9)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with running_server() as server:
        yield server


def test_each_request_says_what_it_wants(server: FaultServer) -> None:
    engine = start_engine(section(server, extra_body={"reasoning_effort": "low"}))
    schema = trace_schema()
    sampling = Sampling(max_tokens=50, temperature=0.7, top_p=0.9, schema=schema, thinking=True)
    results = dict(engine.generate(requests("a", "b"), sampling))
    assert [results[index].text for index in (0, 1)] == ["answer to a", "answer to b"]
    assert results[0].finish_reason == "stop"
    assert (results[0].prompt_tokens, results[0].completion_tokens) == (10, 3)
    bodies = sorted(server.seen.bodies, key=lambda body: body["seed"])
    assert [body["seed"] for body in bodies] == [100, 101]
    assert bodies[0] == {
        "model": "some/model",
        "messages": [{"role": "user", "content": "a"}],
        "n": 1,
        "seed": 100,
        "temperature": 0.7,
        "top_p": 0.9,
        "max_tokens": 50,
        "chat_template_kwargs": {"enable_thinking": True},
        "reasoning_effort": "low",
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "reply", "schema": schema, "strict": True},
        },
    }


def test_a_server_that_refuses_unknown_fields_gets_none(server: FaultServer) -> None:
    engine = OpenAIServer(
        section(server, thinking_switch="none", reply_limit_field="max_completion_tokens")
    )
    list(engine.generate(requests("a"), SAMPLING))
    assert set(server.seen.bodies[0]) == {
        "model", "messages", "n", "seed", "temperature", "top_p", "max_completion_tokens",
    }  # fmt: skip


def test_many_requests_each_come_back_once_and_never_more_than_the_limit_at_once(
    server: FaultServer,
) -> None:
    prompts = [f"slow 1 {number}" if number % 5 == 0 else f"fine {number}" for number in range(60)]
    engine = OpenAIServer(section(server, concurrency=8))
    indices = [index for index, _ in engine.generate(requests(*prompts), SAMPLING)]
    assert sorted(indices) == list(range(60))
    # The slow ones are overtaken.
    assert indices != sorted(indices)
    assert 4 < server.seen.most_at_once <= 8
    assert len(server.seen.clients) <= 8


def test_the_pool_lets_as_many_through_as_the_recipe_says(server: FaultServer) -> None:
    # More than the HTTP library's own limit of 100, and the server answers none before all are in.
    crowd = [f"crowd all 120 {number}" for number in range(120)]
    engine = OpenAIServer(section(server, concurrency=120, timeout_seconds=30, max_attempts=1))
    results = list(engine.generate(requests(*crowd), SAMPLING))
    assert [done.error for _, done in results] == [None] * 120
    assert server.seen.most_at_once == 120


def test_no_more_is_paid_for_than_the_consumer_takes(server: FaultServer) -> None:
    results = OpenAIServer(section(server)).generate(requests(*map(str, range(50))), SAMPLING)
    taken = 3
    for _ in range(taken):
        next(results)
    # The consumer still holds the last of them.
    paid = taken - 1 + 4
    deadline = time.monotonic() + 10
    while len(server.seen.bodies) < paid and time.monotonic() < deadline:
        time.sleep(0.02)
    time.sleep(0.2)
    assert len(server.seen.bodies) == paid
    results.close()


def test_leaving_early_cancels_what_is_in_flight(server: FaultServer) -> None:
    results = OpenAIServer(section(server, timeout_seconds=60)).generate(
        requests("fine", "hanging all", "hanging all 2"), SAMPLING
    )
    assert next(results)[1].text == "answer to fine"
    began = time.monotonic()
    results.close()
    assert time.monotonic() - began < 5
    assert not [t for t in threading.enumerate() if t.name.endswith("(run_until_complete)")]


def test_it_works_inside_a_running_event_loop(server: FaultServer) -> None:
    import asyncio

    async def notebook() -> list[str]:
        engine = OpenAIServer(section(server))
        return [done.text for _, done in engine.generate(requests("a"), SAMPLING)]

    assert asyncio.run(notebook()) == ["answer to a"]


def test_samples_of_one_case_are_sent_together(server: FaultServer) -> None:
    prompts = ["b case", "a case", "b case", "a case"]
    list(OpenAIServer(section(server, concurrency=1)).generate(requests(*prompts), SAMPLING))
    sent = [body["messages"][0]["content"] for body in server.seen.bodies]
    assert sent == ["a case", "a case", "b case", "b case"]


def test_nothing_is_asked_for_nothing(server: FaultServer) -> None:
    engine = OpenAIServer(section(server, base_url="https://203.0.113.1/v1"))
    assert list(engine.generate([], SAMPLING)) == []


def test_no_connection_and_no_key_before_the_first_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SOME_KEY", raising=False)

    def no_network(*args: object, **kwargs: object) -> None:
        raise AssertionError("a socket was made")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    engine = start_engine(
        OpenAIEngine(
            kind="openai",
            model="m",
            base_url="https://api.example.com/v1",
            api_key_variable="SOME_KEY",
        )
    )
    results = engine.generate(requests("a"), SAMPLING)
    with pytest.raises(RecipeError, match=r"environment variable SOME_KEY is not set.*export"):
        next(results)


@pytest.mark.parametrize(
    ("base_url", "given", "sent"),
    [
        ("http://127.0.0.1:8000/v1", None, "EMPTY"),
        ("https://localhost:8000/v1", None, "EMPTY"),
        ("http://teacher:8000/v1", None, "EMPTY"),
        ("http://127.0.0.1:8000/v1", "sk-real", "sk-real"),
        ("https://api.example.com/v1", "sk-real\n", "sk-real"),
    ],
)
def test_which_key_is_sent(
    base_url: str, given: str | None, sent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if given is None:
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    else:
        monkeypatch.setenv("OPENAI_API_KEY", given)
    assert api_key(OpenAIEngine(kind="openai", model="m", base_url=base_url)) == sent


@pytest.mark.parametrize(
    "key", ["\u201csk-0123456789\u201d", "sk-0123\nsk-4567", "sk 0123", "sk\x00"]
)
def test_a_key_that_no_header_takes_is_told_and_not_shown(
    key: str, server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # os.environ takes no NUL, and a file that is read into it may hold one.
    monkeypatch.setattr("os.environ", {"SOME_KEY": key})
    results = OpenAIServer(section(server, api_key_variable="SOME_KEY")).generate(
        requests("a", "b"), SAMPLING
    )
    with pytest.raises(RecipeError, match="SOME_KEY holds a sign that no key has") as told:
        next(results)
    assert "sk" not in told.value.line
    assert not server.seen.bodies


def test_nothing_of_the_environment_or_of_another_server_leaves(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-0123456789ab")
    for name in ("OPENAI_ORG_ID", "OPENAI_PROJECT_ID", "OPENAI_ADMIN_KEY"):
        monkeypatch.setenv(name, "private")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "X-Private: private\nAuthorization: private")
    with running_server() as proxy:
        for name in ("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.server_port}")
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        engine = OpenAIServer(section(server, concurrency=1))
        done = list(engine.generate(requests("cookie all", "cookie all again"), SAMPLING))
        assert not proxy.seen.bodies
    assert [completion.text for _, completion in done] == ["sweet", "sweet"]
    for headers in server.seen.headers:
        assert headers["authorization"] == "Bearer sk-0123456789ab"
        assert "private" not in str(headers)
        assert "cookie" not in headers
        assert not [name for name in headers if name.startswith(("x-", "openai-"))]


@pytest.mark.parametrize(
    ("base_url", "variable", "value", "taken"),
    [
        ("https://api.example.com/v1", "HTTPS_PROXY", "http://proxy:1", "http://proxy:1"),
        ("https://api.example.com/v1", "ALL_PROXY", "proxy:1", "http://proxy:1"),
        ("https://api.example.com/v1", "HTTP_PROXY", "http://proxy:1", None),
        ("http://teacher:8000/v1", "HTTP_PROXY", "http://proxy:1", None),
        ("https://localhost:8000/v1", "HTTPS_PROXY", "http://proxy:1", None),
        ("https://api.example.com/v1", "NO_PROXY", "example.com", None),
    ],
)
def test_a_proxy_is_used_where_it_can_not_listen(
    base_url: str,
    variable: str,
    value: str,
    taken: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("os.environ", {variable: value})
    if variable == "NO_PROXY":
        monkeypatch.setattr("os.environ", {variable: value, "HTTPS_PROXY": "http://proxy:1"})
    assert _proxy(base_url) == taken


def test_a_proxy_of_no_use_is_told_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", {"HTTPS_PROXY": "gopher://me:secret@proxy", "K": "sk-1"})
    there = {"base_url": "https://api.example.com/v1", "api_key_variable": "K"}
    engine = OpenAIServer(OpenAIEngine.model_validate({"kind": "openai", "model": "m", **there}))
    with pytest.raises(RecipeError, match="HTTPS_PROXY: is no proxy") as told:
        next(engine.generate(requests("a"), SAMPLING))
    assert "secret" not in told.value.line


@pytest.mark.parametrize(
    ("prompt", "text", "reasoning", "finish"),
    [
        ("reasoning all", "RAG", "hm", "stop"),
        ("reasoning_content all", "RAG", "hm", "stop"),
        ("tagged all", "RAG", "LC?", "stop"),
        ("half_tagged all", "RAG", "LC?", "stop"),
        ("unclosed all", "<think>LC", None, "length"),
        ("only_reasoning all", "", "hm", "length"),
        ("null_at_limit all", "", None, "length"),
        ("cut_off all", '{"characteri', None, "length"),
    ],
)
def test_thinking_is_parted_from_the_text(
    server: FaultServer, prompt: str, text: str, reasoning: str | None, finish: str
) -> None:
    sampling = Sampling(max_tokens=50, thinking=True)
    ((_, done),) = OpenAIServer(section(server)).generate(requests(prompt), sampling)
    assert (done.text, done.reasoning, done.finish_reason) == (text, reasoning, finish)
    assert server.seen.attempts[prompt] == 1


def test_text_of_a_model_that_does_not_think_is_left_alone(server: FaultServer) -> None:
    ((_, done),) = OpenAIServer(section(server)).generate(requests("tagged all"), SAMPLING)
    assert (done.text, done.reasoning) == ("<think>LC?</think>\nRAG", None)


def test_the_cached_share_is_what_the_server_tells(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    assert engine.cached_share is None
    list(engine.generate(requests("a", "b"), SAMPLING))
    assert engine.cached_share == pytest.approx(0.4)


@pytest.mark.parametrize("wrong", [None, -1, "many", 2**53, 10**30, [], float("nan")])
@pytest.mark.parametrize("name", ["prompt_tokens", "completion_tokens"])
def test_usage_that_is_wrong_is_not_told_and_costs_no_reply(name: str, wrong: object) -> None:
    told = {"prompt_tokens": 10, "completion_tokens": 3} | {name: 0}
    body = json.dumps(reply("RAG", usage={name: wrong}))
    found = read_reply(body, thinking=False).completion
    assert (found.text, found.error) == ("RAG", None)
    assert {key: getattr(found, key) for key in told} == told


@pytest.mark.parametrize("usage", [None, [], "none", 3])
def test_a_reply_without_usage_stands(usage: object) -> None:
    found = read_reply(json.dumps(reply("RAG") | {"usage": usage}), thinking=False)
    assert (found.completion.text, found.completion.prompt_tokens) == ("RAG", 0)
    assert found.cached_tokens is None


@pytest.mark.parametrize("details", [{"cached_tokens": 11}, {"cached_tokens": -1}, [], None])
def test_cached_tokens_are_a_part_of_the_prompt_or_not_told(details: object) -> None:
    body = json.dumps(reply("RAG", usage={"prompt_tokens_details": details}))
    assert read_reply(body, thinking=False).cached_tokens is None


def test_the_probe_finds_a_server_that_ignores_schemas(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    assert engine.honours_schema() is False
    assert engine.honours_schema() is False
    assert len(server.seen.bodies) == 1
    assert server.seen.bodies[0]["response_format"]["json_schema"]["strict"] is True


@pytest.mark.parametrize(
    ("prompt", "found"), [("follows_schema all", True), ("broken all", None), ("cut_off all", None)]
)
def test_the_probe_tells_obedience_from_not_knowing(
    server: FaultServer, prompt: str, found: bool | None
) -> None:
    ((_, done),) = OpenAIServer(section(server)).generate(requests(prompt), SAMPLING)
    assert follows_probe(done) is found


def test_the_probe_does_not_say_its_own_word() -> None:
    assert "quagga" not in PROBE.messages[0].content


def test_a_server_without_a_tokenizer_is_named(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    asked = requests("unknown all")
    with pytest.raises(RecipeError, match=r"127\.0\.0\.1.*HTTP 404.*kind: transformers"):
        engine.count_tokens(asked[0].messages)
    with pytest.raises(
        RecipeError, match=r"127\.0\.0\.1.*HTTP 404.*verdict_by: reply or ask_by: reply"
    ):
        engine.score_choices(asked, [])


def test_a_server_that_answers_something_else_is_named(server: FaultServer) -> None:
    engine = OpenAIServer(section(server))
    with pytest.raises(RecipeError, match=r"gives no /tokenize as vLLM does"):
        engine.count_tokens(requests("a")[0].messages)


@pytest.mark.parametrize(
    "changes",
    [
        {"base_url": "https://user:secret@host/v1"},
        {"extra_body": {"n": 4}},
        {"extra_body": {"seed": 4}},
        {"extra_body": {"penalty": float("nan")}},
        {"extra_body": {"since": datetime.date(2026, 1, 1)}},
        {"extra_body": {"stop": {"a"}}},
        {"extra_body": {"stop": "\ud800"}},
        {"base_url": "https://host/v1?version=2"},
        {"base_url": "https://host/v1#top"},
        {"base_url": "https:///v1"},
        {"base_url": "https://host:99999/v1"},
    ],
)
def test_a_section_takes_no_credentials_and_nothing_that_can_not_be_sent(
    server: FaultServer, changes: dict[str, Any]
) -> None:
    with pytest.raises(ValidationError):
        section(server, **changes)


def test_the_time_of_scores_is_shared_by_their_prompts(
    server: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = OpenAIServer(section(server))

    def call(posts: list[Any]) -> list[str]:
        return [json.dumps({"count": 1, "tokens": [number]}) for number in range(len(posts))]

    def post_all(posts: list[Any]) -> list[str]:
        time.sleep(0.1)
        known = [{str(token): {"logprob": -1.0}} for token in range(2)]
        return [
            json.dumps({"choices": [{"prompt_logprobs": [None, known[body["prompt"][-1]]]}]})
            for _, body in posts
        ]

    monkeypatch.setattr(engine, "_call", call)
    monkeypatch.setattr(engine, "_post_all", post_all)
    scores = engine.score_choices(requests("a", "b", "c", "d"), ["RAG", "LC"])
    assert [len(row.log_probabilities) for row in scores] == [2] * 4
    assert sum(row.seconds for row in scores) == pytest.approx(0.1, abs=0.05)
    assert len({row.seconds for row in scores}) == 1
