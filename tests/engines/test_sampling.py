from __future__ import annotations

import math

import pytest
import torch

from prerouter.engines.sampling import entropy_bits, next_tokens, not_finite


def generators(*seeds: int) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


@pytest.mark.parametrize(
    ("probabilities", "bits"),
    [([0.25] * 4, 2.0), ([1.0, 0.0, 0.0, 0.0], 0.0), ([0.5, 0.25, 0.125, 0.125], 1.75)],
)
def test_entropy_is_in_bits_over_the_whole_vocabulary(
    probabilities: list[float], bits: float
) -> None:
    logits = torch.tensor([probabilities]).log()
    assert entropy_bits(logits).item() == pytest.approx(bits, abs=1e-6)


def test_entropy_is_measured_in_full_precision() -> None:
    logits = torch.randn(1, 50_000, generator=torch.Generator().manual_seed(1)).bfloat16()
    exact = logits.double()
    p = exact.softmax(-1)
    assert entropy_bits(logits).item() == pytest.approx(
        -(p * p.log()).sum().item() / math.log(2), abs=1e-3
    )


def test_logits_that_are_no_numbers_have_no_entropy() -> None:
    bits = entropy_bits(torch.tensor([[1.0, math.nan], [1.0, 1.0]])).tolist()
    assert math.isnan(bits[0])
    assert bits[1] == 1.0
    assert "not finite" in (not_finite(bits) or "")
    assert not_finite(bits[1:]) is None


def test_temperature_zero_takes_the_likeliest() -> None:
    assert next_tokens(torch.tensor([[0.0, 3, 1], [5, 0, 0]]), 0.0, 1.0, []).tolist() == [1, 0]


def test_draws_follow_the_distribution() -> None:
    probabilities = torch.tensor([0.1, 0.6, 0.3])
    logits = probabilities.log().expand(4000, -1)
    drawn = next_tokens(logits, 1.0, 1.0, generators(*range(4000)))
    shares = torch.bincount(drawn, minlength=3) / 4000
    assert torch.allclose(shares, probabilities, atol=0.03)


def test_temperature_sharpens() -> None:
    logits = torch.tensor([0.1, 0.6, 0.3]).log().expand(2000, -1)
    cold = next_tokens(logits, 0.25, 1.0, generators(*range(2000)))
    assert (cold == 1).float().mean() > 0.9


@pytest.mark.parametrize(
    ("top_p", "possible"), [(0.5, {1}), (0.6, {1}), (0.7, {1, 2}), (1.0, {0, 1, 2})]
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, possible: set[int]) -> None:
    logits = torch.tensor([0.1, 0.6001, 0.2999]).log().expand(500, -1)
    drawn = next_tokens(logits, 1.0, top_p, generators(*range(500)))
    assert set(drawn.tolist()) == possible


def test_a_row_draws_by_its_own_seed() -> None:
    logits = torch.zeros(3, 1000)
    first = next_tokens(logits, 1.0, 1.0, generators(1, 2, 1)).tolist()
    assert first[0] == first[2] != first[1]
    assert next_tokens(logits[:1], 1.0, 1.0, generators(2)).tolist() == [first[1]]
