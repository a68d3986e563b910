"""calibrate: several routers in one run, and what becomes of one that can't be calibrated."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Decision, DecisionFailure, Reject
from prerouter.measures.routing import RoutingRow
from prerouter.measures.tuning import Calibrated
from prerouter.recipe.recipe import Recipe
from prerouter.runs.manifest import MANIFEST, FileEntry, read_manifest, write_json
from prerouter.runs.rows import file_sha256, read_rows, write_rows
from prerouter.runs.stage import execute
from prerouter.stages import calibrate, evaluate, route
from tests.reporting.small_run import run, small_recipe

FITTED = ["logistic_regression", "decision_tree"]
TWO = {"route": {"routers": ["always_rag", *FITTED]}, "calibrate": {"routers": FITTED}}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    run(small_recipe(folder, **TWO))
    return folder


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Recipe:
    """A recipe whose run has finished every stage."""
    shutil.copytree(finished / "runs", tmp_path / "runs")
    return small_recipe(tmp_path, **TWO)


def leave_undecided(recipe: Recipe, *routers: str) -> None:
    """All decisions of these routers failed."""
    folder = recipe.run_dir / "route"
    path, manifest = folder / "rows.jsonl", read_manifest(folder)
    assert manifest is not None
    decisions = [
        Decision(case_id=d.case_id, router=d.router, failure=DecisionFailure.TOO_LONG)
        if d.router in routers
        else d
        for d in read_rows(path, Decision)
    ]
    write_rows(path, decisions)
    entry = FileEntry(rows=len(decisions), sha256=file_sha256(path))
    changed = manifest.model_copy(update={"files": {**manifest.files, "rows.jsonl": entry}})
    write_json(folder / MANIFEST, changed.model_dump(mode="json", exclude_none=True))


def tuned_rows(recipe: Recipe) -> set[str]:
    rows = read_rows(recipe.run_dir / "evaluate" / "rows.jsonl", RoutingRow)
    return {row.router for row in rows if row.router.endswith("_tuned")}


def test_each_router_is_calibrated_by_itself_and_stands_in_the_table(copy: Recipe) -> None:
    done = list(read_rows(copy.run_dir / "calibrate" / "rows.jsonl", Calibrated))
    assert [each.router for each in done] == FITTED
    assert done[0].temperature != done[1].temperature
    assert done[0].threshold != done[1].threshold
    assert tuned_rows(copy) == {"logistic_regression_tuned", "decision_tree_tuned"}
    page = (copy.run_dir / "evaluate" / "report" / "index.html").read_text("utf-8")
    for name in FITTED:
        assert f"{name}_tuned is {name} after its log-odds were divided by" in page
    # Alone, each comes out the same.
    alone = copy.model_copy(
        update={
            "calibrate": copy.calibrate
            and copy.calibrate.model_copy(update={"routers": ("decision_tree",)})
        }
    )
    execute(calibrate.STAGE, alone, SilentProgress())
    assert list(read_rows(copy.run_dir / "calibrate" / "rows.jsonl", Calibrated)) == done[1:]


def test_a_router_that_decided_too_little_is_refused_and_the_others_stand(copy: Recipe) -> None:
    before = list(read_rows(copy.run_dir / "calibrate" / "rows.jsonl", Calibrated))
    leave_undecided(copy, "logistic_regression")
    outcome = execute(calibrate.STAGE, copy, SilentProgress())
    assert list(read_rows(copy.run_dir / "calibrate" / "rows.jsonl", Calibrated)) == before[1:]
    (reject,) = read_rows(copy.run_dir / "calibrate" / "rejects.jsonl", Reject)
    assert (reject.key, reject.reason) == ("logistic_regression", "not_calibrated")
    assert reject.detail.startswith("calibrate, logistic_regression: no case of the validation")
    assert outcome.manifest.rejects == {"not_calibrated": 1}
    execute(evaluate.STAGE, copy, SilentProgress())
    assert tuned_rows(copy) == {"decision_tree_tuned"}
    page = (copy.run_dir / "evaluate" / "report" / "index.html").read_text("utf-8")
    assert "Not calibrated: calibrate, logistic_regression: no case of the validation" in page


def test_a_pair_whose_router_was_refused_is_left_out_of_the_comparisons(copy: Recipe) -> None:
    pairs = (("logistic_regression_tuned", "decision_tree"), ("decision_tree_tuned", "always_rag"))
    assert copy.evaluate is not None
    asked = copy.evaluate.model_copy(update={"compare": pairs})
    recipe = copy.model_copy(update={"evaluate": asked})
    leave_undecided(recipe, "logistic_regression")
    for stage in (calibrate.STAGE, evaluate.STAGE):
        execute(stage, recipe, SilentProgress())
    page = (recipe.run_dir / "evaluate" / "report" / "index.html").read_text("utf-8")
    assert (
        "Not compared, for want of a calibration: logistic_regression_tuned and decision_tree."
        in page
    )
    assert "decision_tree_tuned less always_rag" in page


def test_one_more_or_less_to_calibrate_costs_no_decision_that_stands(
    copy: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def decided(recipe: Recipe) -> list[Decision]:
        execute(route.STAGE, recipe, SilentProgress())
        return list(read_rows(recipe.run_dir / "route" / "rows.jsonl", Decision))

    before = decided(copy)
    assert copy.calibrate is not None
    fewer = copy.calibrate.model_copy(update={"routers": ("decision_tree",)})

    def again() -> None:
        raise AssertionError("all of its decisions stand")

    monkeypatch.setattr(route, "AlwaysRag", again)
    of_less = decided(copy.model_copy(update={"calibrate": fewer}))
    lost = [decision for decision in before if decision not in of_less]
    assert {decision.router for decision in lost} == {"logistic_regression"}
    assert [decision for decision in before if decision not in lost] == of_less
    assert len(decided(copy)) == len(before)


def test_where_none_can_be_calibrated_each_is_named(copy: Recipe) -> None:
    leave_undecided(copy, *FITTED)
    with pytest.raises(CombinedError) as caught:
        execute(calibrate.STAGE, copy, SilentProgress())
    assert [line.partition(":")[0] for line in caught.value.lines] == [
        f"calibrate, {name}" for name in FITTED
    ]
    assert not (copy.run_dir / "calibrate" / MANIFEST).exists()


def test_what_the_stage_tells_goes_by_router(copy: Recipe) -> None:
    report = json.loads((copy.run_dir / "calibrate" / MANIFEST).read_text())["report"]
    assert set(report) == set(FITTED)
    for told in report.values():
        assert set(told["expected calibration error"]) == {"validation", "test"}
        assert told["temperature"] > 0
