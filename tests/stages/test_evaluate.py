"""evaluate: the table, the report beside it, and when they are made anew."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import yaml

from prerouter.cli.needs import unmet
from prerouter.core.errors import CombinedError, InputError
from prerouter.core.protocols import SilentProgress
from prerouter.measures.routing import RoutingRow
from prerouter.recipe.recipe import Recipe
from prerouter.reporting import report
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import Outcome, execute
from prerouter.stages import evaluate
from tests.reporting.small_run import ROUTERS, run, small_recipe
from tests.reporting.test_studies_section import make_study, sign


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose run has finished every stage."""
    folder = tmp_path_factory.mktemp("finished")
    run(small_recipe(folder))
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    shutil.copytree(finished / "runs", tmp_path / "runs")
    return tmp_path


def again(folder: Path, **evaluated: object) -> Outcome:
    recipe = small_recipe(folder, evaluate={"resamples": 100, **evaluated})
    return execute(evaluate.STAGE, recipe, SilentProgress())


def test_it_leaves_rows_tables_and_the_report(finished: Path) -> None:
    folder = finished / "runs" / "small" / "evaluate"
    rows = list(read_rows(folder / "rows.jsonl", RoutingRow))
    tuned = [*ROUTERS, "decision_tree_tuned", "oracle"]
    assert [row.router for row in rows] == 3 * tuned
    assert (folder / "table.md").exists()
    assert len(json.loads((folder / "table.json").read_text())["rows"]) == len(rows)
    told = json.loads((folder / "manifest.json").read_text())["report"]["report"]
    page = folder / told["page"]
    assert page.stat().st_size == told["bytes"] < 5_000_000
    assert len(list((folder / "report" / "figures").glob("*.svg"))) == told["figures"] > 8
    assert len(list((folder / "report" / "data").glob("*.csv"))) == told["files of numbers"]


def test_the_page_tells_what_it_was_made_from(finished: Path) -> None:
    page = (finished / "runs" / "small" / "evaluate" / "report" / "index.html").read_text("utf-8")
    for stage in ("cases", "answer", "score", "label", "teach", "filter", "route", "calibrate"):
        manifest = json.loads((finished / "runs" / "small" / stage / "manifest.json").read_text())
        assert manifest["files"]["rows.jsonl"]["sha256"] in page
    assert "decision_tree_tuned is decision_tree after its log-odds were divided by" in page
    assert "Kept to learn from, by split and decision: train:" in page
    assert "prerouter run small.yaml" in page
    assert "assumed_output_tokens: 128" in page


def test_what_is_unchanged_is_passed_over(copy: Path) -> None:
    assert again(copy).action == "passed over"


def test_it_is_made_anew_where_something_that_it_reads_has_changed(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nothing here is about figures.
    monkeypatch.setattr(report, "can_draw", lambda: False)
    again(copy)
    assert "evaluate.worst_cases" in again(copy, worst_cases=1).why
    shutil.rmtree(copy / "runs" / "small" / "evaluate" / "report")
    assert "index.html is gone" in again(copy, worst_cases=1).why
    curve = copy / "curve.csv"
    header = "layer,target,prompt,model,accuracy,low,high\n"
    curve.write_text(f"{header}1,label,guided,m,0.5,,\n")
    again(copy, probes=[str(curve)])
    curve.write_text(f"{header}1,label,guided,m,0.6,,\n")
    assert "curve.csv changed" in again(copy, probes=[str(curve)]).why


def test_the_rows_do_not_change_by_the_report(copy: Path, finished: Path) -> None:
    again(copy, report=False)
    folder = copy / "runs" / "small" / "evaluate"
    assert not (folder / "report").exists()
    before = finished / "runs" / "small" / "evaluate" / "rows.jsonl"
    assert (folder / "rows.jsonl").read_bytes() == before.read_bytes()
    assert again(copy, report=False).action == "passed over"


def test_a_missing_file_of_probes_is_named(copy: Path) -> None:
    with pytest.raises(InputError, match=r"gone\.csv: no such file; mend evaluate\.probes"):
        again(copy, probes=[str(copy / "gone.csv")])


@pytest.mark.parametrize(
    "bad",
    [
        {"compare": [["guideline"]]},
        {"assumed_output_tokens": 0},
        {"worst_cases": -1},
        {"reports": True},
    ],
)
def test_settings_out_of_range_are_refused(tmp_path: Path, bad: dict[str, object]) -> None:
    with pytest.raises(CombinedError):
        small_recipe(tmp_path, evaluate=bad)


def test_without_a_filter_the_yield_is_left_out(copy: Path) -> None:
    shutil.rmtree(copy / "runs" / "small" / "filter")
    small_recipe(copy)
    text = yaml.safe_load((copy / "recipe.yaml").read_text())
    for section in ("teach", "filter"):
        del text[section]
    execute(evaluate.STAGE, Recipe.model_validate(text), SilentProgress())
    page = (copy / "runs" / "small" / "evaluate" / "report" / "index.html").read_text("utf-8")
    assert "No trace was filtered in this run." in page


def test_what_the_classical_routers_rest_on_is_in_the_report(copy: Path) -> None:
    data = copy / "runs" / "small" / "evaluate" / "report" / "data"
    text = (data / "importances.csv").read_text("utf-8")
    assert text.startswith("Router,Feature,Fall of the AUC")
    assert "decision_tree,task_type," in text
    kept = copy / "runs" / "small" / "route" / "routers" / "decision_tree" / "importances.json"
    kept.write_text(kept.read_text().replace('"feature"', '"future"'))
    with pytest.raises(InputError, match=r"importances\.json: .*prerouter route"):
        again(copy)


def test_a_study_that_changed_makes_the_report_anew(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "can_draw", lambda: False)
    folder = make_study(copy / "runs" / "tried" / "study")
    again(copy, studies=[str(folder)])
    page = copy / "runs" / "small" / "evaluate" / "report" / "index.html"
    assert "tried: best of N samples" in page.read_text("utf-8")
    sign(folder, "renamed")
    assert "study changed" in again(copy, studies=[str(folder)]).why
    with pytest.raises(InputError, match="holds no finished study"):
        again(copy, studies=[str(copy / "gone")])


def test_a_missing_study_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, evaluate={"studies": [str(tmp_path / "gone")]})
    (error,) = unmet(recipe)
    assert error.line.startswith(f"{tmp_path / 'gone'}: holds no finished study")


def test_a_missing_file_of_probes_stops_a_run_before_it_starts(tmp_path: Path) -> None:
    recipe = small_recipe(tmp_path, evaluate={"probes": [str(tmp_path / "gone.csv")]})
    assert [error.line for error in unmet(recipe)] == [
        f"{tmp_path / 'gone.csv'}: no such file; mend evaluate.probes"
    ]
