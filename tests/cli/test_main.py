"""The command line as its users meet it, in a process of its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from prerouter.cli.main import app, main
from prerouter.stages.pipeline import VERBS as VERBS_TO_STAGES
from tests.e2e.runner import prerouter

REPOSITORY = Path(__file__).parents[2]
VERBS = [
    "run",
    "cases",
    "profile",
    "answer",
    "score",
    "label",
    "teach",
    "filter",
    "dataset",
    "train",
    "route",
    "evaluate",
    "publish",
    "check",
    "estimate",
    "show",
    "decide",
]


def write_table(folder: Path, rows: list[dict[str, str]], **sections: Any) -> Path:
    """A CSV of questions with paired scores, and a recipe that reads it."""
    with (folder / "mine.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    recipe: dict[str, Any] = {
        "name": "mine",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "mine.csv"),
            "columns": {"question": "q"},
            "answer_models": [{"name": "reader", "context_window": 8192}],
        },
    }
    recipe |= sections
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


def test_the_verbs_that_call_models_can_make_failed_calls_again() -> None:
    asking = {name for name, stage in VERBS_TO_STAGES.items() if stage.retries}
    assert asking >= {"teach", "profile"}
    for name, verb in get_command(app).commands.items():  # type: ignore[attr-defined]
        offered = any("--retry-failed" in option.opts for option in verb.params)
        assert offered is (name in asking or name == "run"), name


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1e300", "-9"])
@pytest.mark.parametrize("option", ["--output-tokens", "--throughput", "--threshold"])
def test_a_number_out_of_all_range_is_wrong_usage(option: str, value: str) -> None:
    given = ["estimate", "recipe.yaml"]
    if option == "--threshold":
        given = ["decide", "--router=r", "--question=q", "--document=d", "--answer-model=m"]
    done = CliRunner().invoke(app, [*given, f"{option}={value}"])
    assert done.exit_code == 2
    assert option in done.output


@pytest.mark.parametrize("value", ["-1", "0.25", "1"])
def test_a_threshold_may_send_all_one_way(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    asked: list[float | None] = []
    monkeypatch.setattr(
        "prerouter.cli.decide.decide_one", lambda request, as_json: asked.append(request.threshold)
    )
    given = ["decide", "--router=r", "--question=q", "--document=d", "--answer-model=m"]
    assert CliRunner().invoke(app, [*given, f"--threshold={value}"]).exit_code == 0
    assert asked == [float(value)]


def test_an_error_of_the_system_without_a_number_is_told_in_its_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        raise OSError("the share is gone")

    monkeypatch.setattr("prerouter.cli.main.app", fail)
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().err == "error: system: the share is gone\n"


def test_a_shell_can_ask_how_a_verb_goes_on() -> None:
    asked = {
        "_PREROUTER_COMPLETE": "complete_bash",
        "COMP_WORDS": "prerouter pu",
        "COMP_CWORD": "1",
    }
    code = "import sys; sys.argv[0] = 'prerouter'; from prerouter.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **asked},
    )
    assert done.stdout.split() == ["publish"], done.stderr


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


@pytest.mark.parametrize("place", ["before", "after"])
def test_debug_is_taken_before_the_verb_and_after_it(tmp_path: Path, place: str) -> None:
    verb = ["show", str(tmp_path)]
    done = prerouter(*(["--debug", *verb] if place == "before" else [*verb, "--debug"]))
    assert "Traceback" in done.stderr
    assert "is no run's folder" in done.stderr


def test_what_follows_an_option_is_its_value() -> None:
    done = prerouter("check", "no.yaml", "--tokenizer", "--debug")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


def run_module(
    *arguments: str, modules: str = "", stdout: int = subprocess.PIPE, stderr: int = subprocess.PIPE
) -> subprocess.CompletedProcess[str]:
    """`python -m prerouter`; what lies in the folder `modules` is imported first."""
    return subprocess.run(
        [sys.executable, "-m", "prerouter", *arguments],
        stdout=stdout,
        stderr=stderr,
        text=True,
        check=False,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": modules},
    )


@pytest.fixture
def unread() -> Iterator[int]:
    """A pipe that nobody reads any more."""
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


@pytest.mark.parametrize("imported", ["typer", "filelock"])
def test_ctrl_c_ends_with_a_line_also_during_imports(tmp_path: Path, imported: str) -> None:
    # typer is imported before there is a command line, filelock when a stage is about to run.
    recipe = write_table(tmp_path, [scored(0)])
    modules = tmp_path / "modules"
    modules.mkdir()
    interrupt = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(9)\n"
    (modules / f"{imported}.py").write_text(interrupt)
    done = run_module("run", str(recipe), modules=str(modules))
    assert done.returncode == 130
    assert done.stderr == "stopped; finished rows are kept, run again to go on\n"
    assert done.stdout == ""


def test_the_console_script_is_the_one_that_catches_it() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {"prerouter": "prerouter.__main__:main"}


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe whose run is finished, to the routing table."""
    folder = tmp_path_factory.mktemp("evaluated")
    recipe = write_table(
        folder,
        [scored(number) for number in range(12)],
        route={"routers": ["always_rag", "always_lc"]},
        evaluate={"resamples": 100},
    )
    assert prerouter("run", str(recipe)).returncode == 0
    return recipe


@pytest.mark.parametrize("verb", ["show", "check", "run"])
def test_a_reader_of_the_output_that_has_gone_is_no_error(
    evaluated: Path, unread: int, verb: str
) -> None:
    target = evaluated.parent / "runs" / "mine" if verb == "show" else evaluated
    done = run_module(verb, str(target), stdout=unread)
    assert done.returncode == 0
    assert "rror" not in done.stderr


def test_a_run_whose_notes_nobody_reads_goes_on(tmp_path: Path, unread: int) -> None:
    recipe = write_table(tmp_path, [scored(number) for number in range(6)])
    assert run_module("run", str(recipe), stderr=unread).returncode == 0
    assert (tmp_path / "runs/mine/label/manifest.json").exists()
