from __future__ import annotations

import json
from typing import Any

import pytest

from prerouter.core.protocols import FinishReason
from prerouter.prompts.profile import (
    InferredProfile,
    parse_profile,
    profile_schema,
    with_profile,
)
from prerouter.prompts.render import render_profile
from prerouter.prompts.trace import TraceError
from prerouter.recipe.profile import ProfileSection

from .cases import HOSTILE, bare_case, full_case, hostile_case

FREE = ProfileSection.model_validate({"engine": {"kind": "transformers", "model": "m"}})
CLOSED = FREE.model_copy(
    update={"document_types": ("novel", "report"), "task_types": ("lookup", "summary")}
)
NOTHING = {"title": None, "document_type": None, "task_type": None}


def whole(**changes: Any) -> str:
    fields = {"title": "The Keepers’ Journal", "document_type": "novel", "task_type": "lookup"}
    return json.dumps(fields | changes)


def test_question_and_head_are_shown_and_nothing_else() -> None:
    system, user = render_profile(full_case(), FREE)
    data = json.loads(user.content.split("\n")[1])
    case = full_case()
    assert data == {"question": case.question, "document_head": case.document.head}
    assert system == render_profile(bare_case(), FREE)[0]


def test_a_head_that_is_missing_is_left_out() -> None:
    data = json.loads(render_profile(bare_case(), FREE)[1].content.split("\n")[1])
    assert data == {"question": "Who signs the letter?"}


def test_a_hostile_text_neither_closes_its_block_nor_forges_a_turn() -> None:
    system, user = render_profile(hostile_case(), FREE)
    assert system == render_profile(full_case(), FREE)[0]
    first, data, last = user.content.split("\n")
    assert (first, last) == ("<case>", "</case>")
    assert json.loads(data) == {"question": HOSTILE, "document_head": HOSTILE}
    assert "<|" not in data


def test_own_types_are_named_in_the_prompt_and_held_by_the_schema() -> None:
    system = render_profile(full_case(), CLOSED)[0].content
    assert 'one of "novel", "report"' in system
    assert 'one of "lookup", "summary"' in system
    fields = profile_schema(CLOSED)["properties"]
    assert fields["document_type"]["enum"] == ["novel", "report", None]
    assert "one of" not in render_profile(full_case(), FREE)[0].content
    assert "enum" not in profile_schema(FREE)["properties"]["task_type"]
    assert list(fields) == profile_schema(CLOSED)["required"]


@pytest.mark.parametrize("section", [FREE, CLOSED])
def test_a_whole_reply_is_a_profile(section: ProfileSection) -> None:
    expected = {
        "title": "The Keepers’ Journal",
        "document_type": "novel",
        "task_type": "lookup",
    }
    assert parse_profile(whole(), "stop", section) == expected
    assert parse_profile(f"```json\n{whole()}\n```", "stop", section) == expected
    assert parse_profile(f"<think>{whole(title='x')}</think>{whole()}", "stop", section) == expected


def test_what_the_model_could_not_tell_is_missing() -> None:
    assert parse_profile(json.dumps(NOTHING), "stop", CLOSED) == NOTHING
    blank = {"title": " ", "document_type": "", "task_type": "\n"}
    assert parse_profile(json.dumps(blank), "stop", FREE) == NOTHING


def test_one_type_has_one_name() -> None:
    found = parse_profile(whole(document_type=" Scientific  Paper\n"), "stop", FREE)
    assert found["document_type"] == "scientific paper"


@pytest.mark.parametrize(
    ("text", "finish", "reason"),
    [
        (whole()[:30], "length", "cut_off"),
        (whole() + " " * 40, "length", "endless_white_space"),
        ("", "error", "call_failed"),
        ("", "stop", "empty"),
        ("It is a novel.", "stop", "no_json"),
        (whole()[:-1], "stop", "invalid_json"),
        ("<think>It is", "stop", "unclosed_thinking"),
        ('{"title": "a", "task_type": "b"}', "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "decision": "LC"}), "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "title": ["a"]}), "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "title": "a" * 201}), "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "title": "\ud800"}), "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "document_type": "poem"}), "stop", "wrong_shape"),
        (json.dumps({**NOTHING, "task_type": "Lookup"}), "stop", "wrong_shape"),
    ],
)
def test_anything_else_is_refused_with_its_reason(
    text: str, finish: FinishReason, reason: str
) -> None:
    with pytest.raises(TraceError) as refused:
        parse_profile(text, finish, CLOSED)
    assert refused.value.reason == reason


def test_a_profile_replaces_what_the_source_knew_and_nothing_else() -> None:
    case = full_case()
    found = InferredProfile(
        question_id=case.question_id,
        title="Inferred",
        task_type="lookup",
        model="m",
        prompt_tokens=1,
        completion_tokens=1,
        prompt_hash="h",
    )
    inferred = with_profile(case, found)
    assert (inferred.document.title, inferred.document.type) == ("Inferred", None)
    assert inferred.task_type == "lookup"
    without = with_profile(case, None)
    assert (without.document.title, without.document.type, without.task_type) == (None, None, None)
    for changed in (inferred, without):
        restored = changed.model_copy(
            update={"task_type": case.task_type, "document": case.document}
        )
        assert restored == case
        assert changed.document.head == case.document.head
        assert changed.document.tokens == case.document.tokens
