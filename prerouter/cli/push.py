"""What every push has in common: what it needs, and what it says at its end."""

from __future__ import annotations

import sys

from prerouter.cli.console import plain
from prerouter.core.errors import RecipeError
from prerouter.publishing.hub import Parcel, hub_token, push


def ask_to_push(place: str, repo_id: str | None, example: str, way: str) -> str:
    """The token to push with. Raises RecipeError where there is none, or no name."""
    if repo_id is None:
        raise RecipeError(
            place,
            "missing, and --push needs it",
            f"a name on the Hub such as {example}",
            f"add it, or give it by {way}",
        )
    return hub_token()


def send(parcel: Parcel, token: str) -> None:
    """Push, and say where it lies now. Raises StageError as `push` does."""
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    pushed = push(parcel, token)
    for note in pushed.notes:
        plain(f"the Hub on the card: {note}", error=True)
    if pushed.changed:
        plain(f"pushed in one commit: {pushed.address}")
    else:
        plain(f"the Hub has all of it already: {pushed.address}")
