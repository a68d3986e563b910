from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from prerouter.core.records import RagConfig, Route
from prerouter.serving.service import Limits
from prerouter.serving.wire import MAX_CASES, Health, Routed

from .routers import Broken, Echo, Held
from .running import asked, post, running

JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with running(Echo()) as found:
        yield found


def figures(address: str) -> dict[str, float]:
    lines = httpx2.get(f"{address}/metrics").text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


def test_one_case_is_answered(address: str) -> None:
    told = post(address, asked("Number 3", case_id="mine")).json()
    assert told == {
        "case_id": "mine",
        "route": "LC",
        "fallback": False,
        "fallback_reason": None,
        "p_lc": 0.75,
        "rationale": {"steps": {}, "reflection": None, "free_text": "Number 3"},
        "router": {"name": "echo", "checkpoint": None},
        "prompt_tokens": 3,
        "completion_tokens": 0,
        "seconds": 0.0,
    }
    assert Routed.model_validate(told).route is Route.LC


def test_several_are_answered_in_their_order(address: str) -> None:
    cases = [asked(f"Number {n}", case_id=f"case {n}") for n in (5, 2, 9)]
    told = post(address, {"cases": cases}).json()["decisions"]
    assert [(each["case_id"], each["route"]) for each in told] == [
        ("case 5", "LC"),
        ("case 2", "RAG"),
        ("case 9", "LC"),
    ]


def test_identifiers_are_optional_and_may_repeat(address: str) -> None:
    cases = [asked("Number 1", case_id="same"), asked("Number 2", case_id="same")]
    told = post(address, {"cases": [*cases, asked("Number 3")]}).json()["decisions"]
    assert [each["case_id"] for each in told] == ["same", "same", None]
    assert [each["route"] for each in told] == ["LC", "RAG", "LC"]


MALFORMED: dict[str, Any] = {
    "nothing": b"",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"5",
    "null": b"null",
    "deep": b"[" * 100_000,
    "half a character": b'{"question": "\\ud800", "answer_model": {"name": "m"}}',
    "no UTF-8": b'{"question": "\xff", "answer_model": {"name": "m"}}',
    "NaN": b'{"question": NaN, "answer_model": {"name": "m"}}',
    "endless number": b'{"question": "q", "answer_model": {"name": "m", "context_window": '
    + b"9" * 9_000
    + b"}}",
    "no question": json.dumps({"answer_model": {"name": "m"}}).encode(),
    "empty question": json.dumps(asked("")).encode(),
    "a body": json.dumps(asked("Number 1", document={"text": "the whole of it"})).encode(),
    "a gold answer": json.dumps(asked("Number 1", answer="42")).encode(),
    "text for a number": json.dumps(asked("Number 1", document={"tokens": "5"})).encode(),
    "an endless question": json.dumps(asked("q" * 20_001)).encode(),
    "an endless title": json.dumps(asked("q", document={"title": "t" * 1_001})).encode(),
    "an endless type": json.dumps(asked("q", document={"type": "t" * 1_001})).encode(),
    "an endless task type": json.dumps(asked("q", task_type="t" * 1_001)).encode(),
    "more overlap than chunk": json.dumps(
        asked("Number 1", rag={"chunk_tokens": 10, "overlap_tokens": 10})
    ).encode(),
    "no cases": b'{"cases": []}',
    "too many cases": json.dumps({"cases": [asked("Number 1")] * (MAX_CASES + 1)}).encode(),
    "a case and cases": json.dumps({**asked("Number 1"), "cases": []}).encode(),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_body_is_refused_in_one_line(name: str, address: str) -> None:
    response = httpx2.post(f"{address}/v1/route", content=MALFORMED[name], headers=JSON)
    assert response.status_code == 422
    (error,) = response.json().values()
    assert error
    assert len(error.splitlines()) == 1
    assert len(error) < 2_000


def test_an_error_says_where_and_never_what_was_sent(address: str) -> None:
    sent = {"cases": [asked("Number 1"), asked("Number 2", document={"tokens": "my secret"})]}
    error = post(address, sent).json()["error"]
    assert "cases.1.document.tokens" in error
    assert "my secret" not in error


@pytest.mark.parametrize("kind", ["Application/JSON", "application/json ; charset=UTF-8"])
def test_json_is_announced_in_any_case(kind: str, address: str) -> None:
    body = json.dumps(asked("Number 1")).encode()
    response = httpx2.post(f"{address}/v1/route", content=body, headers={"content-type": kind})
    assert response.status_code == 200


def test_the_longest_texts_are_taken(address: str) -> None:
    longest = {"title": "t" * 1_000, "type": "t" * 1_000}
    question = "q" * 19_998 + " 1"
    assert post(address, asked(question, document=longest)).json()["route"] == "LC"


@pytest.mark.parametrize("kind", ["text/plain", "multipart/form-data", ""])
def test_what_a_web_page_can_post_unasked_is_refused(kind: str, address: str) -> None:
    body = json.dumps(asked("Number 1")).encode()
    response = httpx2.post(f"{address}/v1/route", content=body, headers={"content-type": kind})
    assert response.status_code == 415


# The extra installs uvicorn's own parser; another may be there, and behaves otherwise.
@pytest.mark.parametrize("http", ["h11", "httptools"])
def test_ten_megabytes_are_refused_announced_or_not(http: str) -> None:
    pytest.importorskip(http)

    def parts() -> Iterator[bytes]:
        for _ in range(100):
            yield b" " * 100_000

    with running(Echo(), http=http) as address:
        with httpx2.Client(base_url=address, headers=JSON) as client:
            announced = client.post("/v1/route", content=b" " * 10_000_000)
            chunked = client.post("/v1/route", content=parts())
            assert announced.status_code == chunked.status_code == 413
            assert client.post("/v1/route", json=asked("Number 1")).status_code == 200
        assert figures(address)['prerouter_refused_requests_total{status="413"}'] == 2


def test_a_body_that_never_comes_is_given_up() -> None:
    with running(Echo(), Limits(body_seconds=0.2)) as address:
        host, port = address.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as slow:
            head = b"POST /v1/route HTTP/1.1\r\nhost: h\r\ncontent-type: application/json\r\n"
            slow.sendall(head + b"content-length: 50\r\n\r\n{")
            assert slow.recv(4096).startswith(b"HTTP/1.1 408")


def test_a_head_is_cut_and_cleaned_as_the_router_was_trained() -> None:
    seen = []

    class Looking(Echo):
        def route(self, cases: Any) -> Any:
            seen.extend(cases)
            return super().route(cases)

    with running(Looking()) as address:
        post(address, asked("Number 1", document={"head": "It  begins\n" + "x" * 5_000}))
    assert seen[0].document.head is not None
    assert seen[0].document.head.startswith("It begins x")
    assert len(seen[0].document.head) == 600
    assert seen[0].rag == RagConfig()


def test_a_router_that_fails_costs_its_own_case_and_the_answer_says_so() -> None:
    questions = ["one", "raise", "two", "undecided", "swap", "three"]
    with running(Broken(), fallback=Route.RAG) as address:
        told = post(address, {"cases": [asked(each) for each in questions]})
        counted = figures(address)
    assert "secret" not in told.text
    assert "what the model wrote" not in told.text
    decisions = told.json()["decisions"]
    assert [(each["route"], each["fallback_reason"]) for each in decisions] == [
        ("LC", None),
        ("RAG", "call_failed"),
        ("LC", None),
        ("RAG", "unparsable"),
        ("RAG", "call_failed"),
        ("LC", None),
    ]
    assert [each["fallback"] for each in decisions] == [False, True, False, True, True, False]
    assert counted['prerouter_fallbacks_total{reason="call_failed"}'] == 2
    assert counted['prerouter_fallbacks_total{reason="unparsable"}'] == 1
    assert counted['prerouter_fallbacks_total{reason="timeout"}'] == 0
    assert counted['prerouter_decisions_total{route="LC"}'] == 3
    assert counted['prerouter_decisions_total{route="RAG"}'] == 3
    assert counted["prerouter_lc_rate"] == 0.5
    assert counted["prerouter_request_seconds_count"] == 1


def test_a_panic_costs_its_own_case_and_the_router_goes_on() -> None:
    with running(Broken(), Limits(timeout_seconds=5), fallback=Route.RAG) as address:
        told = post(address, {"cases": [asked(each) for each in ("one", "panic", "two")]}).json()
        later = post(address, asked("three")).json()
    reasons = [each["fallback_reason"] for each in (*told["decisions"], later)]
    assert reasons == [None, "call_failed", None, None]


def test_what_is_not_decided_in_time_gets_the_fallback() -> None:
    held = Held()
    with running(held, Limits(timeout_seconds=0.2), fallback=Route.RAG) as address:
        told = post(address, asked("slow")).json()
        assert (told["route"], told["fallback_reason"]) == ("RAG", "timeout")
        time.sleep(0.1)
        health = httpx2.get(f"{address}/healthz")
        assert (health.status_code, Health.model_validate(health.json()).status) == (503, "stalled")
        assert httpx2.get(f"{address}/healthz/live").status_code == 200
        held.go.set()
        assert post(address, asked("quick")).json()["route"] == "LC"
        assert httpx2.get(f"{address}/healthz").status_code == 200


def test_more_than_the_queue_holds_is_told_to_come_back() -> None:
    held = Held()
    limits = Limits(max_batch=1, queue=2)
    with running(held, limits) as address, ThreadPoolExecutor(4) as pool:
        first = pool.submit(post, address, asked("in hand"))
        assert held.asked.wait(10)
        waiting = [pool.submit(post, address, asked(f"waits {n}")) for n in range(2)]
        while figures(address)["prerouter_queue_length"] < 2:
            time.sleep(0.01)
        refused = post(address, asked("one too many"))
        assert refused.status_code == 503
        assert int(refused.headers["retry-after"]) >= 1
        held.go.set()
        assert [each.result().status_code for each in (first, *waiting)] == [200] * 3
        assert post(address, {"cases": [asked("a"), asked("b"), asked("c")]}).status_code == 413


def test_cases_that_nobody_waits_for_hold_no_place_in_the_queue() -> None:
    held = Held()
    with running(held, Limits(max_batch=1, queue=2, timeout_seconds=0.2)) as address:
        for _ in range(4):
            assert post(address, asked("slow")).json()["fallback_reason"] == "timeout"
        assert figures(address)["prerouter_queue_length"] == 0
        held.go.set()


def test_more_requests_than_are_taken_are_told_to_come_back() -> None:
    held = Held()
    with running(held, Limits(requests=2)) as address, ThreadPoolExecutor(2) as pool:
        in_hand = [pool.submit(post, address, asked(f"waits {n}")) for n in range(2)]
        assert held.asked.wait(10)
        deadline = time.monotonic() + 10
        while (refused := post_nothing(address)).status_code != 503:
            assert time.monotonic() < deadline
        assert int(refused.headers["retry-after"]) >= 1
        assert "2 requests in hand" in refused.json()["error"]
        assert httpx2.get(f"{address}/healthz/live").status_code == 200
        held.go.set()
        assert [each.result().status_code for each in in_hand] == [200] * 2
        assert figures(address)['prerouter_refused_requests_total{status="503"}'] >= 1


def post_nothing(address: str) -> httpx2.Response:
    return httpx2.post(f"{address}/v1/route", content=b"{", headers=JSON)


def test_concurrent_requests_share_batches_up_to_the_limit() -> None:
    echo = Echo(0.05)
    with running(echo, Limits(max_batch=4)) as address, ThreadPoolExecutor(12) as pool:
        told = list(pool.map(lambda n: post(address, asked(f"Number {n}")).json(), range(12)))
    assert [each["rationale"]["free_text"] for each in told] == [f"Number {n}" for n in range(12)]
    assert sum(echo.batches) == 12
    assert max(echo.batches) == 4


@pytest.mark.parametrize(
    "header", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic right"}]
)
def test_without_the_key_nothing_but_health_is_told(header: dict[str, str]) -> None:
    with running(Echo(), api_key="right") as address, httpx2.Client(base_url=address) as http:
        http.headers.update(header)
        denied = [http.post("/v1/route", json=asked("Number 1"))]
        denied += [http.get(path) for path in ("/metrics", "/docs", "/openapi.json", "/else")]
        assert [each.status_code for each in denied] == [401] * 5
        assert denied[0].headers["www-authenticate"] == "Bearer"
        assert http.get("/healthz").status_code == http.get("/healthz/live").status_code == 200
        right = http.post(
            "/v1/route", json=asked("Number 1"), headers={"authorization": "Bearer right"}
        )
        assert right.status_code == 200


def test_the_docs_page_asks_no_other_server(address: str) -> None:
    page = httpx2.get(f"{address}/docs")
    assert page.status_code == 200
    assert "/v1/route" in page.text
    assert "AskedCase" in page.text
    assert "//" not in page.text.replace("<!--", "")
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert httpx2.get(f"{address}/redoc").status_code == 404


def test_health_tells_what_the_router_was_trained_for(address: str) -> None:
    health = Health.model_validate(httpx2.get(f"{address}/healthz").json())
    assert (health.status, health.router.name, health.head_characters) == ("ready", "echo", 600)


def test_a_client_that_hangs_up_harms_nobody(address: str) -> None:
    host, port = address.removeprefix("http://").split(":")
    threads = threading.active_count()
    for _ in range(20):
        with socket.create_connection((host, int(port))) as gone:
            gone.sendall(b"POST /v1/route HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\n{")
    assert post(address, asked("Number 1")).status_code == 200
    assert threading.active_count() <= threads + 1
