from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.training.examples import tokenise
from prerouter.training.loss import student_trainer
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
    assert type(trainer).__name__ == student_trainer(True).__name__
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


def trained(
    weights: list[float] | None, model: Path, folder: Path, on_cpu: bool = True, **sft: Any
) -> list[tuple[int, float]]:
    tokenizer = load_tokenizer(str(model), None)
    rows = [tokenise(example(n, words="word " * n), tokenizer, False) for n in range(4)]
    settings = sft_settings(section(sft=sft), 13, "test") | {"output_dir": str(folder)}
    trainer = build_trainer(
        rows, [], section(sft=sft), settings, str(model), tokenizer, weights, on_cpu=on_cpu
    )
    trainer.train()
    return [(e["step"], e["loss"]) for e in trainer.state.log_history if "loss" in e]


@pytest.mark.parametrize("on_cpu", [True, False])
def test_weights_of_one_are_the_plain_loss(
    on_cpu: bool, tiny_model_dir: Path, tmp_path: Path
) -> None:
    plain = trained(None, tiny_model_dir, tmp_path, on_cpu)
    assert trained([1.0] * 4, tiny_model_dir, tmp_path, on_cpu) == plain


def test_accumulated_batches_weigh_as_one_batch_does(tiny_model_dir: Path, tmp_path: Path) -> None:
    weights = [0.2, 2.5, 0.3, 1.0]
    whole = {"per_device_train_batch_size": 4}
    parts = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 4}
    one = trained(weights, tiny_model_dir, tmp_path, **whole)
    kernel = trained(weights, tiny_model_dir, tmp_path, False, **whole)
    four = trained(weights, tiny_model_dir, tmp_path, **parts)
    assert [loss for _, loss in four] == pytest.approx([loss for _, loss in one], rel=1e-4)
    assert [loss for _, loss in kernel] == pytest.approx([loss for _, loss in one], rel=1e-4)
    assert one != trained(None, tiny_model_dir, tmp_path, **whole)


def test_a_weight_multiplies_each_of_its_examples_tokens(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    import torch

    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    rows = [tokenise(example(n, words="word " * n), tokenizer, False) for n in range(2)]
    weights = [3.0, 0.5]
    recipe = section(sft={"train_sampling_strategy": "sequential"})
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path)}
    trainer = build_trainer(rows, [], recipe, settings, str(tiny_model_dir), tokenizer, weights)
    batch = next(iter(trainer.get_train_dataloader()))
    total, count = 0.0, 0
    with torch.no_grad():
        for row, weight in zip(rows, weights, strict=True):
            scores = trainer.model(torch.tensor([row.ids])).logits[0, :-1].log_softmax(-1)
            start = len(row.prompt_ids) - 1
            learnt = scores[start:].gather(1, torch.tensor(row.completion_ids)[:, None])
            total -= weight * learnt.sum().item()
            count += len(row.completion_ids)
        loss = trainer.compute_loss(trainer.model, batch).item()
    assert loss == pytest.approx(total / count, rel=1e-4)


def test_token_accuracy_is_logged(tiny_model_dir: Path, tmp_path: Path) -> None:
    tokenizer = load_tokenizer(str(tiny_model_dir), None)
    rows = [tokenise(example(n), tokenizer, False) for n in range(2)]
    recipe = section(sft={"max_steps": 60, "learning_rate": 1e-2})
    settings = sft_settings(recipe, 13, "test") | {"output_dir": str(tmp_path)}
    trainer = build_trainer(rows, rows, recipe, settings, str(tiny_model_dir), tokenizer)
    trainer.train()
    found = [e["mean_token_accuracy"] for e in trainer.state.log_history if "loss" in e]
    assert found[0] < 0.2
    assert found[-1] > 0.9
    trainer.evaluate()
    assert trainer.state.log_history[-1]["eval_mean_token_accuracy"] > 0.9
