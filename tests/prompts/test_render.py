from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise

import pytest
from jinja2 import UndefinedError
from pydantic import Field

from prerouter.core.records import (
    DocumentProfile,
    Message,
    MetadataSetting,
    Reference,
    RoutingCase,
    Step,
)
from prerouter.prompts import render
from prerouter.prompts.render import prompt_hash, render_student, render_teacher, shown_case
from prerouter.prompts.trace import trace_keys, trace_schema
from prerouter.recipe.teach import PromptPart, TeacherPrompt

from .cases import HOSTILE, bare_case, full_case, hostile_case

FULL = MetadataSetting.FULL
Renderer = Callable[[RoutingCase], tuple[Message, ...]]
RENDERERS: dict[str, Renderer] = {
    "compact": lambda case: render_student(case, "compact", FULL),
    "student guided": lambda case: render_student(case, "guided", FULL),
    "guided": lambda case: render_teacher(case, TeacherPrompt()),
    "direct": lambda case: render_teacher(case, TeacherPrompt(paradigm="direct")),
    "unconstrained": lambda case: render_teacher(case, TeacherPrompt(paradigm="unconstrained")),
}
every_renderer = pytest.mark.parametrize("renderer", RENDERERS.values(), ids=RENDERERS.keys())


def case_data(messages: tuple[Message, ...]) -> dict[str, object]:
    """The JSON object between the delimiters of a prompt that is not compact."""
    first, data, last = messages[1].content.split("\n")
    assert (first, last) == ("<case>", "</case>")
    loaded: dict[str, object] = json.loads(data)
    return loaded


@every_renderer
def test_all_metadata_are_shown_and_no_identifier(renderer: Renderer) -> None:
    case = full_case()
    text = "\n".join(message.content for message in renderer(case))
    assert "SECRET" not in text
    for shown in (case.question, "comparison", "Keepers’", "novel", "90254", "northern tower"):
        assert shown in text
    for shown in ("qwen3-235b-a22b", "131072", "thinking", "600", "100"):
        assert shown in text


@every_renderer
def test_a_hostile_text_neither_closes_its_block_nor_forges_a_turn(renderer: Renderer) -> None:
    system, user = renderer(hostile_case())
    assert system == renderer(full_case())[0]
    assert user.content.count("</case>") == 1
    assert user.content.endswith("\n</case>")
    for forged in ("<|", "<think>", "</think>", "[INST]", "<start_of_turn>", "\u2028", "\x00"):
        assert forged not in user.content
    # Nothing of a stranger's begins a line, where it could pass for a field or a decision.
    assert not any(line.startswith("Decision") for line in user.content.splitlines())
    assert "{{ question }}" in user.content


def test_the_json_holds_the_hostile_text_whole() -> None:
    data = case_data(render_teacher(hostile_case(), TeacherPrompt()))
    assert data["question"] == HOSTILE
    assert data["document_head"] == HOSTILE


@every_renderer
def test_what_is_missing_is_left_out(renderer: Renderer) -> None:
    user = renderer(bare_case())[1].content
    assert "Who signs the letter?" in user
    for absent in ("None", "null", "title", "head", "window", "%", "percent", "tokens: ", "type"):
        assert absent not in user


def test_blank_metadata_count_as_missing() -> None:
    document = DocumentProfile(document_id="d", title="  ", head="", tokens=0)
    case = bare_case().model_copy(update={"document": document, "task_type": ""})
    shown = shown_case(case, FULL)
    assert (shown.document_title, shown.document_head, shown.task_type) == (None, None, None)
    assert (shown.document_tokens, shown.percent_retrieved) == (0, None)


@pytest.mark.parametrize("form", ["guided", "compact"])
def test_head_only_hides_title_and_types(form: render.StudentForm) -> None:
    user = render_student(full_case(), form, MetadataSetting.HEAD_ONLY)[1].content
    for hidden in ("Keepers", "novel", "comparison", "title", "type"):
        assert hidden not in user
    for shown in ("northern tower", "90254", "lighthouses", "qwen3-235b-a22b", "131072", "600"):
        assert shown in user


def test_generated_renders_what_the_case_holds() -> None:
    generated = render_student(full_case(), "compact", MetadataSetting.GENERATED)
    assert generated == render_student(full_case(), "compact", FULL)


@pytest.mark.parametrize(
    ("tokens", "window", "fits", "of_window", "retrieved"),
    [
        (90_254, 131_072, True, 69, 3),
        (131_072, 131_072, True, 100, 2),
        (131_073, 131_072, False, 100, 2),
        (1_000_000, 8_192, False, 12_207, 0.3),
        (200, 131_072, True, 0.15, 100),
    ],
)
def test_derived_figures(
    tokens: int, window: int, fits: bool, of_window: float, retrieved: float
) -> None:
    case = full_case()
    case = case.model_copy(
        update={
            "document": case.document.model_copy(update={"tokens": tokens}),
            "answer_model": case.answer_model.model_copy(update={"context_window": window}),
        }
    )
    shown = shown_case(case, FULL)
    assert shown.fits_window is fits
    assert (shown.percent_of_window, shown.percent_retrieved) == (of_window, retrieved)


class LabelledCase(RoutingCase):
    gold: str = Field(default="SECRET")


@pytest.mark.parametrize(
    "other",
    [
        Reference(question_id="q", answer="SECRET"),
        LabelledCase(**full_case().model_dump()),
        full_case().model_dump(),
        None,
    ],
)
@every_renderer
def test_nothing_but_a_routing_case_is_rendered(renderer: Renderer, other: object) -> None:
    with pytest.raises(TypeError, match="RoutingCase and nothing else"):
        renderer(other)  # type: ignore[arg-type]


PARTS: dict[PromptPart, str] = {
    "reflection": "Reflection: before you decide",
    "decision_rules": "Decision rules, where",
    "step_1": "characterisation (Task and document)",
    "step_2": "distribution (Task and document)",
    "step_3": "window_feasibility (Feasibility)",
    "step_4": "retrieval_feasibility (Feasibility)",
    "step_5": "model_capability (Capability)",
    "step_6": "efficiency (Efficiency)",
}


@pytest.mark.parametrize("part", PARTS)
def test_every_part_of_guided_can_be_left_out(part: PromptPart) -> None:
    system = render_teacher(full_case(), TeacherPrompt(without=(part,)))[0].content
    for name, opening in PARTS.items():
        assert (opening in system) is (name != part)
    keys = [line.split('"')[1] for line in system.splitlines() if line.startswith('- "')]
    assert keys == trace_keys((part,))
    assert f"\n{len([key for key in keys if key not in ('reflection', 'decision')])}. " in system


@pytest.mark.parametrize("part", PARTS)
def test_what_is_left_out_is_that_part_and_nothing_else(part: PromptPart) -> None:
    def lines(prompt: TeacherPrompt) -> list[str]:
        text = render_teacher(full_case(), prompt)[0].content
        # Steps are numbered anew, which is no change of theirs.
        return [line.lstrip("0123456789") for line in text.splitlines()]

    whole, ablated = lines(TeacherPrompt()), lines(TeacherPrompt(without=(part,)))
    remaining = iter(whole)
    assert all(line in remaining for line in ablated), "a line is new, or elsewhere"
    gone = [line for line in (Counter(whole) - Counter(ablated)).elements() if line]
    key = {f"step_{n}": step.value for n, step in enumerate(Step, 1)}.get(part, part)
    if part == "decision_rules":
        assert len(gone) == 7
        assert all(line.startswith(("Decision rules", "- RAG", "- LC", "- Where")) for line in gone)
    else:
        assert len(gone) == 2
        assert gone[1].startswith(f'- "{key}": ')
    full, left = trace_schema(), trace_schema((part,))
    assert left["properties"] == {k: v for k, v in full["properties"].items() if k != key}
    assert left["required"] == [k for k in full["required"] if k != key]
    user = render_teacher(full_case(), TeacherPrompt(without=(part,)))[1]
    assert user == render_teacher(full_case(), TeacherPrompt())[1]


def test_steps_that_stay_are_numbered_without_a_gap() -> None:
    prompt = TeacherPrompt(without=("step_1", "step_4"))
    system = render_teacher(full_case(), prompt)[0].content
    numbers = [int(line[0]) for line in system.splitlines() if line[:1].isdigit()]
    assert numbers[0] == 1
    assert all(after == before + 1 for before, after in pairwise(numbers))
    assert len(numbers) == 4


def test_the_student_is_asked_as_the_teacher_was() -> None:
    assert render_student(full_case(), "guided", FULL) == render_teacher(
        full_case(), TeacherPrompt()
    )


def test_the_hash_tells_forms_and_parts_apart() -> None:
    hashes = [
        *(prompt_hash(form) for form in ("guided", "compact", "direct", "unconstrained")),
        *(prompt_hash("guided", (part,)) for part in PARTS),
    ]
    assert len(set(hashes)) == len(hashes)
    assert prompt_hash("guided", ("step_1", "step_2")) == prompt_hash(
        "guided", ("step_2", "step_1")
    )


def test_the_hash_follows_version_and_template(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompt_hash("guided")
    monkeypatch.setattr(render, "PROMPT_VERSION", "next")
    after = prompt_hash("guided")
    assert after != before
    source = render._source
    monkeypatch.setattr(render, "_source", lambda name: source(name) + " ")
    assert prompt_hash("guided") != after


def test_a_template_that_names_an_unknown_value_fails() -> None:
    with pytest.raises(UndefinedError):
        render._environment().from_string("{{ label }}").render()
