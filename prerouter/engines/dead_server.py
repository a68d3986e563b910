"""A server that turns every call away for one reason: found out after some calls, not thousands."""

from __future__ import annotations

import re

from prerouter.core.errors import StageError
from prerouter.engines.retries import ServerError, is_passing
from prerouter.recipe.engine import OpenAIEngine

_FIRST_CALLS = 8
"""So many calls end it where no call has ever been answered."""
_LATER_ROUNDS = 4
"""Where some were, so many times `concurrency`, each tried `max_attempts` times: a server that
starts anew is back by then."""

_ONE_CALL_ONLY = frozenset({413, 451})
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|input.?(length|token)|(prompt|input)\b.*\btoo (long|large)",
    re.IGNORECASE | re.DOTALL,
)


class SettingError(ServerError):
    """A fault of the server, the key or a setting, which has nothing to do with what was asked.

    `mend` says what to do. A `passing` one is worth another attempt.
    """

    def __init__(
        self, reason: str, *, passing: bool, mend: str, retry_after: float | None = None
    ) -> None:
        super().__init__(reason, passing=passing, retry_after=retry_after)
        self.mend = mend


def status_fault(
    status: int, reason: str, section: OpenAIEngine, retry_after: float | None = None
) -> ServerError:
    """The fault that an HTTP status tells of: one of the settings or the server, but for what is
    said of one prompt alone (it is too long)."""
    if status in _ONE_CALL_ONLY or (status in (400, 422) and _TOO_LONG.search(reason)):
        return ServerError(reason, passing=False)
    key = section.api_key_variable
    mends = {
        401: f"put a valid key into {key}, or name another variable in engine.api_key_variable",
        402: f"top up the account that {key} belongs to",
        403: f"use a key with access to {section.model} ({key}), or mend engine.model",
        404: "mend engine.model or engine.base_url",
        405: "mend engine.base_url",
        407: "mend the proxy in HTTPS_PROXY",
        429: "raise the quota of the account, wait, or lower engine.concurrency",
    }
    if status < 400:
        mend = "mend engine.base_url: no redirect is followed"
    elif status >= 500:
        mend = "look after the server"
    else:
        mend = mends.get(status, "mend the setting that the server refuses")
    return SettingError(reason, passing=is_passing(status), mend=mend, retry_after=retry_after)


def no_connection(reason: str) -> SettingError:
    """Nobody listens, or there is no such host."""
    return SettingError(reason, passing=True, mend="start the server, or mend engine.base_url")


class Watch:
    """Counts calls that failed in a row for one reason, over all batches of an engine."""

    def __init__(self, section: OpenAIEngine) -> None:
        self._section = section
        self._answered = False
        self._alike = ""
        self._in_a_row = 0

    def answered(self) -> None:
        """A call was answered, whatever the answer is worth."""
        self._answered = True
        self._in_a_row = 0

    def failed(self, fault: ServerError) -> None:
        """A call failed for good. Raises StageError once so many did in a row, for one reason.

        What lies with one prompt (a refusal, a filter) is an answer of a server that works.
        """
        if isinstance(fault, SettingError):
            alike, mend = fault.mend, fault.mend
        elif fault.passing:
            alike, mend = fault.reason, "look at what the server sends, or mend engine.base_url"
        else:
            self._in_a_row = 0
            return
        self._in_a_row = self._in_a_row + 1 if alike == self._alike else 1
        self._alike = alike
        limit = _FIRST_CALLS
        if self._answered:
            limit = max(limit, _LATER_ROUNDS * self._section.concurrency)
        if self._in_a_row >= limit:
            raise StageError(
                self._section.base_url,
                f"{self._in_a_row} calls in a row failed alike: {fault.reason}",
                next_step=f"{mend}, and run again: what is done is kept",
            )
