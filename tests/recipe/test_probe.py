from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError
from prerouter.recipe.base import validate
from prerouter.recipe.probe import ProbeStudy, load_study
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import RouteSection

ROW = {"name": "guided", "model": "m", "prompt": "guided"}


def study(**changes: Any) -> ProbeStudy:
    return validate(ProbeStudy, {"name": "s", "run": "runs/r", "rows": [ROW]} | changes, "s.yaml")


@pytest.mark.parametrize("name", ["paper_table1", "smollm2_cpu"])
def test_the_studies_that_ship_are_valid(repository: Path, name: str) -> None:
    found = load_study(repository / "probes" / f"{name}.yaml")
    assert found.name == name
    assert set(found.targets) == {"ideal_label", "own_route", "document_type", "task_type"}
    assert any(row.distilled for row in found.rows)
    assert found.folder == Path("runs") / name / "probe"


def test_the_papers_table_has_six_rows_over_three_prompts(repository: Path) -> None:
    rows = load_study(repository / "probes/paper_table1.yaml").rows
    grid = {(row.prompt, row.distilled) for row in rows}
    assert len(rows) == len(grid) == 6


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": [ROW, ROW]}, "a name of its own"),
        ({"targets": ["ideal_label", "ideal_label"]}, "each is named once"),
        ({"targets": ["label"]}, "targets.0"),
        ({"layer": "last"}, "layer"),
        ({"layer": -1}, "layer"),
        ({"c": [0]}, "greater than 0"),
        ({"rows": [ROW | {"mode": "decide"}]}, "compact prompt only"),
        ({"rows": [ROW | {"models": "m"}]}, "did you mean model"),
        ({"rows": []}, "rows"),
        *(({"rows": [ROW | {"name": f"{sign}x"}]}, "rows.0.name") for sign in "+-@= "),
        ({"name": "r"}, "a folder of its own"),
    ],
)
def test_a_mistake_is_told(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CombinedError) as caught:
        study(**changes)
    assert words in str(caught.value)


def test_overrides_reach_a_study(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text("name: s\nrun: runs/r\nrows: [{name: a, model: m, prompt: direct}]\n")
    found = load_study(path, ["layer=all", "max_questions=20"])
    assert (found.layer, found.max_questions) == ("all", 20)


def test_the_probe_router_needs_a_model() -> None:
    data = {
        "name": "r",
        "cases": {"source": "table", "path": "rows.jsonl"},
        "route": {"routers": ["probe_router"]},
    }
    with pytest.raises(CombinedError, match="probe_router needs `train`, or a model"):
        validate(Recipe, data, "r.yaml")
    data["route"] = {"routers": ["probe_router"], "probe": {"model": "m"}}
    route = validate(Recipe, data, "r.yaml").route
    assert route is not None
    assert route.probe.model == "m"


def test_the_students_prompt_is_not_set_beside_it() -> None:
    with pytest.raises(CombinedError, match="prompt: the student has its own"):
        validate(
            RouteSection, {"routers": ["probe_router"], "probe": {"prompt": "guided"}}, "r.yaml"
        )
