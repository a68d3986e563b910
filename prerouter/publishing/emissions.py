"""What training emitted, where CodeCarbon measured it (`train.sft.report_to: codecarbon`)."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from prerouter.core.records import Record


class Emissions(Record):
    """Grams of CO2 equivalent, and what of the place and the machine is known."""

    grams: Annotated[float, Field(ge=0)]
    kilowatt_hours: Annotated[float | None, Field(ge=0)] = None
    country: str | None = None
    hardware: str | None = None

    @property
    def metadata(self) -> dict[str, Any]:
        """As the Hub reads it (docs/hub/model-cards-co2)."""
        told = {
            "emissions": float(f"{self.grams:.4g}"),
            "source": "CodeCarbon",
            "training_type": "fine-tuning",
            "geographical_location": self.country,
            "hardware_used": self.hardware,
        }
        return {key: value for key, value in told.items() if value is not None}


def read_emissions(path: Path) -> Emissions | None:
    """The last row of CodeCarbon's file, whose emissions are kilograms; None where there is none,
    or where its figures are no numbers: what wasn't measured is not told."""
    if not path.is_file():
        return None
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    kilograms = _number(rows[-1].get("emissions")) if rows else None
    if kilograms is None:
        return None
    last = rows[-1]
    return Emissions(
        grams=1000 * kilograms,
        kilowatt_hours=_number(last.get("energy_consumed")),
        country=last.get("country_name") or None,
        hardware=_hardware(last.get("gpu_count"), last.get("gpu_model"))
        or _hardware(last.get("cpu_count"), last.get("cpu_model")),
    )


def _hardware(count: str | None, model: str | None) -> str | None:
    # CodeCarbon's own count stands before the model already where there are several GPUs.
    if not model:
        return None
    return model if " x " in model or not count else f"{count} x {model}"


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None
