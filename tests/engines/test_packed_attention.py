"""Prompts read packed give what each gives alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    StableLmConfig,
    StableLmForCausalLM,
)

from prerouter.engines import packed_attention
from prerouter.engines.packed_attention import _BLOCK, PACK_TOKENS, packs, packs_of
from prerouter.engines.reading import PromptReader

START = list(range(20, 40))
PROMPTS = [[*START, 5, 6, 7], [*START, 8], [*START, *range(40, 57)], [*START, 9, 9, 11]]
RATIOS = [[3], [4]]


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> Any:
    loaded = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    assert loaded.config.num_key_value_heads < loaded.config.num_attention_heads
    return loaded


@torch.inference_mode()
def alone(model: Any, prompt: list[int]) -> Any:
    return model(input_ids=torch.tensor([prompt]), output_hidden_states=True)


def padded(monkeypatch: pytest.MonkeyPatch, model: Any) -> PromptReader:
    reader = PromptReader(model, "cpu")
    monkeypatch.setattr(reader, "_packs", False)
    return reader


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("at_once", [PACK_TOKENS, 30, 1])
def test_scores_and_states_are_those_of_every_prompt_read_alone(
    model: Any, shared: bool, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "PACK_TOKENS", at_once)
    reader = PromptReader(model, "cpu")
    if shared:
        reader.share(PROMPTS)
        assert reader.shared_tokens == len(START)
    scores = torch.tensor(reader.score(PROMPTS, RATIOS))
    states, beside = reader.last_states(PROMPTS, RATIOS)
    for place, prompt in enumerate(PROMPTS):
        whole = alone(model, prompt)
        wanted = torch.log_softmax(whole.logits[0, -1], dim=-1)[[3, 4]]
        torch.testing.assert_close(scores[place], wanted, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(torch.tensor(beside[place]), wanted, atol=1e-5, rtol=1e-5)
        layers = torch.stack([layer[0, -1] for layer in whole.hidden_states])
        torch.testing.assert_close(states[place], layers, atol=1e-5, rtol=1e-5)


def test_states_alone_need_no_ending(model: Any) -> None:
    states, scores = PromptReader(model, "cpu").last_states(PROMPTS, [])
    assert states.shape == (4, model.config.num_hidden_layers + 1, model.config.hidden_size)
    assert scores == [[]] * 4


def test_in_bfloat16_a_score_is_as_near_as_a_padded_one(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).eval()
    packed = torch.tensor(PromptReader(model, "cpu").score(PROMPTS, RATIOS))
    usual = torch.tensor(padded(monkeypatch, model).score(PROMPTS, RATIOS))
    torch.testing.assert_close(packed, usual, atol=0.02, rtol=0.0)


@torch.inference_mode()
def test_what_is_broken_in_one_prompt_stays_in_it(model: Any) -> None:
    lengths, heads, key_heads, size = [4, 6, 5], 4, 2, 8
    query, key, value = (
        torch.randn(1, count, sum(lengths), size) for count in (heads, key_heads, key_heads)
    )
    asked: dict[str, Any] = {"module": None, "attention_mask": None, "scaling": 1.0}

    def read() -> torch.Tensor:
        with packed_attention.packed(model, lengths):
            return packed_attention.packed_attention(query=query, key=key, value=value, **asked)[0]

    whole = read()
    value[:, :, 4:10] = float("nan")
    broken = read()
    assert broken[:, 4:10].isnan().all()
    rest = [*range(4), *range(10, 15)]
    torch.testing.assert_close(broken[:, rest], whole[:, rest])


def test_the_shared_start_stays_as_it_was(model: Any) -> None:
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    first = reader.score(PROMPTS, RATIOS)
    assert reader._cache.get_seq_length() == len(START)
    assert reader.score(PROMPTS, RATIOS) == first


def test_the_models_own_attention_comes_back_also_after_a_failure(model: Any) -> None:
    usual = model.config._attn_implementation
    reader = PromptReader(model, "cpu")
    with pytest.raises(IndexError):
        reader.score([[10**9]], RATIOS)
    assert model.config._attn_implementation == usual


def test_a_model_that_caps_its_scores_is_not_packed() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "head_dim": 8, "vocab_size": 32}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    assert not packs(Gemma2ForCausalLM(Gemma2Config(**sizes, **heads)))


SIZES = {"vocab_size": 64, "hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2}


@torch.inference_mode()
def test_a_model_that_hands_nothing_on_to_its_attention_is_packed_all_the_same() -> None:
    torch.manual_seed(0)
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    model = StableLmForCausalLM(StableLmConfig(**SIZES, **heads)).eval()
    reader = PromptReader(model, "cpu")
    assert reader._packs
    scores = torch.tensor(reader.score(PROMPTS, RATIOS))
    for row, prompt in zip(scores, PROMPTS, strict=True):
        wanted = torch.log_softmax(alone(model, prompt).logits[0, -1], dim=-1)[[3, 4]]
        torch.testing.assert_close(row, wanted, atol=1e-5, rtol=1e-5)


def test_a_model_that_masks_otherwise_is_read_padded(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = packed_attention._no_mask
    monkeypatch.setattr(packed_attention, "_no_mask", lambda *a, **b: torch.zeros(1))
    assert not PromptReader(model, "cpu")._packs
    monkeypatch.setattr(packed_attention, "_no_mask", plain)
    assert PromptReader(model, "cpu")._packs


def test_packs_hold_what_fits_and_a_long_prompt_goes_alone() -> None:
    lengths = [PACK_TOKENS + 1, PACK_TOKENS - 1, 1, 1]
    assert [*packs_of(lengths)] == [slice(0, 1), slice(1, 3), slice(3, 4)]


@pytest.mark.parametrize("at_once", [PACK_TOKENS, 30])
@torch.inference_mode()
def test_what_is_kept_of_packed_prompts_is_read_on_from(
    model: Any, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_attention, "PACK_TOKENS", at_once)
    reader = PromptReader(model, "cpu")
    reader.share(PROMPTS)
    prefix = reader.prefill(PROMPTS)
    assert prefix.cache.get_seq_length() == max(map(len, PROMPTS)) == prefix.mask.shape[1]
    more = torch.tensor([[41, 42], [43, 44], [45, 46], [47, 48]])
    for place, (first, then) in enumerate(
        zip(prefix.logits, reader.extend(prefix, more), strict=True)
    ):
        whole = alone(model, [*PROMPTS[place], *more[place].tolist()]).logits[0, -3:]
        torch.testing.assert_close(torch.stack([first, *then]), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shared", [0, 7])
def test_blocks_of_queries_give_what_one_product_gives(shared: int) -> None:
    seed = torch.Generator().manual_seed(3)
    lengths = [_BLOCK + 3, 2, 2 * _BLOCK]
    query = torch.randn(1, 4, sum(lengths) + 5, 8, generator=seed)
    key = torch.randn(1, 2, shared + sum(lengths) + 5, 8, generator=seed)
    value = torch.randn(1, 2, shared + sum(lengths) + 5, 6, generator=seed)
    held = packed_attention._PACK.set(lengths)
    mixed, _ = packed_attention.packed_attention(torch.nn.Module(), query, key, value, None, 0.3)
    packed_attention._PACK.reset(held)
    start = 0
    for length in lengths:
        own = slice(shared + start, shared + start + length)
        keys, values = (torch.cat([it[:, :, :shared], it[:, :, own]], dim=2) for it in (key, value))
        wanted = torch.nn.functional.scaled_dot_product_attention(
            query[:, :, start : start + length],
            keys,
            values,
            attn_mask=torch.ones(length, shared + length, dtype=torch.bool).tril(shared),
            scale=0.3,
            enable_gqa=True,
        )
        torch.testing.assert_close(mixed[:, start : start + length], wanted.transpose(1, 2))
        start += length
    assert not mixed[:, start:].any()
