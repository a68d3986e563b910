"""What lies beside a published router: figures, curves and emissions, where there are any."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import Fingerprint, Manifest
from prerouter.stages import router_reports
from prerouter.stages.publish import _traces
from prerouter.stages.router_reports import emissions_of, figures_hash, reports_of


def make_recipe(folder: Path, **sections: Any) -> Recipe:
    return Recipe.model_validate(
        {
            "name": "mine",
            "runs_dir": str(folder),
            "cases": {"source": "table", "path": "rows.jsonl"},
            "teach": {"teacher": "guideline"},
            "filter": {},
            "train": {"model": "Qwen/Qwen3-1.7B"},
            "route": {},
            "evaluate": {},
            "publish": {"repo_id": "you/router"},
            **sections,
        }
    )


def trained(**report: Any) -> Manifest:
    usual = {"losses": [{"step": 1, "loss": 2.5}, {"step": 2, "loss": 0.5}], "resumed_from": 0}
    return Manifest(
        fingerprint=Fingerprint(stage="train", seed=1, sections={}, parents={}),
        files={},
        report={**usual, **report},
        seconds=1.0,
    )


@pytest.fixture
def evaluated(tmp_path: Path) -> Path:
    """The folder of runs with an evaluated run and three of its figures."""
    figures = tmp_path / "mine" / router_reports.FIGURES
    figures.mkdir(parents=True)
    for name in ("plane.png", "plane.svg", "yield.png", "notes.txt"):
        (figures / name).write_bytes(name.encode())
    (tmp_path / "mine" / "evaluate" / "table.md").write_text("| router |")
    return tmp_path


def test_figures_and_curves_go_along_and_few_are_shown(evaluated: Path) -> None:
    pytest.importorskip("matplotlib")
    watched = [{"step": 2, "route_accuracy": 0.5, "lc_rate": 0.2, "parse_rate": 1.0}]
    files, pictures = reports_of(make_recipe(evaluated), trained(watched=watched))
    assert files["evaluation/plane.png"] == b"plane.png"
    assert files["training/losses.csv"] == b"Step,Loss\n1,2.5\n2,0.5\n"
    assert set(files) == {
        *(f"evaluation/{name}" for name in ("plane.png", "plane.svg", "yield.png", "table.md")),
        *(f"training/losses.{kind}" for kind in ("csv", "svg", "png")),
        *(f"training/watched.{kind}" for kind in ("csv", "svg", "png")),
    }
    assert [picture.path for picture in pictures] == [
        "evaluation/plane.png",
        "training/losses.png",
        "training/watched.png",
    ]


def test_without_matplotlib_there_are_numbers_and_no_picture(
    evaluated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router_reports, "can_draw", lambda: False)
    recipe = make_recipe(evaluated, evaluate={"report": False})
    files, pictures = reports_of(recipe, trained())
    assert set(files) == {"evaluation/table.md", "training/losses.csv"}
    assert pictures == []
    assert figures_hash(recipe) == {}


def test_a_training_without_a_logged_loss_has_no_curve(evaluated: Path) -> None:
    files, _ = reports_of(make_recipe(evaluated), trained(losses=[]))
    assert not [name for name in files if name.startswith("training/")]


def test_figures_that_are_drawn_anew_are_another_input(evaluated: Path) -> None:
    recipe = make_recipe(evaluated)
    before = figures_hash(recipe)
    (evaluated / "mine" / router_reports.FIGURES / "plane.png").write_bytes(b"anew")
    assert figures_hash(recipe) != before


def test_emissions_are_those_of_the_whole_training(evaluated: Path) -> None:
    recipe = make_recipe(evaluated)
    assert emissions_of(recipe, trained()) is None
    (evaluated / "mine" / "train").mkdir()
    (evaluated / "mine" / "train" / "emissions.csv").write_text("emissions\n0.002\n")
    found = emissions_of(recipe, trained())
    assert found is not None
    assert found.grams == 2.0
    assert emissions_of(recipe, trained(resumed_from=10)) is None


@pytest.mark.parametrize(
    ("dataset", "publish", "named"),
    [
        (None, {}, None),
        ({"license": "mit"}, {}, None),
        ({"license": "mit", "repo_id": "you/traces"}, {}, "you/traces"),
        ({"license": "mit", "repo_id": "you/traces", "private": True}, {}, None),
        (
            {"license": "mit", "repo_id": "you/traces", "private": True},
            {"private": True},
            "you/traces",
        ),
    ],
)
def test_the_card_names_the_data_set_unless_that_is_more_private(
    tmp_path: Path, dataset: dict[str, Any] | None, publish: dict[str, Any], named: str | None
) -> None:
    sections = {"dataset": dataset} if dataset else {}
    assert _traces(make_recipe(tmp_path, publish=publish, **sections)) == named
