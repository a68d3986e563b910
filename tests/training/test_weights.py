from __future__ import annotations

from types import SimpleNamespace

import pytest

from prerouter.core.errors import StageError
from prerouter.recipe.train import WeightsSection
from prerouter.training.examples import TokenisedExample
from prerouter.training.weights import balanced_loss, margin_weights

from .conftest import example

SECTION = WeightsSection(by="margin", least=0.1)


def tokenised(number: int, completion: int) -> TokenisedExample:
    return TokenisedExample(example(number), (1,), tuple(range(completion + 1)))


def test_a_weight_is_the_size_of_the_margin_and_the_mean_token_weighs_one() -> None:
    rows = [tokenised(0, 10), tokenised(1, 30), tokenised(2, 20)]
    weights = margin_weights(rows, {"case-0": 4.0, "case-1": -2.0, "case-2": 0.0}, SECTION)
    assert weights[0] / weights[1] == pytest.approx(2)
    assert weights[0] / weights[2] == pytest.approx(10)
    tokens = [len(row.completion_ids) for row in rows]
    total = sum(w * n for w, n in zip(weights, tokens, strict=True))
    assert total / sum(tokens) == pytest.approx(1)


def test_equal_margins_weigh_exactly_one() -> None:
    rows = [tokenised(n, 7 + n) for n in range(3)]
    margins = {"case-0": 0.3, "case-1": -0.3, "case-2": 0.3}
    assert margin_weights(rows, margins, SECTION) == [1.0, 1.0, 1.0]


def test_nothing_but_ties_is_an_error() -> None:
    with pytest.raises(StageError, match="every training case is a tie"):
        margin_weights([tokenised(0, 3)], {"case-0": 0.0}, SECTION)


def test_balanced_each_class_counts_the_same_and_the_mean_case_counts_one() -> None:
    import torch

    logits = torch.tensor([[2.0, -1.0]] * 6 + [[0.5, 0.3]] * 2)
    labels = torch.tensor([0] * 6 + [1] * 2)
    each = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    loss = balanced_loss([6, 2])
    found = loss(SimpleNamespace(logits=logits), labels)
    assert found == pytest.approx(float(each[:6].mean() + each[6:].mean()) / 2)
    # Of a step of 16 cases, these are a part.
    part = loss(SimpleNamespace(logits=logits), labels, num_items_in_batch=torch.tensor(16))
    assert part == pytest.approx(float(found) / 2)
    even = balanced_loss([1, 1])(SimpleNamespace(logits=logits), labels)
    assert even == pytest.approx(float(each.mean()))
