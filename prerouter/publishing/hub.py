"""Folders onto the Hub, each in one commit: whoever looks sees all of it or nothing."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from prerouter.core.errors import RecipeError, StageError
from prerouter.core.records import Split
from prerouter.publishing.adapter import ADAPTER_WEIGHTS
from prerouter.publishing.cards import TAGS
from prerouter.publishing.folder import (
    ADAPTER_FILE,
    CARD_FILE,
    IGNORED_FOLDERS,
    REPORT_FOLDERS,
    REQUIRED_FILES,
    UNLISTED_FILES,
    WEIGHTS_INDEX,
)
from prerouter.publishing.hub_errors import tell
from prerouter.publishing.shards import Config

if TYPE_CHECKING:
    from huggingface_hub import CommitInfo, HfApi
    from huggingface_hub.hf_api import DatasetInfo, ModelInfo

TOKEN_VARIABLE = "HF_TOKEN"  # noqa: S105 -- a name, no secret
MAX_FILE_BYTES = 500_000_000_000
"""The Hub takes no larger file (docs/hub/storage-limits)."""

_SHARD = re.compile(
    f"({'|'.join(Config)})/({'|'.join(Split)})-[0-9]{{5}}\\.parquet"  # DatasetWriter's names
)
# What routers hold beside weights and reports, in whichever version of transformers.
_OF_A_ROUTER = frozenset(
    {
        *REQUIRED_FILES,
        WEIGHTS_INDEX,
        ADAPTER_FILE,
        ADAPTER_WEIGHTS,
        "evaluation.json",
        "chat_template.jinja",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "tokenizer.model",
    }
)


@dataclass(frozen=True)
class Parcel:
    """A finished folder and the repository that it goes to."""

    repo_type: Literal["model", "dataset"]
    folder: Path
    repo_id: str
    private: bool

    @property
    def section(self) -> str:
        """The recipe's section that says where it goes."""
        return "publish" if self.repo_type == "model" else "dataset"

    @property
    def files(self) -> list[str]:
        """All that goes along, by its path in the repository."""
        found = (path for path in self.folder.rglob("*") if path.is_file())
        names = (path.relative_to(self.folder) for path in found)
        return sorted(name.as_posix() for name in names if name.parts[0] not in IGNORED_FOLDERS)


@dataclass(frozen=True)
class Pushed:
    """`address` is the commit's; nothing was `changed` where the Hub had all of it already. `notes`
    are what the Hub found to say of the card."""

    address: str
    changed: bool
    notes: tuple[str, ...] = ()


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


def push(parcel: Parcel, token: str, endpoint: str | None = None) -> Pushed:
    """Put a folder into the Hub's repository, made where it isn't there, in one commit. Files that
    the Hub has already are not uploaded again; those of an earlier version that the folder no
    longer has go in the same commit.

    `endpoint` is another Hub than the public one. Raises StageError, which never holds the token:
    before anything is written, where the repository holds what prerouter didn't put there, isn't as
    private as asked for, or a file is too large; and where the Hub can't be reached or refuses,
    with what stands there then and how to go on.
    """
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub.errors import RepositoryNotFoundError

    _check_files(parcel)
    api = HfApi(endpoint=endpoint, token=token)
    made = False
    try:
        try:
            ask = api.model_info if parcel.repo_type == "model" else api.dataset_info
            found = ask(parcel.repo_id)
        except RepositoryNotFoundError:
            api.create_repo(parcel.repo_id, repo_type=parcel.repo_type, private=parcel.private)
            made, there, parent = True, [], None
        else:
            there, parent = _check_ours(found, parcel), found.sha
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            commit = _commit(api, parcel, there, parent)
    # LFS wraps what it met in a RuntimeError, Xet raises one, or an OSError; ValueError is a card
    # that the Hub refuses, or an answer that is none.
    except (httpx2.HTTPError, OSError, RuntimeError, ValueError, KeyError) as error:
        raise tell(error, parcel.repo_id, token, TOKEN_VARIABLE, made) from None
    return Pushed(
        str(commit.commit_url),
        commit.oid != parent,
        tuple(str(each.message) for each in noted if issubclass(each.category, UserWarning)),
    )


def _commit(api: HfApi, parcel: Parcel, there: Iterable[str], parent: str | None) -> CommitInfo:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete

    here = parcel.files
    gone = sorted(set(there) - set(here))
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        *(CommitOperationDelete(name, is_folder=False) for name in gone),
        *(CommitOperationAdd(name, parcel.folder / name) for name in here),
    ]
    what = "Router" if parcel.repo_type == "model" else "Traces"
    return api.create_commit(
        parcel.repo_id,
        operations,
        commit_message=f"{what} by prerouter",
        repo_type=parcel.repo_type,
        # Whoever commits in between is not written over.
        parent_commit=parent,
    )


def _check_files(parcel: Parcel) -> None:
    if not (parcel.folder / CARD_FILE).is_file():
        what = "router" if parcel.repo_type == "model" else "data set"
        raise StageError(
            str(parcel.folder), f"is no {what}'s folder", next_step="run it without --push"
        )
    for name in parcel.files:
        size = (parcel.folder / name).stat().st_size
        if size > MAX_FILE_BYTES:
            raise StageError(
                f"{parcel.folder}/{name}",
                f"has {size:,} bytes",
                f"{MAX_FILE_BYTES:,} a file on the Hub",
                "nothing was sent: write it in smaller shards",
            )


def _check_ours(found: ModelInfo | DatasetInfo, parcel: Parcel) -> list[str]:
    """Whether a repository that exists may be written over: with the visibility asked for, and an
    empty one, or one with a card of prerouter's. What an earlier push put there."""
    if bool(found.private) is not parcel.private:
        raise StageError(
            parcel.repo_id,
            f"is {'private' if found.private else 'public'} on the Hub, and "
            f"{parcel.section}.private is {str(parcel.private).lower()}",
            "the same in both places",
            f"set {parcel.section}.private, or change the repository on the Hub",
        )
    files = {file.rfilename for file in found.siblings or ()} - {".gitattributes"}
    tags = found.card_data.get("tags") if found.card_data else None
    if files and TAGS[0] not in (tags or ()):
        raise StageError(
            parcel.repo_id,
            f"holds {len(files)} files on the Hub and no card of prerouter's",
            "a new name, an empty repository, or one that prerouter wrote",
            f"give another name by {parcel.section}.repo_id",
        )
    if parcel.repo_type == "dataset":
        return [name for name in files if _SHARD.fullmatch(name)]
    foreign = sorted(name for name in files if not _is_of_a_router(name))
    if foreign:
        raise StageError(
            parcel.repo_id,
            f"holds {foreign[0]!r:.100} on the Hub, with which no router can be loaded from there",
            f"what `prerouter publish` writes, beside {', '.join(sorted(UNLISTED_FILES))}",
            "remove it there, or give another name by publish.repo_id",
        )
    return sorted(files)


def _is_of_a_router(name: str) -> bool:
    folder, _, rest = name.rpartition("/")
    if folder:
        return folder in REPORT_FOLDERS
    return rest in _OF_A_ROUTER or rest.endswith(".safetensors")
