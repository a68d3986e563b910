"""Write prerouter/recipe/sft_fields.json: the fields of the installed trl's SFTConfig.

Run after a new trl is pinned: python scripts/make_sft_fields.py
"""

from __future__ import annotations

import dataclasses
import json
import typing
from enum import Enum
from pathlib import Path

import trl
from trl import SFTConfig

TARGET = Path(__file__).parents[1] / "prerouter" / "recipe" / "sft_fields.json"


def sft_fields() -> dict[str, str]:
    return {field.name: str(field.type) for field in dataclasses.fields(SFTConfig) if field.init}


def sft_choices() -> dict[str, list[str]]:
    """The texts that a field takes, where it takes some only."""
    hints = typing.get_type_hints(SFTConfig)
    choices = {}
    for field in dataclasses.fields(SFTConfig):
        kinds = [kind for kind in typing.get_args(hints[field.name]) if isinstance(kind, type)]
        members = [str(one.value) for kind in kinds if issubclass(kind, Enum) for one in kind]
        if members or "choices" in field.metadata:
            choices[field.name] = members or [str(one) for one in field.metadata["choices"]]
    return choices


def main() -> None:
    record = {
        "trl": trl.__version__,
        "fields": dict(sorted(sft_fields().items())),
        "choices": dict(sorted(sft_choices().items())),
    }
    TARGET.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
