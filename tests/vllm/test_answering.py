"""Answers over vLLM: prompts are as long as they were counted, and a document is read once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from prerouter.answering.long_context import LongText, lc_prompt
from prerouter.answering.prompted import Prompted, generate_answers
from prerouter.answering.rag import rag_request
from prerouter.answering.window import ModelTokens, Window, load_tokens
from prerouter.core.protocols import Sampling
from prerouter.core.records import Answer, AnswerModel, MissingReason, Reject, Route, Span
from prerouter.engines.start import start_engine
from prerouter.engines.vllm import VllmModel
from prerouter.recipe.engine import VllmEngine
from tests.answering.scripted import make_case

LENGTH, REPLY = 2048, 48
SECTION = VllmEngine(
    kind="vllm",
    model="embedded:SmolLM2-135M-Instruct",
    dtype="bfloat16",
    max_model_len=LENGTH,
    arguments={"enforce_eager": True},
)
QUESTIONS = (
    "Who was Scrooge's partner?",
    "On what day does the story begin?",
    "How many ghosts are foretold?",
    "What does Scrooge say of Christmas?",
)


@pytest.fixture(scope="module")
def engine() -> Iterator[VllmModel]:
    engine = start_engine(SECTION)
    assert isinstance(engine, VllmModel)
    yield engine
    # pytest holds on to what a fixture gave, so it is not freed by itself.
    engine.llm.llm_engine.engine_core.shutdown()


@pytest.fixture(scope="module")
def tokens() -> ModelTokens:
    return load_tokens(SECTION, None)


def ask(prompts: list[Prompted], engine: VllmModel) -> dict[str, Answer | Reject]:
    found = {}
    for result in generate_answers(prompts, engine, Sampling(max_tokens=REPLY)):
        id_ = result.case_id if isinstance(result, Answer) else result.key.partition("|")[0]
        found[id_] = result
    return found


def test_a_cut_document_is_read_once_for_all_its_questions(
    engine: VllmModel, tokens: ModelTokens, lara_dir: Path
) -> None:
    path = lara_dir / "clone" / "datasets" / "32k" / "book" / "A Christmas Carol.txt"
    document = LongText(path.read_bytes().decode("utf-8-sig"), tokens.starts)
    model = AnswerModel(name="smollm2-135m", context_window=8192)
    prompts = [
        lc_prompt(make_case(text, text, answer_model=model), document, Window(tokens, REPLY, 128))
        for text in QUESTIONS
    ]
    found = ask(prompts, engine)
    assert set(found) == set(QUESTIONS)
    for prompt in prompts:
        assert prompt.document_cut
        assert prompt.request is not None
        length = tokens.count_prompt(prompt.request.messages, False)
        # The engine's longest input is shorter than the model's window.
        assert LENGTH - REPLY - 128 - 40 < length <= LENGTH - REPLY
        result = found[prompt.case.case_id]
        if isinstance(result, Answer):
            assert result.prompt_tokens == length
            assert result.text
        else:
            assert result.reason == MissingReason.CUT_OFF.value
    assert engine.cached_share is not None
    assert engine.cached_share > 0.6


def test_passages_are_answered_too(engine: VllmModel, tokens: ModelTokens) -> None:
    case = make_case("When did the harbour freeze?", answer_model=AnswerModel(name="m"))
    passages = [
        (Span(start=30, end=57), "The harbour froze in March."),
        (Span(start=0, end=4), "Ice."),
    ]
    prompt = Prompted(case, Route.RAG, rag_request(case, passages))
    (result,) = ask([prompt], engine).values()
    assert isinstance(result, Answer)
    assert "March" in (result.text or "")
    assert prompt.request is not None
    assert result.prompt_tokens == tokens.count_prompt(prompt.request.messages, False)
