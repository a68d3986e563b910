"""The command line as its users meet it, in a process of its own."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest
import yaml

from tests.e2e.runner import prerouter

REPOSITORY = Path(__file__).parents[2]
VERBS = [
    "run",
    "cases",
    "answer",
    "score",
    "label",
    "teach",
    "filter",
    "train",
    "route",
    "evaluate",
    "publish",
    "check",
    "show",
    "decide",
]


def write_table(folder: Path, rows: list[dict[str, str]]) -> Path:
    """A CSV of questions with paired scores, and a recipe that reads it."""
    with (folder / "mine.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    recipe = {
        "name": "mine",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "mine.csv"),
            "columns": {"question": "q"},
            "answer_models": [{"name": "reader", "context_window": 8192}],
        },
    }
    path = folder / "mine.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def scored(number: int, **changes: str) -> dict[str, str]:
    row = {
        "q": f"What is said in part {number}?",
        "head": f"Document {number} begins here.",
        "rag_score": "0.5",
        "lc_score": str(number % 2),
    }
    return row | changes


def test_help_names_every_verb() -> None:
    done = prerouter("--help")
    assert done.returncode == 0
    for verb in VERBS:
        assert f"\n  {verb} " in done.stdout, verb


def test_an_unknown_verb_is_wrong_usage() -> None:
    done = prerouter("distil")
    assert done.returncode == 2
    assert "distil" in done.stderr


def test_an_error_is_a_line_and_no_traceback(tmp_path: Path) -> None:
    done = prerouter("run", str(tmp_path / "none.yaml"))
    assert done.returncode == 1
    assert done.stderr == f"error: {tmp_path}/none.yaml: no such recipe; check the path\n"
    assert "Traceback" in prerouter("--debug", "run", str(tmp_path / "none.yaml")).stderr


def test_all_mistakes_of_a_recipe_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text("name: x\nseeds: 3\ncases: {source: table, pth: a.csv}\n")
    done = prerouter("check", str(path))
    assert done.returncode == 1
    assert done.stderr.count("error: ") == 3
    assert "did you mean seed?" in done.stderr
    assert "did you mean path?" in done.stderr


def test_own_scores_are_labelled_by_one_command(tmp_path: Path) -> None:
    recipe = write_table(tmp_path, [scored(number) for number in range(6)])
    done = prerouter("run", str(recipe))
    assert done.returncode == 0, done.stderr
    labels = (tmp_path / "runs/mine/label/rows.jsonl").read_text().splitlines()
    assert [json.loads(line)["route"] for line in labels] == ["RAG", "LC"] * 3
    shown = prerouter("show", str(tmp_path / "runs" / "mine"))
    assert shown.returncode == 0
    assert '"RAG": 3' in shown.stdout or "RAG: 3" in shown.stdout


def test_a_bad_row_stops_the_run_and_says_where(tmp_path: Path) -> None:
    rows = [scored(0), scored(1, rag_score="1.5"), scored(2, lc_score="nan")]
    done = prerouter("cases", str(write_table(tmp_path, rows)))
    assert done.returncode == 1
    first, second = done.stderr.splitlines()
    assert "mine.csv" in first
    assert "rag_score" in first
    assert "1.5" in first
    assert "lc_score" in second
    assert not (tmp_path / "runs/mine/cases/rows.jsonl").exists()


def test_skip_bad_counts_what_it_leaves_out(tmp_path: Path) -> None:
    rows = [scored(0), scored(1, rag_score="1.5"), scored(2, q=""), scored(3)]
    done = prerouter("cases", str(write_table(tmp_path, rows)), "--skip-bad")
    assert done.returncode == 0, done.stderr
    assert "2 refused" in done.stderr
    rejects = (tmp_path / "runs/mine/cases/rejects.jsonl").read_text().splitlines()
    assert len(rejects) == 2
    assert all(json.loads(line)["reason"] and json.loads(line)["place"] for line in rejects)
    assert len((tmp_path / "runs/mine/cases/rows.jsonl").read_text().splitlines()) == 2


def test_a_verb_without_its_section_is_told(tmp_path: Path) -> None:
    done = prerouter("train", str(write_table(tmp_path, [scored(0)])))
    assert done.returncode == 1
    assert "no such section" in done.stderr


def test_show_of_no_run_is_an_error(tmp_path: Path) -> None:
    done = prerouter("show", str(tmp_path))
    assert done.returncode == 1
    assert "is no run's folder" in done.stderr


def test_quiet_where_there_is_no_terminal(tmp_path: Path) -> None:
    done = prerouter("run", str(write_table(tmp_path, [scored(number) for number in range(4)])))
    assert "\x1b" not in done.stderr + done.stdout
    assert "━" not in done.stderr


@pytest.mark.parametrize("recipe", ["preroute_qwen3_1.7b", "preroute_deepseek_r1"])
def test_the_papers_recipes_are_proven_without_torch(
    recipe: str, lara_dir: Path, qwen3_tokenizer_dir: Path
) -> None:
    without_torch = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'trl', 'vllm'):\n"
        "    sys.modules[name] = None\n"
    )
    done = prerouter(
        "check",
        f"recipes/{recipe}.yaml",
        "--set",
        f"cases.path={lara_dir}",
        "--tokenizer",
        str(qwen3_tokenizer_dir),
        code=without_torch,
    )
    assert done.returncode == 0, done.stderr
    assert "cases: 10,800 over 1,800 questions" in done.stdout
    assert "8,6" in done.stdout or "calls of" in done.stdout
    assert "learning_rate=2e-05" in done.stdout
    assert "4,000" in done.stdout


def test_check_tells_a_path_that_is_not_there() -> None:
    done = prerouter("check", "recipes/quickstart.yaml", "--set", "cases.path=nowhere")
    assert done.returncode == 1
    assert "nowhere: no such file or folder" in done.stderr
