"""The router's folder: what it holds, writing it whole, and refusing one that isn't safe to load.

A folder comes from a stranger as often as from oneself. Nothing in it is loaded before
`read_router` has seen every file: its name, its kind, its size, its hash, and the absence of code.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, field_validator, model_validator

from prerouter.core.errors import CheckpointError
from prerouter.core.records import (
    ROUTES,
    Identifier,
    MetadataSetting,
    RagConfig,
    Record,
    Route,
    StudentMode,
)
from prerouter.publishing.adapter import (
    ADAPTER_REQUIRED,
    belongs_beside_an_adapter,
    check_adapter,
    refuse_adapter,
    take_adapter,
)
from prerouter.publishing.folder import (
    ADAPTER_FILE,
    ALLOWED_SUFFIXES,
    CARD_FILE,
    REQUIRED_FILES,
    UNLISTED_FILES,
    check_chat_template,
    check_sizes,
    check_weights,
    files_in,
    is_plain,
    read_json,
    refuse_code,
    tell_what_it_is,
)
from prerouter.publishing.folder import (
    ROUTER_FILE as ROUTER_FILE,
)
from prerouter.publishing.weights import checkpoint_sha256
from prerouter.recipe.teach import PromptPart
from prerouter.runs.rows import file_sha256

FORMAT_VERSION = 1

# What transformers notes of the machine that a config was read on.
MACHINE_KEYS = frozenset(
    {
        "_name_or_path",
        "name_or_path",
        "tokenizer_file",
        "vocab_file",
        "is_local",
        "local_files_only",
    }
)

Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Provenance(Record):
    """Where a router comes from: names, hashes and versions, never a path of the machine."""

    recipe: Identifier
    seed: Annotated[int, Field(ge=0)]
    parents: Annotated[dict[str, Sha256], Field(description="stage to the hash of its rows")] = {}
    versions: Annotated[dict[str, str], Field(description="library to version")] = {}


class RouterConfig(Record):
    """`router.json`: all that a decision needs beside the model, and what proves the folder whole.

    `files` maps every other file but the card to its sha256; `write_router` fills it. A threshold
    of before `threshold_for` was written down is bound to its checkpoint by `files` alone.
    """

    format_version: Literal[1] = 1
    prompt_form: Literal["guided", "compact"]
    metadata: MetadataSetting
    prompt_version: Identifier
    prompt_hash: Identifier
    without: Annotated[
        tuple[PromptPart, ...], Field(description="parts that the student's replies lack")
    ] = ()
    head_characters: Annotated[
        int, Field(ge=0, le=100_000, description="of a document's head, as trained on")
    ] = 600
    rag: Annotated[RagConfig, Field(description="what retrieval it was trained for")] = RagConfig()
    thinking: bool
    max_tokens: Annotated[int, Field(gt=0, le=1_000_000, description="tokens of a decision")]
    modes: Annotated[
        tuple[StudentMode, ...], Field(min_length=1, description="trained in, the usual one first")
    ] = (StudentMode.EXPLAIN,)
    temperature: Annotated[
        float, Field(ge=0.01, le=100, description="divides the log-odds of p_lc")
    ] = 1.0
    threshold: Annotated[
        float, Field(ge=-1, le=1, description="LC where p_lc is above it, in mode decide")
    ] = 0.5
    threshold_for: Annotated[
        Sha256 | None,
        Field(description="checkpoint that temperature and threshold were fitted to, if they were"),
    ] = None
    routes: tuple[Route, ...] = ROUTES
    fallback: Route
    base_model: Identifier
    base_revision: str | None = None
    teacher: Identifier
    provenance: Provenance
    files: dict[str, Sha256] = {}

    @field_validator("base_model", "teacher")
    @classmethod
    def _no_local_path(cls, value: str) -> str:
        if value.startswith(("/", ".", "~")) or "\\" in value or ".." in value.split("/"):
            raise ValueError("is a path of one machine; give a Hub name or a plain name")
        return value

    @property
    def checkpoint(self) -> str:
        """What names the weights: a sha256 over their files."""
        return checkpoint_sha256(self.files)

    @field_validator("files")
    @classmethod
    def _plain_names(cls, value: dict[str, str]) -> dict[str, str]:
        for name in value:
            if not is_plain(name) or name == ROUTER_FILE:
                raise ValueError(f"{name!r} is no file name of the folder")
        return value

    @model_validator(mode="after")
    def _routes_are_known(self) -> Self:
        if self.routes != ROUTES:
            known = ", ".join(ROUTES)
            raise ValueError(f"other routes than this version decides between ({known})")
        return self


def write_router(
    model_dir: Path,
    folder: Path,
    config: RouterConfig,
    card: str,
    extra: Mapping[str, Any] | None = None,
    reports: Mapping[str, bytes] | None = None,
    adapter_dir: Path | None = None,
) -> Path:
    """Put the model of `model_dir`, `card` and `extra` (file name to JSON data) into `folder`, and
    `reports` (`evaluation/name.svg` to content) beside them. With `adapter_dir`, the adapter that
    lies there takes the place of the weights.

    Only files that a router may hold are taken over; local paths are taken out of the configs.
    The folder appears whole, by one rename, after it has passed `read_router`; an earlier router
    there is replaced, anything else is left alone with a CheckpointError.
    """
    if not model_dir.is_dir():
        raise CheckpointError(str(model_dir), "no such folder", next_step="train first")
    may_replace(folder, config.provenance.recipe)
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for path in sorted(model_dir.iterdir()):
            wanted = adapter_dir is None or belongs_beside_an_adapter(path)
            if wanted and path.is_file() and path.suffix in ALLOWED_SUFFIXES:
                _take_over(path, staged / path.name)
        if adapter_dir is not None:
            take_adapter(adapter_dir, staged, config.base_model, config.base_revision)
        for name, data in sorted((extra or {}).items()):
            if not is_plain(name) or not name.endswith(".json") or (staged / name).exists():
                raise CheckpointError(name, "can't be a file of its own", "a new name.json")
            _write_json(staged / name, data)
        hashes = {path.name: file_sha256(path) for path in sorted(staged.iterdir())}
        (staged / CARD_FILE).write_text(card, encoding="utf-8")
        complete = config.model_copy(update={"files": hashes})
        _write_json(staged / ROUTER_FILE, complete.model_dump(mode="json"))
        for name, content in sorted((reports or {}).items()):
            (staged / name).parent.mkdir(exist_ok=True)
            (staged / name).write_bytes(content)
        read_router(staged, adapter=adapter_dir is not None)
        staged.chmod(0o755)
        _swap(staged, folder)
    finally:
        shutil.rmtree(staged, ignore_errors=True)
    return folder


def read_router(folder: Path, verify: bool = True, adapter: bool = False) -> RouterConfig:
    """The configuration of a router's folder, after checking that the folder is safe to load.

    `verify` False leaves out the hashes of the contents, which read every byte, and nothing else.
    `adapter` asks for a folder whose weights are an adapter's, which is refused otherwise.
    Raises CheckpointError at the first thing that is missing, altered, foreign or unsafe.
    """
    tell_what_it_is(folder)
    present = files_in(folder)
    if ADAPTER_FILE in present and not adapter:
        raise refuse_adapter(folder)
    for name in ADAPTER_REQUIRED if adapter else REQUIRED_FILES:
        if name not in present:
            raise CheckpointError(
                f"{folder}/{name}",
                "is missing",
                "a folder that `prerouter publish` wrote",
                "check the path, or publish again",
            )
    check_sizes(folder, present)
    config = _read_config(folder / ROUTER_FILE)
    listed = set(config.files)
    for name in sorted(set(present) - listed - UNLISTED_FILES - {ROUTER_FILE}):
        raise CheckpointError(
            f"{folder}/{name}", f"is not listed in {ROUTER_FILE}", next_step="remove it"
        )
    for name in sorted(listed - set(present)):
        raise CheckpointError(f"{folder}/{name}", "is missing", next_step="fetch the folder again")
    if adapter:
        check_adapter(folder)
    else:
        check_weights(folder, present)
    for name in present:
        if name.endswith(".json") and name not in ("tokenizer.json", "vocab.json"):
            refuse_code(folder / name)
    check_chat_template(folder, present)
    if config.threshold_for not in (None, config.checkpoint):
        raise CheckpointError(
            f"{folder}/{ROUTER_FILE}",
            f"its threshold was fitted to checkpoint {config.threshold_for:.12}…",
            f"{config.checkpoint[:12]}…, which lies here",
            "calibrate and publish again",
        )
    if verify:
        for name, expected in sorted(config.files.items()):
            found = file_sha256(folder / name)
            if found != expected:
                raise CheckpointError(
                    f"{folder}/{name}",
                    f"was altered: its sha256 is {found[:12]}…",
                    f"{expected[:12]}… by {ROUTER_FILE}",
                    "fetch the folder again",
                )
    return config


def _read_config(path: Path) -> RouterConfig:
    data = read_json(path)
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise CheckpointError(
            str(path),
            f"format_version is {version!r}",
            f"{FORMAT_VERSION}",
            "install the prerouter that wrote it",
        )
    try:
        return RouterConfig.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"]) or "the file"
        message = first["msg"].removeprefix("Value error, ")
        raise CheckpointError(str(path), f"{key[:80]}: {message[:200]}") from None


def _take_over(source: Path, target: Path) -> None:
    shutil.copyfile(source, target)
    if source.name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        data = read_json(target)
        if MACHINE_KEYS & set(data):
            _write_json(target, {key: data[key] for key in data if key not in MACHINE_KEYS})


def _write_json(path: Path, data: Any) -> None:
    text = json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)
    path.write_text(text + "\n", encoding="utf-8")


def may_replace(folder: Path, recipe: str) -> None:
    """Raises CheckpointError where `folder` is there and is neither empty nor a router's of the
    recipe with that name."""
    if not folder.exists() and not folder.is_symlink():
        return
    is_folder = folder.is_dir() and not folder.is_symlink()
    if not is_folder or (any(folder.iterdir()) and not (folder / ROUTER_FILE).is_file()):
        raise CheckpointError(
            str(folder),
            "exists and is no router's folder",
            "a new name, or an earlier router to replace",
            "set publish.folder",
        )
    if not (folder / ROUTER_FILE).is_file():
        return
    provenance = read_json(folder / ROUTER_FILE).get("provenance")
    earlier = provenance.get("recipe") if isinstance(provenance, dict) else None
    if earlier != recipe:
        raise CheckpointError(
            str(folder),
            f"holds the router of recipe {earlier!r:.100}",
            f"a new name, or an earlier router of {recipe!r} to replace",
            "set publish.folder",
        )


def _swap(staged: Path, folder: Path) -> None:
    if folder.exists():
        earlier = Path(tempfile.mkdtemp(prefix=f".{folder.name}-old-", dir=folder.parent))
        os.replace(folder, earlier)
        os.replace(staged, folder)
        shutil.rmtree(earlier, ignore_errors=True)
    else:
        os.replace(staged, folder)
