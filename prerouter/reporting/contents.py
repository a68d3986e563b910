"""What a report is made of: sections with words, tables, figures and cases. Plain data, no HTML.

The page, the files of numbers and the pictures are all made from these, so that none of them can
tell another story than the others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from prerouter.measures.statistics import Measured

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

Value = float | int | str | None
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Cell:
    """`text` is what people read, `value` what a column is sorted by and a file of numbers holds.

    `note` says why there is no value, or what to know about it.
    """

    text: str
    value: Value
    low: float | None = None
    high: float | None = None
    interval: str = ""
    note: str | None = None


@dataclass(frozen=True)
class Column:
    heading: str
    numeric: bool = True


@dataclass(frozen=True)
class Table:
    """The first column names its row. `filters` are the headings of columns by whose values people
    choose rows; `chosen` are the values that stand first. `folded` hides it behind its caption, and
    one that isn't `shown` is a file of numbers alone.

    `name` is that of its file of numbers. `left_out` rows stand in that file alone.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    filters: tuple[str, ...] = ()
    chosen: tuple[str, ...] = ()
    folded: bool = False
    shown: bool = True
    left_out: int = 0
    kind: Literal["table"] = "table"

    @property
    def notes(self) -> list[str]:
        """Each note of its cells once, in order: the page numbers them from 1."""
        found = dict.fromkeys(cell.note for row in self.rows for cell in row if cell.note)
        return [note for note in found if note]

    def options(self, heading: str) -> list[str]:
        place = [column.heading for column in self.columns].index(heading)
        return list(dict.fromkeys(row[place].text for row in self.rows))


@dataclass(frozen=True)
class Figure:
    """A picture: `paint` draws it on a canvas of `size` inches. `alternative` says in words what it
    shows to whoever doesn't see it; the numbers stand in a table beside it."""

    name: str
    title: str
    alternative: str
    size: tuple[float, float]
    paint: Callable[[Canvas], None]
    kind: Literal["figure"] = "figure"


@dataclass(frozen=True)
class RegretCase:
    """One case that a router lost on. All texts are strangers'. `grounds` are the rationale as
    (heading, text); `otherwise` is said where there are none."""

    case_id: str
    answer_model: str
    title: str
    head: str
    question: str
    chosen: str
    ideal: str
    scores: Sequence[tuple[str, str]]
    regret: str
    grounds: Sequence[tuple[str, str]]
    otherwise: str


@dataclass(frozen=True)
class RegretCases:
    """`left_out` more cases stand in a file of numbers."""

    router: str
    cases: Sequence[RegretCase]
    folded: bool = True
    left_out: int = 0
    kind: Literal["cases"] = "cases"


@dataclass(frozen=True)
class Listing:
    """A text to be shown as it is, such as commands or a recipe. The page leaves out its last
    `left_out` characters."""

    caption: str
    text: str
    left_out: int = 0
    kind: Literal["listing"] = "listing"


@dataclass(frozen=True)
class Section:
    """`words` are paragraphs; where there is nothing to show they say why. `facts` are figures to
    see first, as (name, figure, what to know about it)."""

    name: str
    title: str
    words: Sequence[str]
    parts: Sequence[Table | Figure | RegretCases | Listing] = ()
    facts: Sequence[tuple[str, str, str]] = ()


def text_cell(text: str, note: str | None = None) -> Cell:
    return Cell(text, text, note=note)


def count_cell(count: int, note: str | None = None) -> Cell:
    return Cell(f"{count:,}", count, note=note)


def number_cell(value: float | None, shown: Callable[[float], str], why: str = "n/a") -> Cell:
    """A number, or n/a with the reason why there is none."""
    return Cell("n/a", None, note=why) if value is None else Cell(shown(value), value)


def measured_cell(measured: Measured, shown: Callable[[float], str]) -> Cell:
    """A measured value with its interval, `shown` as text."""
    if measured.value is None:
        return Cell("n/a", None, note=measured.note)
    found = measured.interval
    return Cell(
        shown(measured.value),
        measured.value,
        low=found.low if found else None,
        high=found.high if found else None,
        # The value beside it says that these are shares.
        interval=f"[{shown(found.low)}, {shown(found.high)}]".replace("%", "") if found else "",
        note=measured.note,
    )
