from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM
from transformers.models.llama.modeling_llama import eager_attention_forward

from prerouter.engines.grouped_attention import NAME, grouped_attention, one_query_attention
from prerouter.engines.reading import PromptReader


class Heads(torch.nn.Module):
    def __init__(self, groups: int) -> None:
        super().__init__()
        self.num_key_value_groups = groups


@pytest.mark.parametrize(("heads", "key_heads"), [(9, 3), (4, 4), (8, 1)])
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("masked", [True, False])
def test_it_gives_what_copied_keys_give(
    heads: int, key_heads: int, tokens: int, masked: bool
) -> None:
    seed = torch.Generator().manual_seed(3)
    query = torch.randn(2, heads, tokens, 16, generator=seed)
    key = torch.randn(2, key_heads, 7, 16, generator=seed)
    value = torch.randn(2, key_heads, 7, 12, generator=seed)
    mask = None
    if masked:
        mask = torch.zeros(2, 1, tokens, 7)
        mask[1, :, :, :3] = torch.finfo(torch.float32).min
    module = Heads(heads // key_heads).eval()
    mine, _ = grouped_attention(module, query, key, value, mask, 0.25)
    copied, _ = eager_attention_forward(module, query, key, value, mask, 0.25)
    torch.testing.assert_close(mine, copied)


@torch.inference_mode()
def test_a_model_writes_on_as_with_its_own_attention(tiny_model: Path) -> None:
    model: Any = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32).eval()
    assert model.config.num_key_value_heads < model.config.num_attention_heads
    logits = {}
    for name in ("eager", one_query_attention(model)):
        reader = PromptReader(model, "cpu")
        read = reader.prefill([[5, 6, 7, 8, 9], [5, 6, 7]])
        model.set_attn_implementation(name)
        logits[name] = reader.extend(read, torch.tensor([[11], [12]]))
        model.set_attn_implementation("sdpa")
    torch.testing.assert_close(logits[NAME], logits["eager"], atol=1e-5, rtol=1e-5)


def test_a_model_that_caps_its_scores_keeps_its_own() -> None:
    sizes = {"hidden_size": 16, "intermediate_size": 16, "head_dim": 8, "vocab_size": 32}
    heads = {"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1}
    assert one_query_attention(Gemma2ForCausalLM(Gemma2Config(**sizes, **heads))) == "eager"
