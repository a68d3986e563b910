"""The price table: what models cost by the token. It is data, which users keep up to date."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Annotated

from pydantic import Field

from prerouter.core.errors import InputError
from prerouter.recipe.base import Section, read_yaml, validate

Dollars = Annotated[float, Field(ge=0, le=1e6, description="USD for a million tokens")]


class Price(Section):
    """The list price of one model in USD for a million tokens, and where and when it was read.

    `cached_input` is for prompt tokens that the server has read before; where it is absent, they
    cost as much as others.
    """

    input: Dollars
    output: Dollars
    cached_input: Dollars | None = None
    source: Annotated[str, Field(min_length=1)]
    date: datetime.date


class PriceTable(Section):
    """Prices by the model's name, as an `engine` section writes it."""

    models: dict[str, Price]


def load_prices(path: Path | None = None) -> tuple[PriceTable, Path]:
    """The table in `path`, or the one that ships; and the file it stands in.

    Raises InputError where there is no such file, and a CombinedError with every mistake in it.
    """
    chosen = path or _shipped()
    if not chosen.is_file():
        raise InputError(str(chosen), "no such price table", next_step="mend `prices`")
    return validate(PriceTable, read_yaml(chosen), str(chosen)), chosen


def _shipped() -> Path:
    """A wheel carries the table inside the package, a checkout beside it."""
    package = Path(__file__).parents[1]
    inside = package / "recipe" / "prices.yaml"
    return inside if inside.is_file() else package.parent / "data" / "prices.yaml"
