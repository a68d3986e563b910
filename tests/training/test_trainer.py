"""The QLoRA configuration: what of it can be known without a GPU."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import InputError, RecipeError
from prerouter.recipe.train import TrainSection
from prerouter.training import trainer as built_by
from prerouter.training.classifier import load_encoder
from prerouter.training.examples import tokenise
from prerouter.training.trainer import bits_and_bytes, build_trainer, load_tokenizer, sft_settings

from .conftest import Train, example, section


def test_quantisation_without_a_gpu_is_one_line(train: Train) -> None:
    with pytest.raises(RecipeError) as refused:
        train([example(0), example(1)], lora={"quantization": "nf4"})
    assert refused.value.line.startswith("train.lora.quantization: nf4 needs a GPU")


def test_adapters_over_a_quantised_base_are_float32(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The base only says that it is quantised: trl rounds the adapters of one that does."""
    import torch

    plain = built_by.load_student

    def marked(path: str, asked: TrainSection, quantised: object) -> Any:
        model = plain(path, asked)
        model.is_loaded_in_4bit = True
        return model

    monkeypatch.setattr(built_by, "load_student", marked)
    monkeypatch.setattr(built_by, "quantisation", lambda asked: bits_and_bytes("nf4", "bfloat16"))
    asked = section(lora={"r": 4, "quantization": "nf4"})
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    rows = [tokenise(example(number), tokenizer, False) for number in range(2)]
    settings = {**sft_settings(asked, 13, "test"), "output_dir": str(tmp_path)}
    trainer = build_trainer(rows, [], asked, settings, str(tiny_model_dir), tokenizer)
    learning = [p for p in trainer.model.parameters() if p.requires_grad]
    assert learning
    assert {parameter.dtype for parameter in learning} == {torch.float32}


def test_four_bits_compute_in_the_recipes_precision() -> None:
    import torch

    pytest.importorskip("transformers")
    built = bits_and_bytes("nf4", "bfloat16")
    assert built.load_in_4bit
    assert built.bnb_4bit_quant_type == "nf4"
    assert built.bnb_4bit_use_double_quant
    assert built.bnb_4bit_compute_dtype is torch.bfloat16
    assert bits_and_bytes("int8", "bfloat16").load_in_8bit


def test_a_student_whose_template_takes_no_system_turn_is_refused(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    model = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (model / "chat_template.jinja").write_text(
        "{{ raise_exception('none') if messages[0].role == 'system' }}{{ messages[0].content }}"
    )
    with pytest.raises(InputError, match=r"^train\.model: .*takes no system turn"):
        load_tokenizer(str(model), None)
    with pytest.raises(InputError, match=r"^classify\.model: .*takes no system turn"):
        load_encoder(str(model), None)
