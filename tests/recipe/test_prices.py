from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError, InputError
from prerouter.recipe.prices import load_prices


def test_the_table_that_ships_says_where_and_when_each_price_was_read(repository: Path) -> None:
    table, path = load_prices()
    assert path == repository / "data" / "prices.yaml"
    assert table.models["gpt-4o"].output > table.models["gpt-4o"].input > 0
    for name, price in table.models.items():
        assert price.source, name
        assert price.date.year >= 2024, name
        assert price.cached_input is None or price.cached_input <= price.input, name


def test_an_own_table_stands_in_place_of_it(tmp_path: Path) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("models: {mine: {input: 1, output: 2e0, source: a contract, date: 2026-01-02}}")
    table, path = load_prices(own)
    assert path == own
    assert list(table.models) == ["mine"]
    assert table.models["mine"].cached_input is None


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ("{input: -1, output: 2, source: s, date: 2026-01-02}", "models.mine.input"),
        ("{input: 1, source: s, date: 2026-01-02}", "models.mine.output: missing"),
        ("{input: 1, output: 2, date: 2026-01-02}", "models.mine.source: missing"),
        ("{input: 1, output: 2, source: s, date: soon}", "models.mine.date"),
        ("{input: 1, outputs: 2, source: s, date: 2026-01-02}", "did you mean output?"),
        ("{input: 1e308, output: 2, source: s, date: 2026-01-02}", "models.mine.input"),
        ("{input: .nan, output: 2, source: s, date: 2026-01-02}", "models.mine.input"),
    ],
)
def test_a_price_that_is_none_is_refused_by_its_key(tmp_path: Path, price: str, told: str) -> None:
    own = tmp_path / "own.yaml"
    own.write_text(f"models: {{mine: {price}}}")
    with pytest.raises(CombinedError) as refused:
        load_prices(own)
    assert told in str(refused.value)


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such price table"):
        load_prices(tmp_path / "none.yaml")
