from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen3Config, Qwen3ForCausalLM

from prerouter.engines.packed_attention import MULTIPLE, packs
from prerouter.engines.reading import PromptReader

START = list(range(5, 45))
PROMPTS = [[*START, 7, 8, 9], [*START, 7], [*START, 50, 51, 52, 53, 54]]


@pytest.fixture(params=["packed", "padded"], autouse=True)
def form(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """As prompts are read on a CPU, and as on a GPU."""
    if request.param == "padded":
        monkeypatch.setattr(PromptReader, "_packs", False)
    return request.param


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()


def plain_logits(model: Any, prompt: list[int]) -> torch.Tensor:
    logits: torch.Tensor = model(torch.tensor([prompt])).logits[0, -1]
    return logits


@torch.inference_mode()
def test_the_logits_are_those_of_every_prompt_read_whole_and_alone(model: Any) -> None:
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    assert reader.shared_tokens == len(START)
    for prompts in (PROMPTS, PROMPTS[:1], PROMPTS[1:]):
        read = reader.prefill(prompts)
        for row, prompt in zip(read.logits, prompts, strict=True):
            torch.testing.assert_close(row, plain_logits(model, prompt), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_what_is_read_on_after_a_shared_start_is_read_right(model: Any) -> None:
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    read = reader.prefill(PROMPTS)
    reader.extend(read, torch.tensor([[11], [12], [13]]))
    logits = reader.extend(read, torch.tensor([[21, 22]] * 3))
    for row, prompt, token in zip(logits, PROMPTS, (11, 12, 13), strict=True):
        whole = plain_logits(model, [*prompt, token, 21, 22])
        torch.testing.assert_close(row[-1], whole, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_the_start_is_read_once_for_all_batches(
    model: Any, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = PromptReader(model, "cpu")
    reader.prefill(PROMPTS)
    widths = []
    plain = model.forward

    def watched(**inputs: Any) -> Any:
        widths.append(inputs["input_ids"].shape[1])
        return plain(**inputs)

    monkeypatch.setattr(model, "forward", watched)
    for _ in range(2):
        reader.share(PROMPTS)
        reader.prefill(PROMPTS)
    rests = [len(prompt) - len(START) for prompt in PROMPTS]
    read = max(rests) if form == "padded" else -(-sum(rests) // MULTIPLE) * MULTIPLE
    assert widths == [len(START), read, read]


@torch.inference_mode()
@pytest.mark.parametrize(
    "prompts",
    [PROMPTS[:1], [[1, 2, 3], [4, 5, 6]], [[*START[:10], 1], [*START[:10], 2]]],
    ids=["one prompt", "nothing in common", "too little in common"],
)
def test_nothing_is_shared_where_nothing_is_won(model: Any, prompts: list[list[int]]) -> None:
    reader = PromptReader(model, "cpu")
    reader.share(prompts)
    assert reader.shared_tokens == 0
    torch.testing.assert_close(
        reader.prefill(prompts).logits[0], plain_logits(model, prompts[0]), atol=1e-4, rtol=1e-4
    )


@torch.inference_mode()
def test_equal_prompts_keep_a_token_of_their_own(model: Any) -> None:
    reader = PromptReader(model, "cpu")
    reader.share([START, START])
    assert reader.shared_tokens == len(START) - 1
    torch.testing.assert_close(
        reader.prefill([START, START]).logits[1], plain_logits(model, START), atol=1e-4, rtol=1e-4
    )


@torch.inference_mode()
def test_another_start_takes_the_place_of_the_first(model: Any) -> None:
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    others = [[3, *prompt] for prompt in PROMPTS]
    torch.testing.assert_close(  # not yet shared: read whole
        reader.prefill(others).logits[0], plain_logits(model, others[0]), atol=1e-4, rtol=1e-4
    )
    reader.share(others)
    assert reader.shared_tokens == len(START) + 1
    torch.testing.assert_close(
        reader.prefill(others).logits[2], plain_logits(model, others[2]), atol=1e-4, rtol=1e-4
    )


@pytest.fixture(scope="module")
def sliding() -> Any:
    """A model whose every layer sees eight tokens back."""
    config = Qwen3Config(
        vocab_size=64,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        use_sliding_window=True,
        sliding_window=8,
        max_window_layers=0,
    )
    torch.manual_seed(0)
    return Qwen3ForCausalLM(config).eval()


@torch.inference_mode()
def test_a_model_with_a_sliding_window_reads_each_prompt_whole(sliding: Any) -> None:
    reader = PromptReader(sliding, "cpu")
    reader.share(PROMPTS)
    assert reader.shared_tokens == 0
    assert not packs(sliding)


ENDINGS = [[11, 12, 13], [11, 12], [14], [21, 22, 23]]


def expected_scores(model: Any, prompt: list[int]) -> list[float]:
    found = []
    for ending in ENDINGS:
        logits = model(torch.tensor([[*prompt, *ending]])).logits[0, len(prompt) - 1 : -1]
        target = torch.tensor(ending)[:, None]
        found.append(logits.log_softmax(-1).gather(-1, target).sum().item())
    return found


@torch.inference_mode()
@pytest.mark.parametrize("kind", ["model", "sliding"])
def test_endings_of_several_tokens_score_as_each_read_whole(
    kind: str, request: pytest.FixtureRequest
) -> None:
    model = request.getfixturevalue(kind)
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    assert min(map(len, PROMPTS)) > 8
    _, after_states = reader.last_states(PROMPTS, ENDINGS)
    for prompt, row, other in zip(
        PROMPTS, reader.score(PROMPTS, ENDINGS), after_states, strict=True
    ):
        expected = pytest.approx(expected_scores(model, prompt), abs=1e-3)
        assert row == expected
        assert other == expected
