"""The QLoRA configuration: what of it can be known without a GPU."""

from __future__ import annotations

import pytest

from prerouter.core.errors import RecipeError
from prerouter.training.trainer import bits_and_bytes

from .conftest import Train, example


def test_quantisation_without_a_gpu_is_one_line(train: Train) -> None:
    with pytest.raises(RecipeError) as refused:
        train([example(0), example(1)], lora={"quantization": "nf4"})
    assert refused.value.line.startswith("train.lora.quantization: nf4 needs a GPU")


def test_four_bits_compute_in_the_recipes_precision() -> None:
    import torch

    pytest.importorskip("transformers")
    built = bits_and_bytes("nf4", "bfloat16")
    assert built.load_in_4bit
    assert built.bnb_4bit_quant_type == "nf4"
    assert built.bnb_4bit_use_double_quant
    assert built.bnb_4bit_compute_dtype is torch.bfloat16
    assert bits_and_bytes("int8", "bfloat16").load_in_8bit
