"""A server that turns every call away for one reason: found out after some calls, not thousands."""

from __future__ import annotations

from prerouter.core.errors import StageError
from prerouter.engines.retries import ServerError
from prerouter.recipe.engine import OpenAIEngine

_FIRST_CALLS = 8
"""So many calls end it where no call has ever been answered."""
_LATER_ROUNDS = 4
"""Where some were, so many times `concurrency`, each tried `max_attempts` times: a server that
starts anew is back by then."""


class SettingError(ServerError):
    """A fault of the server, the key or a setting, which has nothing to do with what was asked.

    `mend` says what to do. A `passing` one is worth another attempt.
    """

    def __init__(self, reason: str, *, passing: bool, mend: str) -> None:
        super().__init__(reason, passing=passing)
        self.mend = mend


def status_fault(status: int, reason: str, section: OpenAIEngine) -> SettingError | None:
    """The fault that an HTTP status tells of, where it tells of the settings."""
    key = section.api_key_variable
    mend = {
        401: f"put a valid key into {key}, or name another variable in engine.api_key_variable",
        403: f"use a key with access to {section.model} ({key}), or mend engine.model",
        404: "mend engine.model or engine.base_url",
    }.get(status)
    return SettingError(reason, passing=False, mend=mend) if mend else None


def no_connection(reason: str) -> SettingError:
    """Nobody listens, or there is no such host."""
    return SettingError(reason, passing=True, mend="start the server, or mend engine.base_url")


class Watch:
    """Counts calls that failed in a row for one `SettingError`, over all batches of an engine."""

    def __init__(self, section: OpenAIEngine) -> None:
        self._section = section
        self._answered = False
        self._mend = ""
        self._in_a_row = 0

    def answered(self) -> None:
        """A call was answered, whatever the answer is worth."""
        self._answered = True
        self._in_a_row = 0

    def failed(self, fault: ServerError) -> None:
        """A call failed for good. Raises StageError once so many did in a row, for one reason."""
        if not isinstance(fault, SettingError):
            self._in_a_row = 0
            return
        self._in_a_row = self._in_a_row + 1 if fault.mend == self._mend else 1
        self._mend = fault.mend
        limit = _FIRST_CALLS
        if self._answered:
            limit = max(limit, _LATER_ROUNDS * self._section.concurrency)
        if self._in_a_row >= limit:
            raise StageError(
                self._section.base_url,
                f"{self._in_a_row} calls in a row failed alike: {fault.reason}",
                next_step=f"{fault.mend}, and run again: what is done is kept",
            )
