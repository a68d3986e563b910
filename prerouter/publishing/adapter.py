"""A router published as a LoRA adapter: what was learnt, on top of a base that the Hub has.

A `Router` is loaded from whole weights alone. Where a folder is an adapter's, it is told of which
base, so that whoever has the base can merge the two.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from prerouter.core.errors import CheckpointError
from prerouter.publishing.folder import (
    ADAPTER_FILE,
    CARD_FILE,
    REQUIRED_FILES,
    WEIGHTS_INDEX,
    read_json,
)
from prerouter.publishing.weights import check_config_numbers, count_numbers
from prerouter.recipe.hub import is_repo_id

ADAPTER_WEIGHTS = "adapter_model.safetensors"
ADAPTER_FILES = (ADAPTER_FILE, ADAPTER_WEIGHTS)
# The base brings its own description and weights along.
_OF_THE_WHOLE = frozenset({"config.json", WEIGHTS_INDEX})
ADAPTER_REQUIRED = (*(n for n in REQUIRED_FILES if n not in _OF_THE_WHOLE), *ADAPTER_FILES)


def belongs_beside_an_adapter(path: Path) -> bool:
    """Whether a file of the whole model's folder goes along with the adapter."""
    return path.suffix != ".safetensors" and path.name not in _OF_THE_WHOLE


def take_adapter(adapter_dir: Path, folder: Path, base: str, revision: str | None) -> None:
    """Copy an adapter as peft writes it, with its base by the name that the Hub knows it by.

    Raises CheckpointError where `adapter_dir` holds none, or `base` is no name on the Hub.
    """
    for name in ADAPTER_FILES:
        if not (adapter_dir / name).is_file():
            raise CheckpointError(
                f"{adapter_dir}/{name}",
                "is missing",
                "what `prerouter train` leaves with train.lora",
                "run train with --force, or set publish.adapter: false",
            )
    _check_base(adapter_dir / ADAPTER_FILE, base)
    shutil.copyfile(adapter_dir / ADAPTER_WEIGHTS, folder / ADAPTER_WEIGHTS)
    told = read_json(adapter_dir / ADAPTER_FILE)
    named = {**told, "base_model_name_or_path": base, "revision": revision}
    text = json.dumps(named, indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True)
    (folder / ADAPTER_FILE).write_text(f"{text}\n", encoding="utf-8")


def check_adapter(folder: Path) -> None:
    """Raises CheckpointError where the adapter is not whole or its base is no name on the Hub."""
    config = read_json(folder / ADAPTER_FILE)
    check_config_numbers(folder / ADAPTER_FILE, config)
    _check_base(folder / ADAPTER_FILE, config.get("base_model_name_or_path"))
    count_numbers(folder / ADAPTER_WEIGHTS)


def refuse_adapter(folder: Path) -> CheckpointError:
    """What is said to whoever loads an adapter's folder as a router."""
    try:
        base = str(read_json(folder / ADAPTER_FILE).get("base_model_name_or_path"))
    except CheckpointError:
        base = "its base"
    return CheckpointError(
        str(folder),
        f"holds an adapter alone, which needs its base {base:.100}",
        "whole weights",
        f"merge it into its base as {CARD_FILE} says, or ask its maker to publish it merged",
    )


def _check_base(path: Path, base: Any) -> None:
    if not isinstance(base, str) or not is_repo_id(base):
        raise CheckpointError(
            str(path),
            f"its base {base!r:.100} is no name on the Hub",
            "owner/name",
            "set publish.base_model",
        )
