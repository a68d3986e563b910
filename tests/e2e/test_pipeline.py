"""The whole job with real code at every stage, a two-layer random student, and kills."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from tests.e2e.runner import make_recipe, prerouter, rows

STAGES = (
    "cases",
    "answer",
    "score",
    "label",
    "teach",
    "filter",
    "train",
    "route",
    "calibrate",
    "evaluate",
    "publish",
)

# Runs before the command line: the process kills itself once a stage has written so many rows,
# half a row more already on its way, or while a file is about to be renamed into place.
KILL_AFTER_ROWS = """
import os, signal
from prerouter.runs.rows import RowLog
append, count = RowLog.append_encoded, 0
def append_then_die(self, key, line):
    global count
    append(self, key, line)
    count += 1
    if count == {count}:
        self._file.write(line[: len(line) // 2])
        self._file.flush()
        os.kill(os.getpid(), signal.SIGKILL)
RowLog.append_encoded = append_then_die
"""
KILL_AT_RENAME = """
import os, signal
replace, count = os.replace, 0
def die_instead(*arguments, **options):
    global count
    count += 1
    if count == {count}:
        os.kill(os.getpid(), signal.SIGKILL)
    return replace(*arguments, **options)
os.replace = die_instead
"""


def copy_run(undisturbed: Path, folder: Path, model: Path, until: str) -> tuple[Path, Path]:
    """A recipe in `folder` whose run has finished every stage before `until`."""
    recipe = make_recipe(folder, model)
    run = folder / "runs" / "tiny"
    for stage in STAGES[: STAGES.index(until)]:
        shutil.copytree(undisturbed / stage, run / stage)
    return recipe, run


def times(run: Path) -> dict[Path, int]:
    """When each file of a run was last written; the lock holds nothing."""
    files = [path for path in run.rglob("*") if path.is_file() and path.name != ".lock"]
    return {path: path.stat().st_mtime_ns for path in files}


def test_a_run_leaves_a_manifest_for_every_stage(undisturbed: Path) -> None:
    for stage in STAGES:
        manifest = json.loads((undisturbed / stage / "manifest.json").read_text())
        assert manifest["fingerprint"]["stage"] == stage
        assert manifest["fingerprint"]["seed"] == 7
        assert manifest["versions"]["prerouter"]
        assert manifest["seconds"] >= 0
        for name, entry in manifest["files"].items():
            assert len((undisturbed / stage / name).read_bytes().splitlines()) == entry["rows"]


def test_documents_do_not_straddle_the_split(undisturbed: Path) -> None:
    side = {row["question_id"]: row["split"] for row in rows(undisturbed, "cases/split.jsonl")}
    sides: dict[str, set[str]] = {}
    for case in rows(undisturbed, "cases/rows.jsonl"):
        document = case["document"]["document_id"]
        sides.setdefault(document, set()).add(side[case["question_id"]])
    assert len(sides) > 10
    assert all(len(found) == 1 for found in sides.values())


def test_traces_are_learnt_from_and_decisions_taken_on_the_right_sides(undisturbed: Path) -> None:
    side = {row["question_id"]: row["split"] for row in rows(undisturbed, "cases/split.jsonl")}
    question = {row["case_id"]: row["question_id"] for row in rows(undisturbed, "cases/rows.jsonl")}
    kept = {side[question[row["case_id"]]] for row in rows(undisturbed, "filter/rows.jsonl")}
    decided = {
        (row["router"] in ("decision_tree", "student_decide"), side[question[row["case_id"]]])
        for row in rows(undisturbed, "route/rows.jsonl")
    }
    assert kept == {"train", "validation"}
    # A router that is calibrated decides what it is calibrated on, too.
    assert decided == {(False, "test"), (True, "validation"), (True, "test")}


def test_kept_traces_end_in_the_ideal_route(undisturbed: Path) -> None:
    ideal = {row["case_id"]: row["route"] for row in rows(undisturbed, "label/rows.jsonl")}
    for row in rows(undisturbed, "filter/rows.jsonl"):
        assert row["decision"] == ideal[row["case_id"]]


def test_a_second_run_does_nothing_and_says_so(
    undisturbed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe, run = copy_run(undisturbed, tmp_path, tiny_model, "publish")
    shutil.copytree(undisturbed / "publish", run / "publish")
    before = times(run)
    done = prerouter("run", str(recipe))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("unchanged, passed over") == len(STAGES)
    assert times(run) == before


def test_two_runs_with_one_seed_are_the_same_byte_for_byte(
    undisturbed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe = make_recipe(tmp_path, tiny_model)
    for verb in STAGES[: STAGES.index("train")]:
        assert prerouter(verb, str(recipe)).returncode == 0
    for file in (
        "cases/rows.jsonl",
        "cases/split.jsonl",
        "cases/references.jsonl",
        "label/rows.jsonl",
        "teach/rows.jsonl",
        "filter/rows.jsonl",
    ):
        again = tmp_path / "runs" / "tiny" / file
        assert again.read_bytes() == (undisturbed / file).read_bytes(), file


def test_a_changed_section_runs_its_stage_and_those_after_it(
    undisturbed: Path, tiny_model: Path, tmp_path: Path
) -> None:
    recipe, run = copy_run(undisturbed, tmp_path, tiny_model, "train")
    for verb in ("cases", "answer", "score"):
        done = prerouter(verb, str(recipe), "--set", "label.min_margin=0.4")
        assert "passed over" in done.stderr
    done = prerouter("label", str(recipe), "--set", "label.min_margin=0.4")
    assert "label.min_margin: 0.0 is now 0.4" in done.stderr
    assert rows(run, "label/rows.jsonl") != rows(undisturbed, "label/rows.jsonl")
    done = prerouter("filter", str(recipe), "--set", "label.min_margin=0.4")
    assert "label/rows.jsonl changed" in done.stderr


@pytest.mark.parametrize(
    ("stage", "count"),
    [
        ("answer", 1),
        ("answer", 700),
        ("score", 300),
        ("label", 10),
        ("teach", 333),
        ("filter", 50),
        ("route", 200),
    ],
)
def test_killed_in_the_middle_of_a_stage_the_rerun_ends_the_same(
    undisturbed: Path, tiny_model: Path, tmp_path: Path, stage: str, count: int
) -> None:
    recipe, run = copy_run(undisturbed, tmp_path, tiny_model, stage)
    killed = prerouter(stage, str(recipe), code=KILL_AFTER_ROWS.format(count=count))
    assert killed.returncode == -9
    assert not (run / stage / "manifest.json").exists()
    done = prerouter(stage, str(recipe))
    assert done.returncode == 0, done.stderr
    assert rows(run, f"{stage}/rows.jsonl") == rows(undisturbed, f"{stage}/rows.jsonl")


@pytest.mark.parametrize("count", [1, 3, 6])
@pytest.mark.parametrize("stage", ["cases", "calibrate", "evaluate"])
def test_killed_before_a_file_is_in_place_the_rerun_ends_the_same(
    undisturbed: Path, tiny_model: Path, tmp_path: Path, stage: str, count: int
) -> None:
    recipe, run = copy_run(undisturbed, tmp_path, tiny_model, stage)
    killed = prerouter(stage, str(recipe), code=KILL_AT_RENAME.format(count=count))
    if killed.returncode == 0:
        pytest.skip(f"{stage} renames fewer than {count} files")
    assert killed.returncode == -9
    assert not (run / stage / "manifest.json").exists()
    assert prerouter(stage, str(recipe)).returncode == 0
    assert rows(run, f"{stage}/rows.jsonl") == rows(undisturbed, f"{stage}/rows.jsonl")
    leftovers = [path for path in (run / stage).iterdir() if path.name.endswith(".partial")]
    assert not leftovers


def test_the_published_router_decides_as_the_student_did(undisturbed: Path, tmp_path: Path) -> None:
    from prerouter import Router
    from prerouter.core.records import RoutingCase

    folder = undisturbed / "publish" / "router"
    router = Router.from_pretrained(folder, batch_size=64, dtype="float32", mode="explain")
    before = {
        row["case_id"]: row
        for row in rows(undisturbed, "route/rows.jsonl")
        if row["router"] == "student"
    }
    cases = [
        RoutingCase.model_validate(row)
        for row in rows(undisturbed, "cases/rows.jsonl")
        if row["case_id"] in before
    ][:20]
    for decision in router.decide(cases):
        earlier = before[decision.case_id]
        assert (decision.route, decision.failure) == (
            earlier.get("route"),
            earlier.get("failure"),
        )
        assert decision.raw == earlier.get("raw")


def test_the_published_router_decides_at_once_as_the_calibrated_student_did(
    undisturbed: Path,
) -> None:
    from prerouter import Router
    from prerouter.core.records import RoutingCase, StudentMode

    _, calibrated = rows(undisturbed, "calibrate/rows.jsonl")
    assert [point["split"] for point in calibrated["measured"]] == ["validation", "test"]
    raw = {
        row["case_id"]: row["p_lc"]
        for row in rows(undisturbed, "route/rows.jsonl")
        if row["router"] == "student_decide"
    }
    router = Router.from_pretrained(
        undisturbed / "publish" / "router",
        batch_size=64,
        dtype="float32",
    )
    assert router.mode is StudentMode.DECIDE  # the calibrated one is the usual one
    published = json.loads((undisturbed / "publish" / "router" / "router.json").read_text())
    assert published["threshold_for"] == published["files"]["model.safetensors"]
    assert published["threshold_for"] == router.checkpoint
    cases = [
        case
        for row in rows(undisturbed, "cases/rows.jsonl")
        if (case := RoutingCase.model_validate(row)).case_id in raw
    ][:20]
    cut = calibrated["threshold"]["point"]["threshold"]
    for decision in router.decide(cases):
        assert decision.p_lc is not None
        p = raw[decision.case_id]
        odds = math.log(p / (1 - p)) / calibrated["temperature"]["temperature"]
        assert decision.p_lc == pytest.approx(1 / (1 + math.exp(-odds)), abs=1e-4)
        if abs(decision.p_lc - cut) > 1e-4:
            assert decision.route == ("LC" if decision.p_lc > cut else "RAG")
    table = {row["router"] for row in rows(undisturbed, "evaluate/rows.jsonl")}
    assert {"student", "student_decide", "oracle"} <= table
    assert {"decision_tree_tuned", "student_decide_tuned"} <= table


def test_the_provenance_names_what_the_router_was_made_of_and_nothing_else(
    undisturbed: Path,
) -> None:
    config = json.loads((undisturbed / "publish" / "router" / "router.json").read_text())
    before = STAGES[: STAGES.index("publish")]
    assert config["provenance"]["parents"] == {
        stage: json.loads((undisturbed / stage / "manifest.json").read_text())["files"][
            "rows.jsonl"
        ]["sha256"]
        for stage in before
    }


def test_the_published_folder_holds_no_path_of_this_machine(undisturbed: Path) -> None:
    folder = undisturbed / "publish" / "router"
    names = {path.name for path in folder.iterdir()}
    assert {"config.json", "generation_config.json", "router.json", "README.md"} <= names
    for path in folder.iterdir():
        if path.suffix in {".json", ".md", ".jinja", ".txt"}:
            text = path.read_text("utf-8")
            assert str(undisturbed.parents[1]) not in text, path.name
            assert "/root" not in text, path.name
