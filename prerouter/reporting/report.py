"""The whole report of one evaluation: a page, its figures and its numbers."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from pathlib import Path

from prerouter.core.errors import StageError
from prerouter.reporting.contents import Figure, Section, Table
from prerouter.reporting.figures import can_draw, draw
from prerouter.reporting.material import Material
from prerouter.reporting.numbers import table_csv
from prerouter.reporting.page import LARGEST_PAGE, page_within
from prerouter.reporting.sections.breakdowns import breakdowns
from prerouter.reporting.sections.calibration import calibration_of
from prerouter.reporting.sections.comparisons import comparisons
from prerouter.reporting.sections.cost import cost
from prerouter.reporting.sections.entropy import entropy
from prerouter.reporting.sections.errors import errors, regrets
from prerouter.reporting.sections.escalation import escalation
from prerouter.reporting.sections.importances import importances
from prerouter.reporting.sections.making import filter_yield, making
from prerouter.reporting.sections.plane import plane
from prerouter.reporting.sections.probes import probes
from prerouter.reporting.sections.routing import routing, summary
from prerouter.reporting.sections.studies import studies

PAGE = "index.html"
NO_FIGURES = (
    "matplotlib isn't installed: the page tells the figures in words and tables. "
    "In prerouter's clone: pip install -e '.[report]', then evaluate again with --force."
)


@dataclass(frozen=True)
class Written:
    """What was left in the report's folder. `note` tells what could not be made."""

    figures: int
    files_of_numbers: int
    size: int
    note: str | None = None


def make_sections(material: Material) -> list[Section]:
    """Every section in the order of the page."""
    parts = material.by_answer_model()
    return [
        summary(material),
        routing(material),
        plane(parts),
        cost(parts),
        comparisons(material),
        breakdowns(material),
        errors(material),
        regrets(material),
        calibration_of(material),
        escalation(material),
        entropy(material),
        importances(material),
        probes(material.section.probes, material.section.min_cases),
        studies(material.section.studies),
        filter_yield(material),
        making(material),
    ]


def write_report(folder: Path, material: Material) -> Written:
    """Write `index.html`, `figures/*.svg|png` and `data/*.csv` anew into `folder`."""
    sections = make_sections(material)
    try:
        return _write(folder, f"Routing report: {material.recipe.name}", sections)
    except OSError as error:
        raise StageError(
            str(folder),
            f"can't be written: {error.strerror}",
            next_step="make room and run again, or set evaluate.report: false",
        ) from None


def _write(place: Path, title: str, sections: list[Section]) -> Written:
    folder = place.with_name(f".{place.name}.partial")
    shutil.rmtree(folder, ignore_errors=True)
    for name in ("figures", "data"):
        (folder / name).mkdir(parents=True)
    note = None if can_draw() else NO_FIGURES
    drawings: dict[str, str] = {}
    tables = 0
    for section in sections:
        for part in section.parts:
            if isinstance(part, Table):
                (folder / "data" / f"{part.name}.csv").write_text(table_csv(part), "utf-8")
                tables += 1
            elif isinstance(part, Figure) and note is None:
                drawn = draw(part)
                (folder / "figures" / f"{part.name}.svg").write_text(drawn.svg, "utf-8")
                (folder / "figures" / f"{part.name}.png").write_bytes(drawn.png)
                drawings[part.name] = drawn.inline
    if note is not None:
        first = sections[0]
        sections[0] = replace(first, words=[*first.words, note])
    page = page_within(title, sections, drawings)
    (folder / PAGE).write_bytes(page)
    # The report before stands until this one is whole.
    shutil.rmtree(place, ignore_errors=True)
    folder.rename(place)
    if len(page) >= LARGEST_PAGE:
        large = (
            f"the report's page has {len(page):,} bytes, over {LARGEST_PAGE:,}, with all cut but "
            "its words: a browser may be slow to open it"
        )
        note = f"{note} {large}" if note else large
    return Written(len(drawings), tables, len(page), note)
