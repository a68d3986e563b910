"""Whether the Hub would take a card's metadata, told without asking it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prerouter.core.errors import CheckpointError
from prerouter.recipe.hub import LANGUAGE, LICENCES, is_repo_id


def check_metadata(metadata: Mapping[str, Any]) -> None:
    """Raises CheckpointError that names every licence, language and repository that the Hub would
    refuse or pass over in silence.

    The Hub has rules of its own beside these; a push asks it before it uploads.
    """
    mistakes = _names(metadata)
    if metadata.get("license") not in LICENCES:
        mistakes.append(f"license {metadata.get('license')!r} is none that it knows")
    mistakes += [
        f"language {language!r} is no ISO 639 code"
        for language in metadata.get("language") or ()
        if not LANGUAGE.fullmatch(language)
    ]
    if mistakes:
        raise CheckpointError(
            "the card's metadata",
            f"the Hub would not take it: {', '.join(mistakes)}",
            next_step="mend the recipe's section",
        )


def _names(metadata: Mapping[str, Any]) -> list[str]:
    found = []
    for key in ("base_model", "datasets"):
        value = metadata.get(key) or []
        names = [value] if isinstance(value, str) else value
        found += [f"{key} {name!r} is no repository" for name in names if not is_repo_id(name)]
    return found
