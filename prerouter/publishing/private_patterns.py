"""What is private by its form alone: paths of machines, keys, e-mail addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

PATH = "a path of a machine"
# Below which people keep their own, on whatever machine.
_ROOTS = ("home", "Users", "root", "tmp", "var/folders", "Volumes", "export/home")
# These begin addresses of services and patterns of files as well: two plain names have to follow.
_SHARED_ROOTS = ("private", "mnt", "scratch", "data", "nfs")
_NAME = r"[\w.@+~$-]+"
# Of a Windows path: a name with a sign of regular expressions or of TeX behind it is none.
_PART = r"[\w.-]{2,}+(?![+*?{(\[|^])"
_WINDOWS_ROOTS = "Users|Documents and Settings|My Documents|home|Temp|tmp"


@dataclass(frozen=True)
class Pattern:
    """Something private by its form. `anchors` are literal: without one of them nothing matches,
    which makes a long text quick to pass over. One with `backslashes` says nothing of a text in
    which they are escapes."""

    kind: str
    anchors: tuple[str, ...]
    expression: re.Pattern[str]
    secret: bool = False
    backslashes: bool = False


def _key(kind: str, anchors: tuple[str, ...], expression: re.Pattern[str]) -> Pattern:
    return Pattern(kind, anchors, expression, secret=True)


PATHS = (
    Pattern(
        PATH,
        (*(f"/{root}/" for root in (*_ROOTS, *_SHARED_ROOTS)), "file:///"),
        # Behind a letter, a slash is a web address's.
        re.compile(
            rf"(?:file://|(?<![\w.-]))/(?:(?:{'|'.join(_ROOTS)})/"
            rf"|(?:{'|'.join(_SHARED_ROOTS)})/{_NAME}/(?={_NAME}))[^\s\"'`<>)\]\\]+"
            r"|file:///[^\s\"'`<>)\]]+"
        ),
    ),
    Pattern(
        PATH,
        (":\\",),
        # `A:\nYes\nNo` in a template are three lines: of the names, one begins with no n, r or t.
        # Behind a question mark, a letter is the flag of a regular expression.
        re.compile(
            rf"(?<![?\w-])[A-Za-z]:\\+(?:(?i:{_WINDOWS_ROOTS})\\+[\w.-]|(?![nrt]){_PART}\\+{_PART}"
            rf"|(?:[nrt][\w.-]++\\+)+(?![nrt]){_PART})[^\s\"'<>]*"
        ),
        backslashes=True,
    ),
    Pattern(
        PATH,
        (":/",),
        re.compile(r"\b[A-Za-z]:/(?!/)[\w.-]+/[^\s\"'<>]*"),
    ),
    Pattern(
        PATH,
        ("\\\\",),
        re.compile(r"(?<![\\\w])\\\\[\w.-]{2,}\\[\w.$-]{2,}[^\s\"'<>]*"),
        backslashes=True,
    ),
)
KEYS = (
    _key("a Hugging Face token", ("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{20,}")),
    _key("an API key", ("sk-",), re.compile(r"\bsk-[A-Za-z0-9_-]{20,}")),
    _key("an AWS access key", ("AKIA", "ASIA"), re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b")),
    _key(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
    ),
    _key("a GitLab token", ("glpat-",), re.compile(r"\bglpat-[\w-]{20,}")),
    _key("a Groq API key", ("gsk_",), re.compile(r"\bgsk_[A-Za-z0-9]{20,}")),
    _key("an NVIDIA API key", ("nvapi-",), re.compile(r"\bnvapi-[\w-]{20,}")),
    _key("an xAI API key", ("xai-",), re.compile(r"\bxai-[A-Za-z0-9]{20,}")),
    _key("a Replicate token", ("r8_",), re.compile(r"\br8_[A-Za-z0-9]{20,}")),
    _key("an npm token", ("npm_",), re.compile(r"\bnpm_[A-Za-z0-9]{30,}")),
    _key("a PyPI token", ("pypi-",), re.compile(r"\bpypi-[\w-]{30,}")),
    _key("a bearer token", ("Bearer ", "bearer "), re.compile(r"\b[Bb]earer [\w.~+/-]{20,}")),
    _key("an Azure storage key", ("AccountKey=",), re.compile(r"\bAccountKey=[A-Za-z0-9+/]{20,}")),
    _key("a Google API key", ("AIza",), re.compile(r"\bAIza[\w-]{35}")),
    _key("a Slack token", ("xox",), re.compile(r"\bxox[abprs]-[\w-]{10,}")),
    _key("a private key", ("PRIVATE KEY",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----")),
    _key("a JSON Web Token", ("eyJ",), re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}")),
    _key(
        "an address with a password",
        ("://",),
        re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:[^\s/@\"']+@"),
    ),
)
MAIL = Pattern(
    "an e-mail address", ("@",), re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
)
# Of examples (RFC 2606), of nobody, and of git's own way to write an address.
NO_MAIL = re.compile(r"@(?:example\.\w+|(?:\w+\.)?noreply\.\S+)$|^git@", re.IGNORECASE)
