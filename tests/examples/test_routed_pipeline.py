from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="module")
def example(repository: Path) -> ModuleType:
    path = repository / "examples" / "routed_pipeline.py"
    spec = importlib.util.spec_from_file_location("routed_pipeline", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_it_runs_without_a_trained_router(
    example: ModuleType, repository: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sample = repository / "data" / "sample"
    example.main([f"--router={tmp_path / 'nothing'}", f"--sample={sample}", "--questions=8"])
    shown = capsys.readouterr().out
    assert shown.startswith("router: guideline")
    assert len(re.findall(r"^  (RAG|LC), \d+ tokens read$", shown, re.M)) == 8
    assert {"RAG", "LC"} == set(re.findall(r"^  (RAG|LC), ", shown, re.M))
    right, of = map(int, re.findall(r"^(\d+) of (\d+) answers", shown, re.M)[0])
    assert of == 8
    assert right > 4
    routed, everything = map(int, re.findall(r"(\d+) tokens read; .* takes (\d+)", shown)[0])
    assert 0 < routed < everything


def test_a_folder_that_is_no_router_is_told_in_a_line(example: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"^error: .*router\.json: is missing"):
        example.main([f"--router={tmp_path}"])
