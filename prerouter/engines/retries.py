"""The one retry layer over a server: which faults pass, and how long to wait."""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING

from prerouter.recipe.engine import OpenAIEngine

if TYPE_CHECKING:
    from tenacity import AsyncRetrying, RetryCallState

_PASSING_STATUS = frozenset({408, 425, 429})


class ServerError(Exception):
    """An attempt that failed. A `passing` fault is worth another attempt.

    `reason` is one line that holds no key and no header. `retry_after` is what the server asked
    for, in seconds. `prompt_tokens` and `completion_tokens` were paid for a reply that is none.
    """

    def __init__(self, reason: str, *, passing: bool, retry_after: float | None = None) -> None:
        self.reason = reason
        self.passing = passing
        self.retry_after = retry_after
        self.prompt_tokens = 0
        self.completion_tokens = 0
        super().__init__(reason)


def is_passing(status: int) -> bool:
    """Whether an HTTP status tells of a state that may be over at the next attempt."""
    return status in _PASSING_STATUS or status >= 500


def attempts(section: OpenAIEngine) -> AsyncRetrying:
    """Attempts at one request: iterate, and raise `ServerError` inside each.

    The wait before attempt n + 1 is drawn from 0 to backoff_seconds * 2 ** (n - 1) (full jitter);
    where the server sent Retry-After, that is waited first. Each part is capped by
    max_wait_seconds. The last fault is raised as it is.
    """
    from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt

    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, ServerError) and error.passing),
        stop=stop_after_attempt(section.max_attempts),
        wait=_wait(section.backoff_seconds, section.max_wait_seconds),
        reraise=True,
    )


def retry_after_seconds(header: str | None, now: datetime | None = None) -> float | None:
    """A Retry-After header in seconds, from a number or an HTTP date; None for anything else."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            date = parsedate_to_datetime(header)
            if date.tzinfo is None:
                date = date.replace(tzinfo=UTC)
            seconds = (date - (now or datetime.now(UTC))).total_seconds()
        except (ValueError, OverflowError):
            return None
    return max(seconds, 0.0) if math.isfinite(seconds) else None


def _wait(backoff_seconds: float, longest: float) -> Callable[[RetryCallState], float]:
    from tenacity import wait_random_exponential

    backoff = wait_random_exponential(multiplier=backoff_seconds, max=longest)

    def wait(state: RetryCallState) -> float:
        fault = state.outcome.exception() if state.outcome else None
        asked = fault.retry_after if isinstance(fault, ServerError) else None
        return min(asked or 0.0, longest) + float(backoff(state))

    return wait
