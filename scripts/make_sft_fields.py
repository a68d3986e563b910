"""Write prerouter/recipe/sft_fields.json: the fields of the installed trl's SFTConfig.

Run after a new trl is pinned: python scripts/make_sft_fields.py
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import trl
from trl import SFTConfig

TARGET = Path(__file__).parents[1] / "prerouter" / "recipe" / "sft_fields.json"


def sft_fields() -> dict[str, str]:
    return {field.name: str(field.type) for field in dataclasses.fields(SFTConfig) if field.init}


def main() -> None:
    record = {"trl": trl.__version__, "fields": dict(sorted(sft_fields().items()))}
    TARGET.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
