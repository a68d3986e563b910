"""What went wrong on the way to the Hub, in one line: what stands there now, and how to go on."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from prerouter.core.errors import StageError

_COMMITTING = "committing"
_MAKING = "making the repository"
# The part of a call's address that tells what the call is for, and that in words.
_CALLS = (
    ("/api/validate-yaml", "reading the card"),
    ("/api/repos/create", _MAKING),
    ("/preupload/", "asking how to upload"),
    ("/info/lfs/", "uploading"),
    ("/xet-", "uploading"),
    ("/commit/", _COMMITTING),
    ("/api/", "looking for the repository"),
)
_SHOWN = 300


@dataclass(frozen=True)
class _Said:
    problem: str
    accepted: str
    next_step: str


_AGAIN = "run the same again: what the Hub has already is not sent twice"


def tell(
    error: BaseException, repo_id: str, token: str, token_variable: str, made: bool
) -> StageError:
    """`made` says that this push made the repository. The line never holds the token."""
    cause = _cause(error)
    status = getattr(getattr(cause, "response", None), "status_code", None)
    doing = _doing(cause)
    said = _by_status(status, token_variable) or _by_kind(cause)
    detail = _detail(cause, token)
    stands = "an empty repository, made just now" if made else "what was there before, unchanged"
    if doing == _COMMITTING and status is None:
        stands = "the old state or the whole of the new one, since the answer was lost"
    if doing == _MAKING and status is None:
        stands = "nothing, or an empty repository, since the answer was lost"
    where = f" while {doing}" if doing else ""
    return StageError(
        repo_id,
        f"the Hub did not take it: {said.problem}{where} ({detail})",
        said.accepted,
        f"there now: {stands}; {said.next_step}",
    )


def _cause(error: BaseException) -> BaseException:
    """What the client's own wrapping hides."""
    while isinstance(error, RuntimeError) and error.__cause__ is not None:
        error = error.__cause__
    return error


def _doing(error: BaseException) -> str:
    try:
        # httpx raises where an error belongs to no request.
        address = str(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return ""
    return next((words for part, words in _CALLS if part in address), "uploading")


def _by_status(status: int | None, token_variable: str) -> _Said | None:
    if status is None:
        return None
    if status == 401:
        return _Said(
            "the token is not valid, or the repository is not to be seen with it, 401",
            "a token of the Hub with the right to write",
            f"make one at https://huggingface.co/settings/tokens and export {token_variable}=...",
        )
    if status == 403:
        return _Said(
            "the token may not write there, 403",
            f"a repository that {token_variable} may write to",
            "take a token with the right to write, or a name of your own",
        )
    if status == 404:
        return _Said("it is not there, 404", "a repository that exists", _AGAIN)
    if status in (409, 412):
        return _Said(
            f"somebody made or changed the repository in between, {status}",
            "",
            "look at what they did, then run the same again",
        )
    if status == 413:
        return _Said(
            "a file is too large for the Hub, 413",
            "files within its limits",
            "write it in smaller shards",
        )
    if status == 429:
        return _Said("too many calls, 429", "", "wait some minutes, then run the same again")
    if status >= 500:
        return _Said(f"it is not well, {status}", "", _AGAIN)
    return _Said(f"it refused, {status}", "", "mend what it names, then run the same again")


def _by_kind(error: BaseException) -> _Said:
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return _Said("offline mode is on", "a network", "unset HF_HUB_OFFLINE")
    if isinstance(error, (json.JSONDecodeError, KeyError)):
        return _Said("its answer can't be read", "a Hub, and no page of a proxy's", _AGAIN)
    if isinstance(error, ValueError):
        return _Said("it refused", "", "mend what it names, then run the same again")
    return _Said("the connection broke", "a network", _AGAIN)


def _detail(error: BaseException, token: str) -> str:
    text = " ".join((getattr(error, "server_message", None) or str(error)).split())
    text = re.sub(r"(?i)bearer \S+", "Bearer [token]", text.replace(token, "[token]"))
    return text[:_SHOWN] or type(error).__name__
