"""The house: which room may import which, held by reading the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "prerouter"
FLOORS: tuple[frozenset[str], ...] = (
    frozenset({"core"}),
    frozenset({"recipe"}),
    frozenset({"runs", "prompts", "measures"}),
    frozenset(
        {
            "engines",
            "sources",
            "retrieval",
            "training",
            "probing",
            "reporting",
            "publishing",
        }
    ),
    frozenset({"answering"}),
    frozenset({"routers"}),
    frozenset({"stages", "serving"}),
    frozenset({"cli"}),
)
HEAVY = {
    "torch",
    "transformers",
    "trl",
    "peft",
    "accelerate",
    "datasets",
    "vllm",
    "ray",
    "sklearn",
    "sentence_transformers",
    "pymilvus",
    "matplotlib",
    "fastapi",
    "langchain_core",
    "llama_index",
}
FILES = sorted(PACKAGE.glob("*/**/*.py"))


def floor_of(room: str) -> int:
    return next(index for index, rooms in enumerate(FLOORS) if room in rooms)


def imported_modules(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the room"
            found.add(node.module or "")
    return found


def test_every_room_has_a_floor() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    assert rooms <= set().union(*FLOORS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_below(path: Path) -> None:
    room = path.relative_to(PACKAGE).parts[0]
    for module in imported_modules(path):
        parts = module.split(".")
        if parts[0] != "prerouter" or len(parts) == 1 or parts[1] == room:
            continue
        assert floor_of(parts[1]) < floor_of(room), f"{room} imports {module}"


@pytest.mark.parametrize(
    "path",
    [p for p in (PACKAGE / "stages").glob("*.py") if p.name != "pipeline.py"],
    ids=lambda path: path.name,
)
def test_stages_do_not_import_stages(path: Path) -> None:
    # None is a verb: `cases` divides by the first, `route` makes routers by the second, `publish`
    # takes what lies beside a router from the third.
    allowed = {
        "prerouter.stages.split",
        "prerouter.stages.checked_routers",
        "prerouter.stages.router_reports",
    }
    for module in imported_modules(path) - allowed:
        assert not module.startswith("prerouter.stages")


def test_no_room_for_odds_and_ends() -> None:
    banned = {"utils.py", "common.py", "helpers.py", "misc.py"}
    assert not [path for path in FILES if path.name in banned]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_file_has_one_subject(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) <= 350


@pytest.mark.parametrize(
    "statement",
    ["import prerouter", "import prerouter.cli.main", "import prerouter.cli.check"],
)
def test_light_imports_load_nothing_heavy(statement: str) -> None:
    code = f"{statement}; import sys; print(*sorted(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not HEAVY & set(done.stdout.split())
