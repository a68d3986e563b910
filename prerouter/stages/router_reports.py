"""What goes along with a published router for people to look at: its measures, its training."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from prerouter.publishing.cards import CardPicture
from prerouter.publishing.emissions import Emissions, read_emissions
from prerouter.recipe.recipe import Recipe
from prerouter.reporting.contents import Figure, Table
from prerouter.reporting.curves import losses, watched
from prerouter.reporting.figures import can_draw, draw
from prerouter.reporting.numbers import table_csv
from prerouter.runs.manifest import Manifest
from prerouter.runs.rows import folder_sha256
from prerouter.training.reporters import EMISSIONS_FILE

FIGURES = Path("evaluate") / "report" / "figures"
# Of the report's figures, those that a card shows; the others lie beside them.
_ON_THE_CARD = {
    "plane": "Cost and quality of every router",
    "errors": "Errors of every router by kind",
    "calibration": "Calibration of the probability of LC",
}


def reports_of(recipe: Recipe, train: Manifest) -> tuple[dict[str, bytes], list[CardPicture]]:
    """The files, by their path in the router's folder, and those that its card shows."""
    files, pictures = {}, []
    for path in _figures(recipe):
        files[f"evaluation/{path.name}"] = path.read_bytes()
        if path.suffix == ".png" and path.stem in _ON_THE_CARD:
            pictures.append(
                CardPicture(path=f"evaluation/{path.name}", title=_ON_THE_CARD[path.stem])
            )
    table = recipe.run_dir / "evaluate" / "table.md"
    files["evaluation/table.md"] = table.read_bytes()
    for figure, numbers in _curves(train):
        files[f"training/{numbers.name}.csv"] = table_csv(numbers).encode()
        if can_draw():
            drawn = draw(figure)
            files[f"training/{figure.name}.svg"] = drawn.svg.encode()
            files[f"training/{figure.name}.png"] = drawn.png
            pictures.append(CardPicture(path=f"training/{figure.name}.png", title=figure.title))
    return files, pictures


def emissions_of(recipe: Recipe, train: Manifest) -> Emissions | None:
    """What CodeCarbon measured; None where it didn't, or where a part of training went unmeasured
    because it was interrupted."""
    if train.report["resumed_from"]:
        return None
    return read_emissions(recipe.run_dir / "train" / EMISSIONS_FILE)


def figures_hash(recipe: Recipe) -> dict[str, str]:
    """The report's figures as an input: `evaluate` may draw them anew with the same rows."""
    folder = recipe.run_dir / FIGURES
    return {"evaluation figures": folder_sha256(folder)} if _figures(recipe) else {}


def _figures(recipe: Recipe) -> list[Path]:
    """Where `evaluate` writes no report, an earlier one may lie there still."""
    if not (recipe.evaluate and recipe.evaluate.report):
        return []
    return sorted(
        path for path in (recipe.run_dir / FIGURES).glob("*") if path.suffix in (".svg", ".png")
    )


def _curves(train: Manifest) -> Iterator[tuple[Figure, Table]]:
    points = [
        (point["step"], point["loss"], point.get("token_accuracy"))
        for point in train.report["losses"]
    ]
    if points:
        yield losses(points)
    looks = [
        (look["step"], look["route_accuracy"], look["lc_rate"], look["parse_rate"])
        for look in train.report.get("watched", ())
    ]
    if looks:
        yield watched(looks)
