"""What an answering model is asked: the text is data, and the question is the case's own."""

from __future__ import annotations

import json

import pytest

from prerouter.core.records import Message
from prerouter.prompts.answer import DECLINE, render_lc, render_rag

from .cases import HOSTILE, full_case, hostile_case

LC = render_lc(hostile_case(), [HOSTILE, HOSTILE], [HOSTILE, "May"])
RAG = render_rag(hostile_case(), [HOSTILE, HOSTILE], [HOSTILE, "May"])


@pytest.mark.parametrize(("prompt", "block"), [(LC, "document"), (RAG, "excerpts")])
def test_hostile_text_opens_and_closes_nothing(prompt: tuple[Message, ...], block: str) -> None:
    system, user = prompt
    assert HOSTILE not in system.content
    for name in (block, "question", "choices"):
        lines = user.content.splitlines()
        assert lines.count(f"<{name}>") == lines.count(f"</{name}>") == 1
        assert user.content.count(f"{name}>") == 2
    assert "<|im_start|>" not in user.content
    assert "[INST]" not in user.content
    data = [line[line.index('"') :] for line in user.content.splitlines() if '"' in line]
    # Two texts, the question and two choices.
    assert [json.loads(line) for line in data] == [HOSTILE] * 4 + ["May"]


@pytest.mark.parametrize("prompt", [LC, RAG])
def test_a_reader_is_told_how_to_decline(prompt: tuple[Message, ...]) -> None:
    assert prompt[0].content.endswith(DECLINE)


def test_nothing_of_the_case_but_its_question_is_shown() -> None:
    case = full_case()
    for prompt in (render_lc(case, ["Text."]), render_rag(case, ["Text."])):
        text = "".join(message.content for message in prompt)
        assert json.dumps(case.question) in text
        for hidden in ("SECRET", "Keepers", "novel", "90", "qwen3", "comparison", "October"):
            assert hidden not in text


def test_the_document_stands_before_the_question_and_the_system_turn_is_one() -> None:
    one, other = (
        render_lc(case, ["Text."], choices)
        for case, choices in ((full_case(), ()), (hostile_case(), ("May", "June")))
    )
    assert one[0] == other[0]
    start = one[1].content.partition("<question>")[0]
    assert "Text." in start
    assert other[1].content.startswith(start)


def test_a_letter_is_asked_for_where_there_are_choices_only() -> None:
    assert "letter" not in render_lc(full_case(), ["Text."])[1].content
    with_choices = render_lc(full_case(), ["Text."], ["May", "June"])[1].content
    assert 'A: "May"\nB: "June"\n</choices>\n' in with_choices
    with pytest.raises(ValueError, match="27 choices"):
        render_lc(full_case(), ["Text."], ["May"] * 27)
