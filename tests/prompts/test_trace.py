from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prerouter.core.protocols import FinishReason
from prerouter.core.records import ROUTES, Rationale, Route, Step
from prerouter.prompts.trace import (
    MAX_STEP_CHARACTERS,
    TraceError,
    TraceReason,
    decision_schema,
    format_trace,
    parse_trace,
    split_thinking,
    trace_keys,
    trace_schema,
)
from prerouter.recipe.teach import Paradigm, PromptPart

KEYS = [
    "characterisation",
    "distribution",
    "window_feasibility",
    "retrieval_feasibility",
    "model_capability",
    "efficiency",
    "reflection",
    "decision",
]
PARTS: tuple[PromptPart, ...] = (
    "reflection",
    "decision_rules",
    "step_1",
    "step_2",
    "step_3",
    "step_4",
    "step_5",
    "step_6",
)


def trace_object(**changes: Any) -> dict[str, Any]:
    value: dict[str, Any] = {key: f"about {key}" for key in KEYS}
    return {**value, "decision": "LC", **changes}


WHOLE = json.dumps(trace_object())


def reason_of(
    text: str,
    finish_reason: FinishReason = "stop",
    paradigm: Paradigm = "guided",
    without: tuple[PromptPart, ...] = (),
) -> TraceReason:
    with pytest.raises(TraceError) as caught:
        parse_trace(text, finish_reason, paradigm=paradigm, without=without)
    return caught.value.reason


def test_the_schema_holds_the_keys_in_order_and_nothing_else() -> None:
    schema = trace_schema()
    assert list(schema["properties"]) == schema["required"] == KEYS
    assert schema["additionalProperties"] is False
    assert schema["properties"]["decision"]["enum"] == ["RAG", "LC"]
    for key in KEYS[:-1]:
        assert schema["properties"][key]["maxLength"] == MAX_STEP_CHARACTERS
    assert decision_schema()["required"] == ["decision"]


@pytest.mark.parametrize("part", PARTS)
def test_what_the_prompt_leaves_out_the_schema_leaves_out(part: PromptPart) -> None:
    missing = set(KEYS) - set(trace_schema((part,))["required"])
    assert len(missing) == (0 if part == "decision_rules" else 1)
    if part.startswith("step_"):
        assert missing == {KEYS[int(part[-1]) - 1]}
    whole = {key: value for key, value in trace_object().items() if key not in missing}
    assert parse_trace(json.dumps(whole), "stop", without=(part,)).decision is Route.LC
    if missing:
        assert reason_of(json.dumps(whole)) is TraceReason.MISSING_STEP
        assert reason_of(WHOLE, without=(part,)) is TraceReason.WRONG_SHAPE


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"\n {WHOLE} \n",
        json.dumps(trace_object(), indent=2),
        f"```json\n{WHOLE}\n```",
        f"```\n{json.dumps(trace_object(), indent=1)}\n```\n",
        f"<think>First RAG.</think>\n\n{WHOLE}",
    ],
)
def test_a_whole_reply_is_read(text: str) -> None:
    parsed = parse_trace(text, "stop")
    assert parsed.decision is Route.LC
    assert list(parsed.rationale.steps) == list(Step)
    assert parsed.rationale.steps[Step.EFFICIENCY] == "about efficiency"
    assert parsed.rationale.reflection == "about reflection"
    assert parsed.reasoning == ("First RAG." if "think" in text else None)


def without_key(key: str) -> str:
    return json.dumps({k: v for k, v in trace_object().items() if k != key})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", TraceReason.EMPTY),
        (" \n\t ", TraceReason.EMPTY),
        ("<think>\n\n</think>\n\n", TraceReason.EMPTY),
        ("I would take LC.", TraceReason.NO_JSON),
        ("Decision: LC", TraceReason.NO_JSON),
        (f"Here it is: {WHOLE}", TraceReason.NO_JSON),
        (f"[{WHOLE}]", TraceReason.NO_JSON),
        ('"LC"', TraceReason.NO_JSON),
        (WHOLE[:-2], TraceReason.INVALID_JSON),
        (f"{WHOLE}\n{WHOLE}", TraceReason.INVALID_JSON),
        (f"{WHOLE} So I take RAG.", TraceReason.INVALID_JSON),
        (WHOLE.replace('"', "'"), TraceReason.INVALID_JSON),
        (WHOLE.replace('"about efficiency"', "9" * 5000), TraceReason.INVALID_JSON),
        (f"```json\n{WHOLE}", TraceReason.NO_JSON),
        (without_key("characterisation"), TraceReason.MISSING_STEP),
        (without_key("reflection"), TraceReason.MISSING_STEP),
        (without_key("decision"), TraceReason.BAD_DECISION),
        (json.dumps(trace_object(distribution="  ")), TraceReason.MISSING_STEP),
        (json.dumps(trace_object(decision="rag")), TraceReason.BAD_DECISION),
        (json.dumps(trace_object(decision="RAG or LC")), TraceReason.BAD_DECISION),
        (json.dumps(trace_object(decision=None)), TraceReason.BAD_DECISION),
        (json.dumps(trace_object(decision=["LC"])), TraceReason.BAD_DECISION),
        (json.dumps(trace_object(efficiency=3)), TraceReason.WRONG_SHAPE),
        (json.dumps(trace_object(confidence="high")), TraceReason.WRONG_SHAPE),
        (json.dumps({"decision": "LC", **trace_object()}), TraceReason.WRONG_SHAPE),
        (WHOLE[:-1] + ', "decision": "RAG"}', TraceReason.WRONG_SHAPE),
        (WHOLE.replace("about efficiency", "\\ud800"), TraceReason.WRONG_SHAPE),
        (json.dumps(trace_object(efficiency="x" * 801)), TraceReason.WRONG_SHAPE),
        (json.dumps(trace_object(efficiency="x" * 60_000)), TraceReason.TOO_LONG),
    ],
)
def test_a_reply_that_is_no_trace_is_refused(text: str, reason: TraceReason) -> None:
    assert reason_of(text) is reason


def test_a_reply_at_the_token_limit_is_refused_even_where_it_reads_as_whole() -> None:
    assert reason_of(WHOLE, "length") is TraceReason.CUT_OFF
    assert reason_of(WHOLE[:30], "length") is TraceReason.CUT_OFF
    assert reason_of("<think>on and on", "length") is TraceReason.CUT_OFF
    assert reason_of(WHOLE[:30] + "\n" * 500, "length") is TraceReason.ENDLESS_WHITE_SPACE


def test_a_failed_call_is_no_trace() -> None:
    assert reason_of(WHOLE, "error") is TraceReason.CALL_FAILED


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain", (None, "plain")),
        ("<think>why</think>rest", ("why", "rest")),
        ("\n<think>\nwhy\n</think>\n\nrest", ("why", "rest")),
        ("why</think>rest", ("why", "rest")),
        ("<think>a</think>b</think>c", ("a</think>b", "c")),
        ("<think>a</think><think>b</think>c", ("a</think><think>b", "c")),
        ("<think>\n\n</think>\n\nrest", (None, "rest")),
        ("<think>why</think>", ("why", "")),
    ],
)
def test_thinking_is_taken_off_at_the_last_closing_tag(
    text: str, expected: tuple[str | None, str]
) -> None:
    assert split_thinking(text) == expected


@pytest.mark.parametrize(
    "text", ["<think>why", f"<think>{WHOLE}", f"{WHOLE}<think>but", "<think>a</think><think>b"]
)
def test_unclosed_thinking_is_refused(text: str) -> None:
    assert reason_of(text) is TraceReason.UNCLOSED_THINKING


def test_no_decision_is_read_out_of_thinking_text() -> None:
    other = json.dumps(trace_object(decision="RAG"))
    assert parse_trace(f"<think>{other}</think>{WHOLE}", "stop").decision is Route.LC
    assert reason_of(f"<think>{WHOLE}</think>") is TraceReason.EMPTY
    assert reason_of(f"<think>{WHOLE}</think>I am done.") is TraceReason.NO_JSON
    assert reason_of(f"{WHOLE}</think>") is TraceReason.EMPTY


@pytest.mark.parametrize("tag", ['</think>{"decision": "RAG"}', "<think>", "<think>RAG</think>"])
def test_a_tag_inside_a_step_is_text_and_decides_nothing(tag: str) -> None:
    text = json.dumps(trace_object(reflection=f"a {tag}"))
    for written in (text, f" {text}\n", f"```json\n{text}\n```"):
        assert split_thinking(written)[0] is None
        parsed = parse_trace(written, "stop")
        assert (parsed.decision, parsed.rationale.reflection) == (Route.LC, f"a {tag}")
        assert parsed.reasoning is None


def test_json_before_a_closing_tag_is_thinking() -> None:
    other = json.dumps(trace_object(decision="RAG"))
    parsed = parse_trace(f"{other}</think>{WHOLE}", "stop")
    assert (parsed.decision, parsed.reasoning) == (Route.LC, other)


def test_direct() -> None:
    parsed = parse_trace('{"decision": "RAG"}', "stop", paradigm="direct")
    assert parsed.decision is Route.RAG
    assert parsed.rationale == Rationale()
    assert reason_of(WHOLE, paradigm="direct") is TraceReason.WRONG_SHAPE
    assert reason_of("RAG", paradigm="direct") is TraceReason.NO_JSON


@pytest.mark.parametrize(
    "last", ["Decision: LC", "**Decision:** LC", "**Decision: LC**", "decision: LC.", "Decision:LC"]
)
def test_unconstrained(last: str) -> None:
    parsed = parse_trace(f"It is long.\nDecision: RAG?\n{last}\n", "stop", paradigm="unconstrained")
    assert parsed.decision is Route.LC
    assert parsed.rationale == Rationale(free_text="It is long.\nDecision: RAG?")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("Decision: LC", TraceReason.MISSING_STEP),
        ("Reasons.\nDecision: LC\nOr perhaps not.", TraceReason.BAD_DECISION),
        ("Reasons.\nDecision: LC or RAG", TraceReason.BAD_DECISION),
        ("Reasons.\nDecision: lc", TraceReason.BAD_DECISION),
        ("Reasons. Decision: LC", TraceReason.BAD_DECISION),
        ("<think>Reasons.\nDecision: LC</think>", TraceReason.EMPTY),
    ],
)
def test_unconstrained_without_a_last_line_that_decides(text: str, reason: TraceReason) -> None:
    assert reason_of(text, paradigm="unconstrained") is reason


# Any character but half of a surrogate pair, which no tokenizer writes; never blank.
STEP_TEXT = st.text(min_size=1, max_size=80).filter(str.strip)
STEPS = st.fixed_dictionaries(dict.fromkeys(Step, STEP_TEXT))


@given(STEPS, STEP_TEXT, st.sampled_from(ROUTES))
def test_what_is_written_is_read_back(
    steps: dict[Step, str], reflection: str, decision: Route
) -> None:
    rationale = Rationale(steps=steps, reflection=reflection)
    text = format_trace(rationale, decision)
    parsed = parse_trace(text, "stop")
    assert (parsed.rationale, parsed.decision, parsed.reasoning) == (rationale, decision, None)
    assert len(text.splitlines()) == 1
    assert text.endswith(f'"decision": "{decision.value}"}}')


@given(
    STEPS,
    STEP_TEXT,
    st.sampled_from(["</think>", "<|im_end|>", "<think>", "```\n", "[/INST]", '"}', "\u2028"]),
)
def test_no_trace_holds_a_special_token(steps: dict[Step, str], reflection: str, odd: str) -> None:
    rationale = Rationale(
        steps={**steps, Step.EFFICIENCY: f"a{odd}b"}, reflection=f"{odd}{reflection}"
    )
    text = format_trace(rationale, Route.RAG)
    assert "<" not in text
    assert "[" not in text
    assert parse_trace(text, "stop").rationale == rationale


@pytest.mark.parametrize("part", PARTS)
def test_a_trace_without_a_part_is_written_without_it(part: PromptPart) -> None:
    keys = trace_keys((part,))
    rationale = Rationale(
        steps={step: "found" for step in Step if step.value in keys},
        reflection="looked again" if "reflection" in keys else None,
    )
    text = format_trace(rationale, Route.LC, (part,))
    assert list(json.loads(text)) == keys
    assert parse_trace(text, "stop", without=(part,)).rationale == rationale


@pytest.mark.parametrize(
    ("rationale", "reason"),
    [
        (Rationale(), TraceReason.MISSING_STEP),
        (Rationale(free_text="It is long."), TraceReason.MISSING_STEP),
        (Rationale(steps=dict.fromkeys(Step, "found")), TraceReason.MISSING_STEP),
        (
            Rationale(steps=dict.fromkeys(Step, "found"), reflection="x" * 801),
            TraceReason.WRONG_SHAPE,
        ),
    ],
)
def test_a_rationale_that_is_no_guided_trace_is_not_written(
    rationale: Rationale, reason: TraceReason
) -> None:
    with pytest.raises(TraceError) as caught:
        format_trace(rationale, Route.LC)
    assert caught.value.reason is reason


def test_steps_are_written_in_their_order_whatever_order_they_came_in() -> None:
    steps = dict.fromkeys(reversed(Step), "found")
    text = format_trace(Rationale(steps=steps, reflection="again"), Route.RAG)
    assert list(json.loads(text)) == KEYS


MEGABYTE = 1_000_000


@pytest.mark.parametrize("paradigm", ["guided", "direct", "unconstrained"])
@pytest.mark.parametrize(
    "text",
    [
        "{" * MEGABYTE,
        '{"a":' * (MEGABYTE // 5),
        '{"a":' * 9_000,
        '{"a":[' * 8_000,
        "```" * (MEGABYTE // 3),
        "```json\n" * 6_000,
        "<think>" * (MEGABYTE // 7),
        "</think>" * (MEGABYTE // 8),
        " " * MEGABYTE,
        "\n" * MEGABYTE + "{",
        "x\n" + "*" * 49_000,
        "Decision: " * 4_900,
        "x\nDecision:" + "_" * 49_000 + "!",
    ],
    ids=lambda text: f"{text[:8]!r}x{len(text)}",
)
def test_a_huge_hostile_reply_is_refused_at_once(text: str, paradigm: Paradigm) -> None:
    began = time.perf_counter()
    for finish_reason in ("stop", "length"):
        with pytest.raises(TraceError):
            parse_trace(text, finish_reason, paradigm=paradigm)
    assert time.perf_counter() - began < 1.0
