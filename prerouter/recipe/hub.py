"""What the Hub takes: names of repositories, licences and languages, told before anything is made.

The licence identifiers are those of the Hub's documentation (docs/hub/repositories-licenses); the
Hub refuses a card with another one.
"""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

LICENCES = frozenset(
    """
    afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
    bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
    bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
    cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
    cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0
    creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
    fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 h-research intel-research isc
    lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3 llama4 lppl-1.3c mit
    mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openrail openrail++ osl-3.0 other pddl
    postgresql unknown unlicense wtfpl zlib
    """.split()  # noqa: SIM905
)
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|code|multilingual")

_PART = r"[A-Za-z0-9_](?:[\w.-]*[A-Za-z0-9_])?"
REPO_ID = re.compile(rf"{_PART}/{_PART}", re.ASCII)
_ADDRESS = re.compile(r"(?:https?://)?(?:www\.)?(?:huggingface\.co|hf\.co)/", re.IGNORECASE)


def is_repo_id(name: str) -> bool:
    """Whether the Hub would take it as the name of a repository that has an owner."""
    return (
        len(name) <= 96
        and REPO_ID.fullmatch(name) is not None
        and "--" not in name
        and ".." not in name
        and not name.endswith(".git")
    )


def _repo_id(name: str) -> str:
    if is_repo_id(name):
        return name
    bare = _ADDRESS.sub("", name.strip(), count=1)
    parts = [part for part in re.split(r"[/?#]", bare) if part]
    if parts[:1] in (["datasets"], ["models"]):
        parts = parts[1:]
    meant = "/".join(parts[:2])
    if "/" in name and meant != name and is_repo_id(meant):
        raise ValueError(f"an address where a name is asked for: did you mean {meant}?")
    if "/" not in name:
        raise ValueError(f"a name on the Hub has an owner, such as you/{name or 'router'}")
    raise ValueError(
        "no name on the Hub: owner/name of letters, digits, '-', '_' and '.', neither part with "
        "'-' or '.' at an end, without '--' and '..', and no .git at the end"
    )


def _licence(name: str) -> str:
    if name not in LICENCES:
        raise ValueError(
            "a licence by the Hub's identifier, such as apache-2.0, mit or cc-by-4.0; `other` "
            "where the Hub has none for it"
        )
    return name


def _language(name: str) -> str:
    if not LANGUAGE.fullmatch(name):
        raise ValueError("a language code of two or three letters, such as en")
    return name


RepoId = Annotated[
    str, Field(max_length=96, description="owner/name on the Hub"), AfterValidator(_repo_id)
]
Licence = Annotated[
    str,
    Field(max_length=64, description="an identifier that the Hub knows"),
    AfterValidator(_licence),
]
Language = Annotated[
    str, Field(max_length=32, description="ISO 639, such as en"), AfterValidator(_language)
]
