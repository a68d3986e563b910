"""What is private by its form alone: paths of machines, keys, e-mail addresses."""

from __future__ import annotations

import re
from dataclasses import dataclass

# Below which people keep their own, on whatever machine.
_ROOTS = (
    "home", "Users", "root", "tmp", "var/folders", "private", "mnt", "scratch", "Volumes", "data",
    "export/home", "nfs",
)  # fmt: skip


@dataclass(frozen=True)
class Pattern:
    """Something private by its form. `anchors` are literal: without one of them nothing matches,
    which makes a long text quick to pass over."""

    kind: str
    anchors: tuple[str, ...]
    expression: re.Pattern[str]
    secret: bool = False


PATHS = (
    Pattern(
        "a path of a machine",
        (*(f"/{root}/" for root in _ROOTS), "file:///"),
        # Behind a letter, a slash is a web address's.
        re.compile(
            rf"(?:file://|(?<![\w.-]))/(?:{'|'.join(_ROOTS)})/[^\s\"'`<>)\]\\]+"
            r"|file:///[^\s\"'`<>)\]]+"
        ),
    ),
    Pattern(
        "a path of a machine",
        (":\\",),
        # `Q:\n` in a template is the end of a line, and no file called n.
        re.compile(r"\b[A-Za-z]:\\+(?:(?![nrtbfu])\w|[\w.-]{2,}\\+[\w.-]{2,})[^\s\"'<>]*"),
    ),
    Pattern(
        "a path of a machine",
        (":/",),
        re.compile(r"\b[A-Za-z]:/(?!/)[\w.-]+/[^\s\"'<>]*"),
    ),
    Pattern(
        "a path of a machine",
        ("\\\\",),
        re.compile(r"(?<![\\\w])\\\\[\w.-]{2,}\\[\w.$-]{2,}[^\s\"'<>]*"),
    ),
)
KEYS = (
    Pattern("a Hugging Face token", ("hf_",), re.compile(r"\bhf_[A-Za-z0-9]{20,}"), True),
    Pattern("an API key", ("sk-",), re.compile(r"\bsk-[A-Za-z0-9_-]{20,}"), True),
    Pattern(
        "an AWS access key",
        ("AKIA", "ASIA"),
        re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
        True,
    ),
    Pattern(
        "a GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,})"),
        True,
    ),
    Pattern("a GitLab token", ("glpat-",), re.compile(r"\bglpat-[\w-]{20,}"), True),
    Pattern("a Groq API key", ("gsk_",), re.compile(r"\bgsk_[A-Za-z0-9]{20,}"), True),
    Pattern("an NVIDIA API key", ("nvapi-",), re.compile(r"\bnvapi-[\w-]{20,}"), True),
    Pattern("an xAI API key", ("xai-",), re.compile(r"\bxai-[A-Za-z0-9]{20,}"), True),
    Pattern("a Replicate token", ("r8_",), re.compile(r"\br8_[A-Za-z0-9]{20,}"), True),
    Pattern("an npm token", ("npm_",), re.compile(r"\bnpm_[A-Za-z0-9]{30,}"), True),
    Pattern("a PyPI token", ("pypi-",), re.compile(r"\bpypi-[\w-]{30,}"), True),
    Pattern(
        "a bearer token",
        ("Bearer ", "bearer "),
        re.compile(r"\b[Bb]earer [\w.~+/-]{20,}"),
        True,
    ),
    Pattern(
        "an Azure storage key",
        ("AccountKey=",),
        re.compile(r"\bAccountKey=[A-Za-z0-9+/]{20,}"),
        True,
    ),
    Pattern("a Google API key", ("AIza",), re.compile(r"\bAIza[\w-]{35}"), True),
    Pattern("a Slack token", ("xox",), re.compile(r"\bxox[abprs]-[\w-]{10,}"), True),
    Pattern(
        "a private key", ("PRIVATE KEY",), re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----"), True
    ),
    Pattern(
        "a JSON Web Token",
        ("eyJ",),
        re.compile(r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
        True,
    ),
    Pattern(
        "an address with a password",
        ("://",),
        re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@\"']*:[^\s/@\"']+@"),
        True,
    ),
)
MAIL = Pattern(
    "an e-mail address", ("@",), re.compile(r"\b[\w.+-]+@[\w-]+(?:\.[\w-]+)*\.[A-Za-z]{2,}\b")
)
# Of examples (RFC 2606), of nobody, and of git's own way to write an address.
NO_MAIL = re.compile(r"@(?:example\.\w+|(?:\w+\.)?noreply\.\S+)$|^git@", re.IGNORECASE)
