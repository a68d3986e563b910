"""Rendered prompts, character for character. A change of one is a new PROMPT_VERSION.

Written anew by `python -m tests.prompts.test_golden` from the repository's root.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.records import Message, MetadataSetting, Reference
from prerouter.prompts.answer import render_lc, render_rag
from prerouter.prompts.checks import render_query_type, render_verdict
from prerouter.prompts.judge import render_claims, render_judge, render_support
from prerouter.prompts.render import (
    PROMPT_VERSION,
    render_profile,
    render_student,
    render_teacher,
)
from prerouter.recipe.profile import ProfileSection
from prerouter.recipe.teach import TeacherPrompt

from .cases import HOSTILE, bare_case, full_case, hostile_case

GOLDEN = Path(__file__).parents[1] / "golden" / "prompts"
FULL, HEAD_ONLY = MetadataSetting.FULL, MetadataSetting.HEAD_ONLY
PROFILER = ProfileSection.model_validate(
    {"engine": {"kind": "transformers", "model": "m"}, "task_types": ["lookup", "comparison"]}
)

GOLD = Reference(question_id="q", answer="In March.")
UNTOLD = Reference(question_id="q", answerable=False)

PROMPTS: dict[str, tuple[Message, ...]] = {
    "compact": render_student(full_case(), "compact", FULL),
    "compact_head_only": render_student(full_case(), "compact", HEAD_ONLY),
    "compact_bare": render_student(bare_case(), "compact", FULL),
    "compact_hostile": render_student(hostile_case(), "compact", FULL),
    "guided": render_teacher(full_case(), TeacherPrompt()),
    "guided_hostile_head_only": render_teacher(hostile_case(), TeacherPrompt(metadata=HEAD_ONLY)),
    "guided_ablated": render_teacher(
        full_case(), TeacherPrompt(without=("step_2", "decision_rules", "reflection"))
    ),
    "direct": render_teacher(full_case(), TeacherPrompt(paradigm="direct")),
    "unconstrained": render_teacher(full_case(), TeacherPrompt(paradigm="unconstrained")),
    "profile": render_profile(full_case(), PROFILER),
    "judge_answer": render_judge("When did it freeze?", GOLD, "In May."),
    "judge_abstention": render_judge("Who paid?", UNTOLD, "The document does not tell."),
    "judge_claims": render_claims("When did it freeze?", "It froze in March and thawed in May."),
    "judge_support": render_support(["It froze in March."], ["It froze in March."]),
    "answer_rag": render_rag(full_case(), ["The north tower first.", HOSTILE]),
    "verdict": render_verdict(full_case(), ["The north tower first.", HOSTILE]),
    "query_type": render_query_type(hostile_case()),
    "answer_lc": render_lc(full_case(), ["The lamp failed.\nIt was mended."]),
    "answer_lc_cut": render_lc(hostile_case(), [HOSTILE, "It ended."], ["In May", HOSTILE]),
}


def as_text(messages: tuple[Message, ...]) -> str:
    turns = [f"--- {message.role}\n{message.content}\n" for message in messages]
    return f"--- prompt version {PROMPT_VERSION}\n" + "".join(turns)


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_is_as_recorded(name: str) -> None:
    assert as_text(PROMPTS[name]) == (GOLDEN / f"{name}.txt").read_text("utf-8")


def test_every_recorded_prompt_is_rendered() -> None:
    assert {path.stem for path in GOLDEN.glob("*.txt")} == set(PROMPTS)


if __name__ == "__main__":
    for recorded, prompt in PROMPTS.items():
        (GOLDEN / f"{recorded}.txt").write_text(as_text(prompt), "utf-8")
