"""Folders onto the Hub, each in one commit: whoever looks sees all of it or nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from prerouter.core.errors import RecipeError, StageError
from prerouter.core.records import Split
from prerouter.publishing.dataset import TAGS
from prerouter.publishing.folder import CARD_FILE
from prerouter.publishing.shards import Config

if TYPE_CHECKING:
    from huggingface_hub.hf_api import DatasetInfo

# Of a shard's name: what DatasetWriter counts with.
SHARD_DIGITS = "[0-9]" * 5
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
    can't be reached or refuses; and before anything is written, where the repository holds what
    prerouter didn't put there, or isn't as private as asked for.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        OfflineModeIsEnabled,
        RepositoryNotFoundError,
    )

    if not (folder / CARD_FILE).is_file():
        raise StageError(str(folder), "is no data set's folder", next_step="run it without --push")
    api = HfApi(endpoint=endpoint, token=token)
    try:
        try:
            _check_ours(api.dataset_info(repo_id), repo_id, private)
        except RepositoryNotFoundError:
            api.create_repo(repo_id, repo_type="dataset", private=private)
        commit = api.upload_folder(
            repo_id=repo_id,
            folder_path=folder,
            repo_type="dataset",
            commit_message="Traces by prerouter",
            delete_patterns=[
                f"{config.value}/{split.value}-{SHARD_DIGITS}.parquet"
                for config in Config
                for split in Split
            ],
        )
    except (HfHubHTTPError, OfflineModeIsEnabled, httpx2.HTTPError, ValueError) as error:
        raise StageError(
            repo_id,
            f"the Hub did not take it: {str(error).replace(token, '[token]')}",
            f"a repository that {TOKEN_VARIABLE} may write to, and a network",
            "run the same again: nothing half done is left there",
        ) from None
    return str(commit.commit_url)


def _check_ours(found: DatasetInfo, repo_id: str, private: bool) -> None:
    """Whether a repository that exists may be written over: with the visibility asked for, and an
    empty one, or one with a card of prerouter's."""
    if bool(found.private) is not private:
        raise StageError(
            repo_id,
            f"is {'private' if found.private else 'public'} on the Hub, and dataset.private is "
            f"{str(private).lower()}",
            "the same in both places",
            "set dataset.private, or change the repository on the Hub",
        )
    files = {file.rfilename for file in found.siblings or ()} - {".gitattributes"}
    tags = found.card_data.get("tags") if found.card_data else None
    if files and TAGS[0] not in (tags or ()):
        raise StageError(
            repo_id,
            f"holds {len(files)} files on the Hub and no card of prerouter's",
            "a new name, an empty repository, or one that prerouter wrote",
            "give another name by dataset.repo_id",
        )
