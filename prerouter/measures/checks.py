"""What a measure asks of the numbers it is given: refused or flagged in words, never swallowed."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from prerouter.core.errors import StageError
from prerouter.core.records import ROUTES
from prerouter.measures.statistics import Floats

MIN_CASES = 30


def finite(
    place: str, name: str, values: npt.ArrayLike | Sequence[float | None], n: int | None = None
) -> Floats:
    """`values` as a vector of at least one float, `n` where given; None, NaN, inf: StageError."""
    array = _floats(place, name, values)
    if array.ndim != 1 or not array.size:
        raise StageError(
            place, f"{name} has the shape {array.shape}", "one number for each of one or more cases"
        )
    if n is not None and array.size != n:
        raise StageError(place, f"{name} has {array.size} values for {n} cases", "one for each")
    bad = np.flatnonzero(~np.isfinite(array))
    if bad.size:
        raise StageError(
            place,
            f"{name}: {bad.size} of {array.size} values are missing or not finite, "
            f"the first at place {bad[0]}",
            "a number for each case",
            "leave these cases out and say how many they were",
        )
    return array


def _floats(place: str, name: str, values: npt.ArrayLike | Sequence[float | None]) -> Floats:
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise StageError(place, f"{name}: {error}", "numbers") from None


def probabilities(
    place: str, values: npt.ArrayLike | Sequence[float | None], n: int | None = None
) -> Floats:
    """p_lc as a vector within 0..1; anything else is a StageError."""
    array = finite(place, "p_lc", values, n)
    outside = array[(array < 0) | (array > 1)]
    if outside.size:
        raise StageError(place, f"p_lc {outside[0]:g} is no probability", "0 to 1")
    return array


def binary(place: str, name: str, values: npt.ArrayLike, n: int) -> npt.NDArray[np.bool_]:
    """True or False (or 1 or 0) for each of `n` cases; anything else is a StageError."""
    array = finite(place, name, values, n)
    if not np.isin(array, (0, 1)).all():
        raise StageError(place, f"{name} holds values other than 0 and 1", "0 or 1 for each case")
    return array.astype(np.bool_)


def by_route(place: str, name: str, values: npt.ArrayLike, n: int) -> Floats:
    """`values` as (n, routes), columns as ROUTES and perhaps more; another shape, None, NaN, inf:
    StageError."""
    table = _floats(place, name, values)
    if table.ndim != 2 or len(table) != n or table.shape[1] < len(ROUTES):
        raise StageError(
            place, f"{name}: the shape {table.shape}", f"{n} rows, a column for each route"
        )
    return finite(place, name, table.ravel()).reshape(table.shape)


def caution(n: int, min_cases: int, what: str = "cases") -> str | None:
    """The warning that goes with a figure over fewer than `min_cases`, else None."""
    if n >= min_cases:
        return None
    return f"only {n} {what} (fewer than {min_cases}): an example, hardly a figure"
