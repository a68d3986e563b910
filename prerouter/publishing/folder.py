"""What a router's folder may hold: each file's name, kind and size, and no code.

Nothing here loads a file; JSON alone is parsed, within limits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from prerouter.core.errors import CheckpointError
from prerouter.publishing.weights import check_config_numbers, count_numbers

ROUTER_FILE = "router.json"
CARD_FILE = "README.md"

ALLOWED_SUFFIXES = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model", ".md"})
# The Hub adds the first to every repository; people mend the second there. Neither is loaded.
UNLISTED_FILES = frozenset({".gitattributes", CARD_FILE})
# Left by `git clone` and by the Hub's client; nothing is loaded from them.
IGNORED_FOLDERS = frozenset({".git", ".cache"})
# What a router was measured and trained like, for people to look at; nothing is loaded from them.
REPORT_FOLDERS = frozenset({"evaluation", "training"})
REPORT_SUFFIXES = frozenset({".svg", ".png", ".csv", ".md"})
REQUIRED_FILES = (
    ROUTER_FILE,
    CARD_FILE,
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
)
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
# The last five name a kernel on the Hub, or weights that lie where nothing was checked.
CODE_KEYS = frozenset(
    {
        "auto_map",
        "custom_pipelines",
        "trust_remote_code",
        "attn_implementation",
        "_attn_implementation",
        "experts_implementation",
        "_experts_implementation",
        "transformers_weights",
    }
)
# Where this lies, transformers looks for another model underneath.
ADAPTER_FILE = "adapter_config.json"
MAX_ROUTER_BYTES = 1_000_000
MAX_CARD_BYTES = 4_000_000
MAX_JSON_BYTES = 64_000_000
MAX_TEMPLATE_BYTES = 1_000_000
MAX_FILES = 1_000


def is_plain(name: str) -> bool:
    return (
        0 < len(name) <= 255
        and name not in (".", "..")
        and not any(character in name for character in "/\\:")
        and name.isprintable()
    )


def files_in(folder: Path) -> list[str]:
    """Names of the folder's files, each of an allowed kind."""
    if not folder.is_dir():
        raise CheckpointError(str(folder), "no such folder", "a router's folder", "check the path")
    root = folder.resolve()
    names: list[str] = []
    for path in sorted(folder.iterdir()):
        name = path.name
        if name in IGNORED_FOLDERS and path.is_dir() and not path.is_symlink():
            continue
        if name in REPORT_FOLDERS and path.is_dir() and not path.is_symlink():
            _check_report(path)
            continue
        if len(names) >= MAX_FILES:
            raise CheckpointError(str(folder), f"holds more than {MAX_FILES} files")
        if path.is_symlink() and not path.resolve().is_relative_to(root):
            raise CheckpointError(
                str(path),
                "is a link that leaves the folder",
                "files",
                "download with a local folder as target, or copy with links followed",
            )
        if not path.is_file():
            raise CheckpointError(str(path), "is no file", "files only, in one folder")
        if not is_plain(name):
            raise CheckpointError(f"{folder}/{name!r}", "has a name that no router's file has")
        if name not in UNLISTED_FILES and path.suffix not in ALLOWED_SUFFIXES:
            raise CheckpointError(
                str(path),
                "is of a kind that can carry code or that no router needs",
                ", ".join(sorted(ALLOWED_SUFFIXES)),
                "remove it, or do not use this folder",
            )
        names.append(name)
    return names


def _check_report(folder: Path) -> None:
    """Only pictures and tables, in the folder itself: nobody's loader looks for anything there."""
    for number, path in enumerate(sorted(folder.iterdir())):
        if path.is_symlink() or not path.is_file() or path.suffix not in REPORT_SUFFIXES:
            raise CheckpointError(
                str(path),
                "is no picture and no table",
                ", ".join(sorted(REPORT_SUFFIXES)),
                "remove it, or do not use this folder",
            )
        if number >= MAX_FILES:
            raise CheckpointError(str(folder), f"holds more than {MAX_FILES} files")


def check_sizes(folder: Path, present: list[str]) -> None:
    for name in present:
        if name.endswith(".safetensors"):
            continue
        limit = {ROUTER_FILE: MAX_ROUTER_BYTES, CARD_FILE: MAX_CARD_BYTES}.get(name, MAX_JSON_BYTES)
        if name.endswith(".jinja"):
            limit = MAX_TEMPLATE_BYTES
        size = (folder / name).stat().st_size
        if size > limit:
            raise CheckpointError(f"{folder}/{name}", f"has {size} bytes", f"{limit} at most")


def read_json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(str(path), f"can't be read as JSON: {error}") from None
    if not isinstance(data, dict):
        raise CheckpointError(str(path), "is no JSON object")
    return data


def refuse_code(path: Path) -> None:
    """A config that asks for code out of the folder or off the Hub is refused, and so is one that
    asks for other weights than those that were checked."""
    pending: list[Any] = [read_json(path)]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            found = sorted(CODE_KEYS & set(node))
            if found:
                raise CheckpointError(
                    str(path),
                    f"asks for code or files of its own by {found[0]}",
                    "models that transformers knows",
                )
            pending.extend(node.values())
        elif isinstance(node, list):
            pending.extend(node)


def check_weights(folder: Path, present: list[str]) -> None:
    for name in present:
        if name.endswith(".safetensors"):
            count_numbers(folder / name)
    check_config_numbers(folder / "config.json", read_json(folder / "config.json"))
    if WEIGHTS in present:
        return
    if WEIGHTS_INDEX not in present:
        raise CheckpointError(f"{folder}/{WEIGHTS}", "is missing", "weights in safetensors")
    shards = read_json(folder / WEIGHTS_INDEX).get("weight_map")
    if not isinstance(shards, dict) or not shards:
        raise CheckpointError(f"{folder}/{WEIGHTS_INDEX}", "has no weight_map")
    for name in sorted({str(shard) for shard in shards.values()}):
        if name not in present or not name.endswith(".safetensors"):
            raise CheckpointError(
                f"{folder}/{WEIGHTS_INDEX}", f"names {name!r:.100}, which is no weights file here"
            )


def check_chat_template(folder: Path, present: list[str]) -> None:
    if "chat_template.jinja" in present:
        return
    if not read_json(folder / "tokenizer_config.json").get("chat_template"):
        raise CheckpointError(f"{folder}/chat_template.jinja", "is missing", "a chat template")


def tell_what_it_is(folder: Path) -> None:
    """A folder without router.json that is known for something else is refused by what it is, with
    the place where its router lies."""
    if not folder.is_dir() or (folder / ROUTER_FILE).is_file():
        return
    around = [folder / "router"]
    around += [place / "publish" / "router" for place in (folder, *list(folder.parents)[:3])]
    found = next((path for path in around if (path / ROUTER_FILE).is_file()), None)
    there = f"give {found}" if found else "run `prerouter publish RECIPE` first"
    if (folder / "model.skops").is_file():
        problem = "holds a tree or a forest, which only `prerouter route` asks"
    elif (folder / "manifest.json").is_file():
        problem = "is a stage's folder and no router's"
    elif (folder / "config.json").is_file():
        problem = f"is a model without {ROUTER_FILE}"
    elif found:
        problem = "is the folder of a run, or lies in one, and no router's"
    else:
        return
    raise CheckpointError(str(folder), problem, "a folder that `prerouter publish` wrote", there)
