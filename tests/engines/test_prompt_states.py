"""Hidden states of prompts, against a plain forward pass and whatever the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Message
from prerouter.engines.transformers import NO_TOKENS, PROMPT_TOO_LONG, TransformersModel

TEXTS = [
    "a",
    "Which of the two was first? " * 6,
    "Who?",
    "tokens: 90254 " * 30,
    "Why so?",
    "b",
    "a b c d",
    "window: " * 11,
]
# As a router's prompts: one long start for all, which is read once.
SHARED = [f"{'Route the case to RAG or LC. ' * 5}{text}" for text in TEXTS]


def requests(texts: list[str]) -> list[GenerationRequest]:
    return [GenerationRequest((Message(role="user", content=text),)) for text in texts]


def states(model: Path, texts: list[str], batch_size: int, **settings: Any) -> list[np.ndarray]:
    engine = TransformersModel(str(model), dtype="float32", batch_size=batch_size, **settings)
    done = dict(engine.prompt_states(requests(texts)))
    vectors = [done[index].vectors for index in range(len(texts))]
    assert all(each is not None for each in vectors)
    return vectors  # type: ignore[return-value]


@pytest.mark.parametrize("texts", [TEXTS, SHARED], ids=["unlike", "one start"])
def test_they_are_those_of_a_plain_forward_pass(tiny_model: Path, texts: list[str]) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    for text, found in zip(texts, states(tiny_model, texts, 4), strict=True):
        chat = [{"role": "user", "content": text}]
        ids = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, enable_thinking=False, return_tensors="pt"
        )["input_ids"]
        with torch.inference_mode():
            plain = model(ids, output_hidden_states=True).hidden_states
        expected = torch.stack([layer[0, -1] for layer in plain]).numpy()
        assert found.shape == (3, 64)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=2e-4)


@pytest.mark.parametrize("texts", [TEXTS, SHARED], ids=["unlike", "one start"])
def test_padding_does_not_change_them(tiny_model: Path, texts: list[str]) -> None:
    alone, together = states(tiny_model, texts, 1), states(tiny_model, texts, 8)
    np.testing.assert_allclose(np.stack(alone), np.stack(together), atol=2e-4)
    # Prompts differ by far more than that.
    assert np.abs(alone[0][-2] - alone[4][-2]).max() > 0.05


def test_they_come_batch_by_batch_with_what_they_took(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", batch_size=2)
    assert engine.layers == 2
    found = list(engine.prompt_states(requests(TEXTS)))
    lengths = [state.prompt_tokens for _, state in found]
    assert lengths == sorted(lengths, reverse=True)
    assert sorted(index for index, _ in found) == [*range(len(TEXTS))]
    for index, state in found:
        assert state.prompt_tokens == engine.count_tokens(requests(TEXTS)[index].messages)
        assert state.seconds > 0


def test_a_prompt_that_can_not_be_read_costs_itself_only(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", max_model_len=64)
    done = dict(engine.prompt_states(requests(["word " * 100, "a", "\ud800"])))
    assert str(done[0].error).startswith(PROMPT_TOO_LONG)
    assert done[1].vectors is not None
    assert done[2].error == NO_TOKENS
    assert done[0].vectors is None


def test_the_thinking_switch_goes_through_the_template(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32")
    off = dict(engine.prompt_states(requests(["a"])))[0]
    on = dict(engine.prompt_states(requests(["a"]), thinking=True))[0]
    assert on.prompt_tokens < off.prompt_tokens


def test_choices_score_as_by_themselves(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", batch_size=4)
    choices = ["RAG", '{"decision": "LC"}']
    done = dict(engine.prompt_states(requests(TEXTS), choices=choices))
    scores = engine.score_choices(requests(TEXTS), choices)
    for index, row in enumerate(scores):
        assert done[index].log_probabilities == pytest.approx(row.log_probabilities, abs=1e-3)
    # Choices read on from the prompt must leave its states as they are.
    plain = dict(engine.prompt_states(requests(TEXTS)))
    for index, state in done.items():
        other = plain[index].vectors
        assert state.vectors is not None
        assert other is not None
        np.testing.assert_allclose(state.vectors, other, atol=2e-4)
