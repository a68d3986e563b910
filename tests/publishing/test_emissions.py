"""Emissions are told where CodeCarbon measured them, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.publishing.emissions import Emissions, read_emissions

HEADER = "timestamp,emissions,energy_consumed,country_name,gpu_count,gpu_model,cpu_count,cpu_model"


@pytest.mark.parametrize(
    ("row", "found"),
    [
        (
            "now,0.0123,0.05,France,1,1 x NVIDIA L4,8,Xeon",
            Emissions(grams=12.3, kilowatt_hours=0.05, country="France", hardware="1 x NVIDIA L4"),
        ),
        (
            "now,0.001,,,,,8,Xeon",
            Emissions(grams=1.0, kilowatt_hours=None, country=None, hardware="8 x Xeon"),
        ),
        ("now,nan,0.05,France,,,,", None),
        ("now,,0.05,France,,,,", None),
        ("now,-1,0.05,France,,,,", None),
        (None, None),
    ],
)
def test_the_last_row_is_what_was_measured(
    tmp_path: Path, row: str | None, found: Emissions | None
) -> None:
    path = tmp_path / "emissions.csv"
    path.write_text("\n".join([HEADER, *([f"earlier,9,9,Peru,,,,\n{row}"] if row else [])]))
    assert read_emissions(path) == found


def test_no_file_is_no_emission(tmp_path: Path) -> None:
    assert read_emissions(tmp_path / "emissions.csv") is None


def test_only_what_is_known_is_in_the_metadata() -> None:
    assert Emissions(grams=0.123456).metadata == {
        "emissions": 0.1235,
        "source": "CodeCarbon",
        "training_type": "fine-tuning",
    }
