"""Folders onto the Hub, each in one commit: whoever looks sees all of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path

from prerouter.core.errors import RecipeError, StageError
from prerouter.publishing.folder import CARD_FILE
from prerouter.publishing.shards import Config

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 -- a name, no secret


def hub_token() -> str:
    """The token in the environment. Raises RecipeError where there is none."""
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not token:
        raise RecipeError(
            TOKEN_VARIABLE,
            "is not set in the environment, and --push needs it",
            "a token of the Hub with the right to write",
            f"export {TOKEN_VARIABLE}=...",
        )
    return token


def push_dataset(
    folder: Path, repo_id: str, private: bool, token: str, endpoint: str | None = None
) -> str:
    """Put a finished data set's folder into the Hub's repository `repo_id`, made where it isn't
    there; returns the commit's address.

    Shards of an earlier version that the folder no longer has go in the same commit. `endpoint` is
    another Hub than the public one. Raises StageError, which never holds the token, where the Hub
    can't be reached or refuses.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if not (folder / CARD_FILE).is_file():
        raise StageError(str(folder), "is no data set's folder", next_step="run it without --push")
    api = HfApi(endpoint=endpoint, token=token)
    try:
        api.create_repo(repo_id, repo_type="dataset", private=private, exist_ok=True)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Traces by prerouter",
            delete_patterns=[f"{config.value}/*.parquet" for config in Config],
        )
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, ValueError) as error:
        raise StageError(
            repo_id,
            f"the Hub did not take it: {str(error).replace(token, '[token]')}",
            f"a repository that {TOKEN_VARIABLE} may write to, and a network",
            "run the same again: nothing half done is left there",
        ) from None
    return str(commit.commit_url)
