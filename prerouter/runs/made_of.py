"""What each row of a stage was made of: where that is kept, a change costs the rows that it touches
and no others."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from prerouter.runs.manifest import write_json

MADE_OF = "made_of.json"


def digest_of(*parts: object) -> str:
    """One hash of plain data."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:32]


def keeps_made_of(folder: Path) -> bool:
    return (folder / MADE_OF).exists()


def made_otherwise(folder: Path, wanted: Mapping[str, str]) -> set[str]:
    """The keys of `wanted`, a digest by key, whose rows were made of something
    else. Empty where nothing tells."""
    if not keeps_made_of(folder):
        return set()
    kept = json.loads((folder / MADE_OF).read_bytes())
    return {key for key, digest in wanted.items() if kept.get(key) != digest}


def keep_made_of(folder: Path, wanted: Mapping[str, str]) -> None:
    """Tell what the rows that stand were made of, once those made otherwise are gone."""
    write_json(folder / MADE_OF, wanted)
