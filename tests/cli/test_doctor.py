"""`prerouter doctor`: what is told of a library that works, is broken, hangs, or isn't there."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from prerouter.cli import doctor
from prerouter.cli.doctor import PARTS, Finding, Part, examine
from prerouter.cli.main import app
from tests.e2e.runner import prerouter

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose modules this process and those that it starts can import."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path


def test_a_module_that_can_be_imported_works() -> None:
    assert examine(Part("reading", ("json", "jinja2"), "x")).verdict == "works"


def test_a_module_that_is_not_there_is_absent_and_the_mend_is_told() -> None:
    found = examine(Part("magic", ("json", "no_such_module"), "-e '.[magic]'"))
    assert found == Finding("magic", "absent", "", "pip install -e '.[magic]'")


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise ImportError('libcuda.so.1: no such file')\n", "libcuda.so.1: no such file"),
        ("import os\nos._exit(3)\n", "its import ends with code 3"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n", "ends with code -11"),
    ],
    ids=["raises", "exits", "crashes"],
)
def test_a_module_that_is_broken_takes_nobody_along(modules: Path, code: str, told: str) -> None:
    (modules / "cracked.py").write_text(code)
    found = examine(Part("cracked", ("cracked",), "-e '.[cracked]'"))
    assert found.verdict == "broken"
    assert told in found.mend
    assert "install anew: pip install -e '.[cracked]'" in found.mend
    assert examine(Part("cracked", ("cracked",), "x"), imports=False).verdict == "installed"


def test_an_import_that_hangs_is_broken(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (modules / "sleepy.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.setattr(doctor, "_IMPORT_SECONDS", 0.3)
    started = time.monotonic()
    found = examine(Part("sleepy", ("sleepy",), "x"))
    assert time.monotonic() - started < 10
    assert found.verdict == "broken"
    assert "its import takes over" in found.mend


def test_a_file_beside_the_user_is_not_taken_for_a_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text("raise SystemExit('not this one')\n")
    monkeypatch.chdir(tmp_path)
    assert examine(Part("templates", ("jinja2",), "x")).verdict == "works"


def test_every_extra_of_a_user_is_looked_at() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = set(project["optional-dependencies"]) - {"dev", "docs"}
    mends = " ".join(part.mend for part in PARTS)
    assert extras == {extra for extra in extras if f"-e '.[{extra}]'" in mends}


def run_quick(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "prerouter", "doctor", "--quick", "--json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=REPOSITORY,
        env={**os.environ, **environment},
    )


def test_a_quick_look_imports_nothing_and_tells_no_secret(modules: Path) -> None:
    (modules / "torch.py").write_text("raise SystemExit('imported')\n")
    done = run_quick(HF_TOKEN="hf_secret", PYTHONPATH=str(modules))
    told = json.loads(done.stdout)
    assert "hf_secret" not in done.stdout + done.stderr
    assert told["machine"]["HF_TOKEN"] == "set"
    assert {part["part"] for part in told["parts"]} == {part.name for part in PARTS}
    assert all(part["verdict"] in ("installed", "absent") for part in told["parts"])


@pytest.mark.parametrize(("verdict", "code"), [("works", 0), ("absent", 0), ("broken", 1)])
def test_only_what_is_broken_is_a_failure(
    monkeypatch: pytest.MonkeyPatch, verdict: doctor.Verdict, code: int
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda part, imports: Finding(part.name, verdict, ""))
    monkeypatch.setattr(doctor, "_gpu", lambda: "none")
    done = CliRunner().invoke(app, ["doctor"])
    assert done.exit_code == code
    assert done.output.count(verdict) >= len(PARTS)


def test_no_escape_sequences_where_there_is_no_terminal() -> None:
    done = prerouter("doctor", "--quick")
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    assert "Python: " in done.stdout


def on_terminal(*arguments: str, **environment: str) -> str:
    """What the program writes to a terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "prerouter", *arguments],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=REPOSITORY,
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "100", **environment},
    )
    os.close(theirs)
    written = b""
    try:
        while part := os.read(ours, 4096):
            written += part
    except OSError:
        # The terminal's other end has gone: all is read.
        pass
    finally:
        os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_no_color_takes_the_colours_off_a_terminal() -> None:
    # 30 to 37, 90 to 97 and 38;5 are colours; bold (1) and the cursor's moves are none.
    colour = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-8]|9[0-7])[;\dm]")
    bright = on_terminal("doctor", "--quick", NO_COLOR="")
    plain = on_terminal("doctor", "--quick", NO_COLOR="1")
    assert colour.search(bright)
    assert not colour.search(plain)
    assert "training" in plain
