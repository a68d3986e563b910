"""teach through the command line, with a teacher on loopback that fails in every way."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from prerouter.cli.main import main
from tests.e2e.teacher_server import THINKING, TeacherServer, teacher, write_recipe

GOOD = [f"What is said in part {number}?" for number in range(4)]

# What is recorded of a case whose every attempt meets the fault: reason, detail, attempts.
FAULTS = {
    "busy": ("call_failed", "HTTP 429: slow down (after 3 attempts)", 3),
    "busy_second": ("call_failed", "HTTP 429: slow down (after 3 attempts)", 3),
    "broken": ("call_failed", "HTTP 500: out of memory (after 3 attempts)", 3),
    "dropped": ("call_failed", "connection failed: RemoteProtocolError (after 3 attempts)", 3),
    "hanging": ("call_failed", "no reply within 0.5 seconds (after 3 attempts)", 3),
    "not_json": ("call_failed", "malformed reply: not JSON (after 3 attempts)", 3),
    "no_choices": ("call_failed", "0 choices instead of 1 (after 3 attempts)", 3),
    "two_choices": ("call_failed", "2 choices instead of 1 (after 3 attempts)", 3),
    "null": ("call_failed", "neither content nor reasoning (after 3 attempts)", 3),
    "null_beside_reasoning": ("call_failed", "reasoning without content (after 3 attempts)", 3),
    # Asked again with another seed: the same one would run to the limit again.
    "cut_off": ("cut_off", "the reply reached the token limit", 3),
    "only_reasoning": ("cut_off", "the reply reached the token limit", 3),
    "white_space": ("endless_white_space", "the reply reached the token limit", 3),
    # A whole reply that is no trace is paid once.
    "never_closed": ("unclosed_thinking", "thinking text has no closing tag", 1),
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TeacherServer]:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with teacher() as server:
        yield server


@pytest.fixture
def prerouter(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """The command line in this process: its exit code and what it told."""

    def call(*arguments: object) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["prerouter", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), capsys.readouterr().err

    return call


def rows(folder: Path, file: str) -> list[dict[str, object]]:
    lines = (folder / "runs" / "taught" / "teach" / file).read_text().splitlines()
    return [json.loads(line) for line in lines]


def taught(folder: Path) -> list[str]:
    """The questions that have a trace, in the order of the file, each trace about its own."""
    found = []
    for row in rows(folder, "rows.jsonl"):
        steps = row["rationale"]["steps"]
        (about,) = {text.removeprefix(f"{step} of ") for step, text in steps.items()}
        found.append(about)
    return found


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_its_case_only(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]], fault: str
) -> None:
    reason, detail, attempts = FAULTS[fault]
    for_good, for_now = f"{fault} all of it?", f"{fault} 2 times?"
    passes = attempts > 1
    questions = [*GOOD[:2], for_good, *([for_now] if passes else []), *GOOD[2:]]
    recipe = write_recipe(tmp_path, server, questions, engine={"timeout_seconds": 0.5})
    assert prerouter("cases", recipe)[0] == 0

    code, told = prerouter("teach", recipe)
    assert code == 0
    assert f"{len(questions) - 1} rows; 1 refused ({reason} 1)" in told
    # The rest unharmed, and in the order of the cases whatever came back first.
    assert taught(tmp_path) == [question for question in questions if question != for_good]
    (reject,) = rows(tmp_path, "rejects.jsonl")
    assert (reject["reason"], reject["detail"]) == (reason, detail)
    assert reject["transient"] is (reason == "call_failed")
    expected = dict.fromkeys(GOOD, 1) | {for_good: attempts} | ({for_now: 3} if passes else {})
    assert server.asked == expected
    if fault == "busy_second":
        first, second, _ = server.seen.times[for_now]
        assert second - first >= 1


@pytest.mark.parametrize("fault", ["busy", "hanging", "cut_off"])
def test_too_many_failures_end_the_run_with_a_count(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]], fault: str
) -> None:
    reason, _, _ = FAULTS[fault]
    failing = [f"{fault} 3 times {number}?" for number in range(2)]
    recipe = write_recipe(tmp_path, server, [*GOOD, *failing], engine={"timeout_seconds": 0.5})
    assert prerouter("cases", recipe)[0] == 0

    code, told = prerouter("teach", recipe)
    assert code == 1
    assert "error: teach: 2 of 6 were refused (33.3%); teach.max_failed_share allows 20.0%" in told
    assert taught(tmp_path) == GOOD
    assert [row["reason"] for row in rows(tmp_path, "rejects.jsonl")] == [reason] * 2
    assert not (tmp_path / "runs/taught/teach/manifest.json").exists()

    # The server is well again: what had failed is asked for, what is there is not paid twice.
    code, told = prerouter("teach", recipe)
    assert dict.fromkeys(GOOD, 1).items() <= server.asked.items()
    if reason == "call_failed":
        assert code == 0, told
        assert taught(tmp_path) == [*GOOD, *failing]
        assert [server.asked[question] for question in failing] == [4, 4]
    else:
        # A reply that came is no failed call: asking again is left to a change of the recipe.
        assert code == 1
        assert [server.asked[question] for question in failing] == [3, 3]


def test_calls_that_failed_in_a_finished_stage_are_made_again_where_asked_for(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]]
) -> None:
    failing = "broken 3 times?"
    recipe = write_recipe(tmp_path, server, [*GOOD, failing])
    assert prerouter("cases", recipe)[0] == 0
    code, told = prerouter("teach", recipe)
    assert (code, taught(tmp_path)) == (0, GOOD)
    assert "1 refused (call_failed 1); --retry-failed makes 1 failed calls again;" in told
    code, told = prerouter("teach", recipe)
    assert "--retry-failed makes 1 failed calls again; unchanged, passed over" in told
    assert server.asked[failing] == 3

    code, told = prerouter("teach", recipe, "--retry-failed")
    assert (code, taught(tmp_path)) == (0, [*GOOD, failing])
    assert "refused" not in told
    assert server.asked == dict.fromkeys(GOOD, 1) | {failing: 4}


def test_a_server_that_moved_is_told_of_without_paying_twice(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]]
) -> None:
    questions = [*GOOD, "broken all of it?"]
    recipe = write_recipe(tmp_path, server, questions, max_failed_share=0)
    assert prerouter("cases", recipe)[0] == 0
    assert prerouter("teach", recipe)[0] == 1
    with teacher() as other:
        moved = f"teach.engine.base_url={other.base_url}"
        gentler = ("--set", moved, "--set", "teach.engine.concurrency=1")
        code, told = prerouter("teach", recipe, *gentler, "--set", "teach.max_failed_share=0.5")
        assert code == 0, told
        assert other.asked == {"broken all of it?": 3}
    assert taught(tmp_path) == GOOD


def test_what_attempts_took_is_in_the_manifest_and_in_no_trace(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]]
) -> None:
    recipe = write_recipe(tmp_path, server, [*GOOD, "cut_off 2 times?"])
    assert prerouter("cases", recipe)[0] == 0
    assert prerouter("teach", recipe)[0] == 0
    manifest = json.loads((tmp_path / "runs/taught/teach/manifest.json").read_text())
    attempt = manifest["report"]["last_attempt"]
    assert attempt["calls"] == 5
    assert (attempt["prompt_tokens"], attempt["completion_tokens"]) == (10 * 7, 3 * 7)
    assert {row["completion_tokens"] for row in rows(tmp_path, "rows.jsonl")} == {3}


def test_an_account_without_money_ends_it_and_loses_no_case(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]]
) -> None:
    poor = [f"payment 1 time {number}?" for number in range(30)]
    recipe = write_recipe(tmp_path, server, [*GOOD, *poor])
    assert prerouter("cases", recipe)[0] == 0
    code, told = prerouter("teach", recipe)
    assert code == 1
    assert "calls in a row failed alike: HTTP 402: Insufficient Balance; top up" in told
    assert sum(question in server.asked for question in poor) < 30
    # Each is refused once, those that come after the end in the second run.
    prerouter("teach", recipe)
    code, told = prerouter("teach", recipe)
    assert code == 0, told
    assert taught(tmp_path) == [*GOOD, *poor]
    assert set(server.asked.values()) == {1, 2}


def test_answers_out_of_order_stand_in_the_order_of_the_cases(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]]
) -> None:
    questions = [f"What is said in part {number}?" for number in range(40)]
    recipe = write_recipe(tmp_path, server, questions, engine={"concurrency": 16})
    assert prerouter("cases", recipe)[0] == 0
    assert prerouter("teach", recipe)[0] == 0
    answered = [words for words in server.answered if words in questions]
    assert sorted(answered) == sorted(questions)
    # The play is worth its name: many answers overtook others, by the order they were asked for.
    asked = [words for words in server.asked if words in questions]
    assert answered != asked
    assert taught(tmp_path) == questions


@pytest.mark.parametrize("keep", [True, False])
def test_thinking_text_is_taken_off_and_decides_nothing(
    server: TeacherServer, tmp_path: Path, prerouter: Callable[..., tuple[int, str]], keep: bool
) -> None:
    questions = [f"{way} thought?" for way in THINKING]
    recipe = write_recipe(tmp_path, server, questions, thinking=True, keep_reasoning=keep)
    assert prerouter("cases", recipe)[0] == 0
    code, told = prerouter("teach", recipe)
    assert code == 0, told
    assert taught(tmp_path) == [words for words in questions if not words.startswith("left_open")]
    (reject,) = rows(tmp_path, "rejects.jsonl")
    assert reject["reason"] == "unclosed_thinking"
    for words, row in zip(taught(tmp_path), rows(tmp_path, "rows.jsonl"), strict=True):
        if not keep or words.startswith("with_no_tag"):
            assert "reasoning" not in row
        else:
            thought = json.loads(row["reasoning"])
            assert {thought["decision"], row["decision"]} == {"RAG", "LC"}
