"""The errors that a user is meant to read: one line each, and nothing lost."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import ValidationError


class PrerouterError(Exception):
    """`place: what is wrong; what is accepted; what to do next`.

    Only the command line prints it. `place` is a file with its line or row, a recipe key, a stage
    or a URL; the other parts are clauses without a final full stop.
    """

    def __init__(self, place: str, problem: str, accepted: str = "", next_step: str = "") -> None:
        self.place = place
        self.problem = problem
        self.accepted = accepted
        self.next_step = next_step
        super().__init__(self.line)

    @property
    def line(self) -> str:
        clauses = [part for part in (self.problem, self.accepted, self.next_step) if part]
        # One error is one line whatever text a hostile file put into it.
        return " ".join(f"{self.place}: {'; '.join(clauses)}".split())

    @property
    def lines(self) -> list[str]:
        return [self.line]


class RecipeError(PrerouterError):
    """A recipe that can't be run as it is written."""


class InputError(PrerouterError):
    """A file of the user's that can't be read as what the recipe says it is."""


class StageError(PrerouterError):
    """A stage that could not finish; what it had done stays on disk."""


class CheckpointError(PrerouterError):
    """A router folder that is incomplete, altered, or not safe to load."""


class MissingDependencyError(PrerouterError):
    """A library that the chosen way needs and the environment lacks."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            package,
            "is not installed",
            next_step=f"in prerouter's clone: pip install -e '.[{extra}]'",
        )


class CombinedError(PrerouterError):
    """Several errors found in one pass, reported together."""

    def __init__(self, errors: Sequence[PrerouterError]) -> None:
        if not errors:
            raise ValueError("a CombinedError needs at least one error")
        self.errors = list(errors)
        first = self.errors[0]
        super().__init__(first.place, first.problem, first.accepted, first.next_step)

    @property
    def lines(self) -> list[str]:
        return [line for error in self.errors for line in error.lines]

    def __str__(self) -> str:
        return "\n".join(self.lines)


def first_mistake(error: ValidationError, whole: str = "") -> str:
    """Where the first mistake of a record is, and what: `field: message`. One of the record as a
    `whole` is called so, or has no place."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or whole
    return f"{place}: {first['msg']}" if place else first["msg"]
