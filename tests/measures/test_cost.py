from __future__ import annotations

import datetime

import pytest

from prerouter.core.records import Answer, Decision, MissingReason, Rationale, Route, Trace
from prerouter.measures.cost import Tokens, gpu_hours, output_per_call, usd, used_tokens
from prerouter.recipe.prices import Price, load_prices


def price(input: float, output: float, cached: float | None = None) -> Price:
    return Price(
        input=input, output=output, cached_input=cached, source="s", date=datetime.date(2026, 1, 2)
    )


def test_tokens_are_priced_by_the_million() -> None:
    assert usd(Tokens(1_000_000, 0), price(2.5, 10)) == 2.5
    assert usd(Tokens(0, 250_000), price(2.5, 10)) == 2.5
    assert usd(Tokens(1_000_000, 100_000), price(2.5, 10)) == pytest.approx(3.5)


def test_cached_tokens_are_cheaper_where_they_have_a_price() -> None:
    tokens = Tokens(1_000_000, 0, cached_input=800_000)
    assert usd(tokens, price(1.0, 1.0, cached=0.25)) == pytest.approx(0.4)
    assert usd(tokens, price(1.0, 1.0)) == pytest.approx(1.0)
    assert usd(tokens, price(1.0, 1.0, cached=0.0)) == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("tokens", "dollars"),
    [(Tokens(2600, 27), 0.76e-3), (Tokens(1205, 648), 1.07e-3), (Tokens(100_000, 0), 0.028)],
)
def test_the_papers_costs_follow_from_one_price(tokens: Tokens, dollars: float) -> None:
    # Chen et al., 2026, arXiv 2605.10235: three costs of one model; two figures each.
    shipped = load_prices()[0].models["Qwen/Qwen3-235B-A22B"]
    assert (shipped.input, shipped.output) == (0.28, 1.13)
    assert usd(tokens, shipped) == pytest.approx(dollars, rel=0.005)


def test_the_papers_cost_of_the_small_model_follows_from_its_price() -> None:
    shipped = load_prices()[0].models["Qwen/Qwen3-1.7B"]
    assert f"{1e3 * usd(Tokens(1205, 670), shipped):.2f}" == "0.16"


def test_gpu_hours_are_those_of_all_gpus() -> None:
    assert gpu_hours(3_600_000, 1000, 1) == 1
    assert gpu_hours(3_600_000, 1000, 8) == 8


def test_a_record_that_does_not_know_its_tokens_has_no_cost() -> None:
    read = Answer(case_id="c", route=Route.LC, text="a", prompt_tokens=9, completion_tokens=2)
    assert used_tokens(read) == Tokens(9, 2)
    failed = Answer(case_id="c", route=Route.LC, missing=MissingReason.CALL_FAILED)
    assert used_tokens(failed) is None
    trace = Trace(
        case_id="c", teacher="t", rationale=Rationale(), decision=Route.LC, prompt_hash="h"
    )
    assert used_tokens(trace) is None
    # A router without a model took no tokens, which is known.
    assert used_tokens(Decision(case_id="c", router="r", route=Route.LC)) == Tokens(0, 0)


def test_the_mean_of_calls_weighs_each_call_the_same() -> None:
    measured = output_per_call({"a": [100, 200, 300], "b": [600]}, 0.95, 200, seed=1)
    assert measured.value == 300
    assert measured.interval is not None
    assert (measured.interval.low, measured.interval.high) == (200, 600)


def test_the_interval_narrows_with_more_cases_and_repeats_under_its_seed() -> None:
    def width(count: int) -> float:
        by_case = {f"c{n}": [100 + 10 * (n % 7)] for n in range(count)}
        found = output_per_call(by_case, 0.95, 500, seed=3)
        assert found == output_per_call(by_case, 0.95, 500, seed=3)
        assert found.interval is not None
        assert found.interval.low <= (found.value or 0) <= found.interval.high
        return found.interval.high - found.interval.low

    assert width(700) < width(70) < width(7)


def test_one_case_has_no_interval_and_none_has_no_mean() -> None:
    one = output_per_call({"a": [100, 300]}, 0.95, 200, seed=1)
    assert (one.value, one.interval) == (200, None)
    assert "one case" in str(one.note)
    assert output_per_call({}, 0.95, 200, seed=1).value is None
