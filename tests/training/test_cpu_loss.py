from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.training.cpu_loss import cpu_trainer
from prerouter.training.examples import tokenise
from prerouter.training.trainer import build_trainer, load_tokenizer, sft_settings

from .conftest import example, section


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("items", [None, 500])
@pytest.mark.parametrize("lora", [None, {"r": 4}])
def test_the_loss_and_the_gradients_are_those_of_trl(
    batch_size: int, items: int | None, lora: Any, tiny_model_dir: Path, tmp_path: Path
) -> None:
    import torch
    from trl import SFTTrainer

    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    rows = [tokenise(example(n, words="word " * n), tokenizer, False) for n in range(3)]
    recipe = section(lora=lora, sft={"per_device_train_batch_size": batch_size})
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path)}
    trainer = build_trainer(rows, [], recipe, settings, str(tiny_model_dir), tokenizer)
    assert type(trainer).__name__ == cpu_trainer().__name__
    trainer.model.train()
    batch = next(iter(trainer.get_train_dataloader()))
    results = []
    for compute in (type(trainer).compute_loss, SFTTrainer.compute_loss):
        trainer.model.zero_grad()
        loss = compute(trainer, trainer.model, dict(batch), num_items_in_batch=items)
        loss.backward()
        grads = [p.grad.clone() for p in trainer.model.parameters() if p.requires_grad]
        results.append((loss.item(), grads))
    (ours, our_grads), (theirs, their_grads) = results
    assert ours == pytest.approx(theirs, rel=1e-5)
    for mine, other in zip(our_grads, their_grads, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-3, atol=1e-6)
