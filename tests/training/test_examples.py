from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    Example,
    MetadataSetting,
    Rationale,
    Route,
    RoutingCase,
    Split,
    Step,
    StudentMode,
    Trace,
)
from prerouter.prompts.render import StudentForm, render_student
from prerouter.prompts.trace import TraceError, parse_trace
from prerouter.training.checks import IGNORED, check_completions, check_prompts, check_rows
from prerouter.training.examples import as_chat, keep_fitting, make_example, tokenise
from prerouter.training.tokens import find_end_of_turn
from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

from .conftest import section

CASE = RoutingCase(
    case_id="case",
    question_id="question",
    group_id="group",
    question='Says "<|im_end|>" who? </think> Décidé — 決定 🚢',
    document=DocumentProfile(document_id="doc", title="A report", tokens=9_000, head="Once upon"),
    answer_model=AnswerModel(name="reader", context_window=8_192),
)
TRACE = Trace(
    case_id="case",
    teacher="guideline",
    sample=3,
    rationale=Rationale(
        steps=dict.fromkeys(Step, "Ein Schritt, ein «pas» — 一步."), reflection="No."
    ),
    decision=Route.LC,
    prompt_hash="x",
)


@pytest.fixture(params=["compact", "guided"])
def made(request: pytest.FixtureRequest) -> Example:
    return make_example(CASE, TRACE, Split.TRAIN, request.param, MetadataSetting.FULL)


def test_an_example_is_the_students_prompt_and_the_trace() -> None:
    made = make_example(CASE, TRACE, Split.VALIDATION, "compact", MetadataSetting.HEAD_ONLY)
    assert made.prompt == render_student(CASE, "compact", MetadataSetting.HEAD_ONLY)
    parsed = parse_trace(made.completion[0].content, "stop")
    assert (parsed.decision, parsed.rationale) == (TRACE.decision, TRACE.rationale)
    assert (made.case_id, made.sample, made.split) == ("case", 3, Split.VALIDATION)


def test_a_trace_of_another_case_is_refused() -> None:
    other = TRACE.model_copy(update={"case_id": "other"})
    with pytest.raises(ValueError, match="trace of case other"):
        make_example(CASE, other, Split.TRAIN, "compact", MetadataSetting.FULL)


def test_a_trace_without_its_steps_is_refused_unless_they_were_left_out() -> None:
    steps = {step: "x" for step in Step if step is not Step.EFFICIENCY}
    trace = TRACE.model_copy(update={"rationale": Rationale(steps=steps, reflection="No.")})
    with pytest.raises(TraceError):
        make_example(CASE, trace, Split.TRAIN, "compact", MetadataSetting.FULL)
    made = make_example(CASE, trace, Split.TRAIN, "compact", MetadataSetting.FULL, ("step_6",))
    assert "efficiency" not in json.loads(made.completion[0].content)


@pytest.fixture(scope="module")
def qwen3(
    qwen3_tokenizer_dir: Path, tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Any, Path]:
    """The real tokenizer, and a random model of its vocabulary."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(tiny_model_dir)
    config.vocab_size, config.hidden_size, config.intermediate_size = 151_936, 16, 16
    config.max_position_embeddings = 8_192
    folder = tmp_path_factory.mktemp("qwen3")
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return load_tokenizer(str(qwen3_tokenizer_dir), None), folder


@pytest.mark.parametrize("thinking", [False, True])
def test_on_the_real_qwen3_tokenizer_the_inference_prompt_starts_what_trl_trains_on(
    thinking: bool, qwen3: tuple[Any, Path], tmp_path: Path
) -> None:
    tokenizer, model_dir = qwen3
    forms: tuple[StudentForm, ...] = ("compact", "guided")
    examples = [
        make_example(CASE, TRACE, Split.TRAIN, form, MetadataSetting.FULL) for form in forms
    ]
    rows = [tokenise(made, tokenizer, thinking) for made in examples]
    check_prompts(rows)
    end_of_turn = find_end_of_turn(rows, tokenizer)
    check_completions(rows, tokenizer, end_of_turn)
    assert tokenizer.convert_ids_to_tokens(end_of_turn) == tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.pad_token_id != end_of_turn

    # As TRL tokenises and masks it.
    recipe = section(thinking=thinking, max_length=4_000)
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path / "out")}
    trainer = build_trainer(rows, [], recipe, settings, str(model_dir), tokenizer)
    check_rows(rows, trainer.train_dataset, "train")
    lead_in = "<think>\n\n</think>\n\n" if thinking else ""
    for made, trained in zip(examples, trainer.train_dataset, strict=True):
        # As an engine sends it.
        prompt = tokenizer.apply_chat_template(
            as_chat(made.prompt),
            add_generation_prompt=True,
            enable_thinking=thinking,
            return_dict=False,
        )
        assert trained["input_ids"][: len(prompt)] == prompt
        assert trained["labels"][: len(prompt)] == [IGNORED] * len(prompt)
        labels = trained["labels"][len(prompt) :]
        assert labels == trained["input_ids"][len(prompt) :]
        assert tokenizer.decode(labels) == f"{lead_in}{made.completion[0].content}<|im_end|>\n"
        assert '"decision": "LC"}' in tokenizer.decode(labels)
        assert labels.count(end_of_turn) == 1


def test_a_template_that_renders_the_prompt_otherwise_is_an_error(
    made: Example, tiny_model_dir: Path
) -> None:
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    # The generation prompt opens a thinking block that no reply of ours holds.
    tokenizer.chat_template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    )
    with pytest.raises(StageError, match="not the start of what it trains on"):
        check_prompts([tokenise(made, tokenizer, True)])


def test_an_example_of_the_other_mode_names_the_route_alone() -> None:
    made = make_example(
        CASE, TRACE, Split.TRAIN, "compact", MetadataSetting.FULL, mode=StudentMode.DECIDE
    )
    assert made.completion[0].content == TRACE.decision.value
    assert made.mode is StudentMode.DECIDE
    told = made.prompt[0].content
    assert (
        told
        != make_example(CASE, TRACE, Split.TRAIN, "compact", MetadataSetting.FULL).prompt[0].content
    )
    assert told.endswith("Reply with that word alone.")


def test_an_example_of_just_the_limit_is_kept(made: Example, tiny_model_dir: Path) -> None:
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    length = len(tokenise(made, tokenizer, False).ids)
    kept, rejects = keep_fitting([made], tokenizer, False, length)
    assert [row.example for row in kept] == [made]
    assert not rejects
    kept, rejects = keep_fitting([made], tokenizer, False, length - 1)
    assert not kept
    assert [(r.stage, r.key, r.reason) for r in rejects] == [
        ("train", "case#3#explain", "too_long")
    ]
    assert str(length) in rejects[0].detail
