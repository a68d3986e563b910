"""`prerouter run` and its verbs over a table of the user's own."""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from prerouter.cli.main import main
from tests.cli.test_main import scored, write_table


@dataclass
class Done:
    returncode: int
    stdout: str
    stderr: str


class Prerouter(Protocol):
    def __call__(self, *arguments: str) -> Done: ...


@pytest.fixture
def prerouter(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Prerouter:
    """The command line in this process: a tenth of the time of one of its own."""

    def call(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["prerouter", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        shown = capsys.readouterr()
        return Done(int(ended.value.code or 0), shown.out, shown.err)

    return call


def answered(number: int, rag: str, lc: str) -> dict[str, str]:
    return {"q": f"Who is number {number}?", "answer": "Ada", "rag_answer": rag, "lc_answer": lc}


def manifest(run: Path, stage: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / stage / "manifest.json").read_text())
    return found


def test_a_verb_tells_that_a_stage_before_it_is_out_of_date(
    tmp_path: Path, prerouter: Prerouter
) -> None:
    rows = [answered(number, "Ada", "Ada Lovelace") for number in range(6)]
    recipe = write_table(tmp_path, rows, score={"metric": "token_f1"})
    assert prerouter("run", str(recipe)).returncode == 0
    labels = tmp_path / "runs/mine/label/rows.jsonl"
    before = labels.read_bytes()
    changed = ("--set", "score.metric=token_recall")
    done = prerouter("label", str(recipe), *changed)
    assert done.returncode == 1
    assert done.stderr == (
        'error: label: needs score, which is out of date: score.metric: "token_f1" is now '
        '"token_recall"; run `prerouter score` on this recipe first, or `prerouter run`\n'
    )
    assert labels.read_bytes() == before
    assert prerouter("score", str(recipe), *changed).returncode == 0
    assert prerouter("label", str(recipe), *changed).returncode == 0


def test_who_is_sent_to_the_rejects_finds_the_reasons_there(
    tmp_path: Path, prerouter: Prerouter
) -> None:
    rows = [answered(0, "Ada", ""), answered(1, "", ""), answered(2, "Ada", "Ada")]
    score = {"metric": "token_f1", "max_failed_share": 0.2}
    recipe = write_table(tmp_path, rows, score=score)
    done = prerouter("run", str(recipe))
    assert done.returncode == 1
    assert "3 of 6 were refused (50.0%); score.max_failed_share allows 20.0%" in done.stderr
    assert "rejects.jsonl" in done.stderr
    lines = (tmp_path / "runs/mine/score/rejects.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert [(r["reason"], r["detail"]) for r in rejects] == [
        ("not_given", "LC of reader"),
        ("not_given", "RAG of reader"),
        ("not_given", "LC of reader"),
    ]
    assert all(r["key"].endswith(("|RAG", "|LC")) for r in rejects)


def test_missing_arms_are_counted_one_by_one(tmp_path: Path, prerouter: Prerouter) -> None:
    rows = [answered(0, "Ada", ""), answered(1, "", ""), answered(2, "Ada", "Ada")]
    recipe = write_table(tmp_path, rows, score={"metric": "token_f1"})
    assert prerouter("run", str(recipe)).returncode == 0
    run = tmp_path / "runs" / "mine"
    expected = {"reader": {"RAG": {"not_given": 1}, "LC": {"not_given": 2}}}
    report = manifest(run, "label")["report"]
    assert report["unlabelled"] == 2
    assert report["missing_by_model_arm_reason"] == expected
    assert manifest(run, "score")["report"]["missing_by_model_arm_reason"] == expected
    shown = prerouter("show", str(run)).stdout
    assert 'missing_by_model_arm_reason:\n      reader:\n        RAG: {"not_given": 1}\n' in shown


def test_a_case_that_nobody_scored_lacks_both_arms(tmp_path: Path, prerouter: Prerouter) -> None:
    rows = [scored(0), scored(1, rag_score="", lc_score=""), scored(2, lc_score="")]
    recipe = write_table(tmp_path, rows)
    assert prerouter("run", str(recipe)).returncode == 0
    report = manifest(tmp_path / "runs" / "mine", "label")["report"]
    assert report["unlabelled"] == 2
    assert report["missing_by_model_arm_reason"] == {
        "reader": {"RAG": {"not_given": 1}, "LC": {"not_given": 2}}
    }


def test_written_is_what_this_recipe_consists_of(tmp_path: Path, prerouter: Prerouter) -> None:
    recipe = write_table(tmp_path, [scored(number) for number in range(6)])
    assert prerouter("run", str(recipe)).returncode == 0
    run = tmp_path / "runs" / "mine"
    # An earlier recipe of this name had a teacher.
    shutil.copytree(run / "label", run / "teach")
    done = prerouter("run", str(recipe))
    assert done.stdout == f"\nWritten:\n  {run}/cases/\n  {run}/label/\n"


def test_one_unreadable_manifest_asks_for_its_stage_alone(
    tmp_path: Path, prerouter: Prerouter
) -> None:
    recipe = write_table(tmp_path, [scored(number) for number in range(6)])
    assert prerouter("run", str(recipe)).returncode == 0
    broken = tmp_path / "runs/mine/label/manifest.json"
    broken.write_text(broken.read_text().replace('"seconds"', '"minutes"'))
    done = prerouter("run", str(recipe))
    assert done.returncode == 1
    assert "run `prerouter label` with --force: the other stages stand" in done.stderr
    shown = prerouter("show", str(tmp_path / "runs" / "mine"))
    assert shown.returncode == 0
    assert "cases: " in shown.stdout
    assert "label: " in shown.stdout
    assert "is not a manifest of this version" in shown.stdout
    assert prerouter("label", str(recipe), "--force").returncode == 0
    assert prerouter("run", str(recipe)).stderr.count("passed over") == 2


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ("train", {"model": "m" * 10_000}),
        ("teach", {"engine": {"kind": "vllm", "model": "m" * 10_000}}),
        ("publish", {"repo_id": "me/" + "m" * 10_000}),
    ],
)
def test_a_name_of_absurd_length_is_refused_by_the_recipe_in_a_short_line(
    tmp_path: Path, prerouter: Prerouter, section: str, setting: dict[str, Any]
) -> None:
    recipe = write_table(tmp_path, [scored(0)], **{section: setting})
    done = prerouter("run", str(recipe))
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "should have at most" in line]
    assert len(line) < 400
    assert not (tmp_path / "runs").exists()


def test_a_server_that_has_gone_is_told(
    prerouter: Prerouter, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    monkeypatch.setattr("prerouter.cli.run.run_recipe", broken)
    done = prerouter("run", "recipe.yaml")
    assert done.returncode == 1
    assert done.stderr == (
        "error: system: a connection broke: [Errno 32] Broken pipe; run again: rows are kept\n"
    )
