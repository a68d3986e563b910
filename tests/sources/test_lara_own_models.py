"""LaRA's questions for answer models of one's own, in place of the published predictions."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from prerouter.core.errors import InputError
from prerouter.core.records import RagConfig
from prerouter.recipe.cases import LaraSource
from prerouter.sources.lara import load_lara
from prerouter.sources.loaded import Loaded

OWN = [{"name": "own", "context_window": 2048}, {"name": "own", "thinking": True}]


def _load(path: Path, **settings: Any) -> Loaded:
    return load_lara(LaraSource(source="lara", path=path, **settings), RagConfig())


def test_own_models_are_asked_every_question_and_published_answers_left_out(
    lara_dir: Path, clone: Loaded
) -> None:
    loaded = _load(lara_dir / "clone", own_models=OWN)
    asked = {case.question_id for case in clone.cases}
    assert {case.question_id for case in loaded.cases} >= asked
    assert len(loaded.cases) == 2 * len(loaded.references)
    assert len({case.case_id for case in loaded.cases}) == len(loaded.cases)
    assert {case.answer_model.name for case in loaded.cases} == {"own"}
    assert loaded.answers == []
    assert loaded.documents == clone.documents


def test_own_models_need_no_predictions(lara_dir: Path, tmp_path: Path) -> None:
    shutil.copytree(lara_dir / "clone" / "datasets", tmp_path / "datasets")
    assert _load(tmp_path, own_models=OWN[:1]).cases
    with pytest.raises(InputError, match="holds no predictions"):
        _load(tmp_path)


def test_a_sample_of_questions_is_the_same_each_time_and_spread(lara_dir: Path) -> None:
    loaded = _load(lara_dir / "clone", own_models=OWN[:1], questions=60)
    again = _load(lara_dir / "clone", own_models=OWN[:1], questions=60)
    assert loaded.cases == again.cases
    assert len(loaded.cases) == len(loaded.references) == 60
    assert len({case.document.document_id for case in loaded.cases}) > 8
    assert len({reference.level for reference in loaded.references}) == 4
    smaller = _load(lara_dir / "clone", own_models=OWN[:1], questions=20)
    assert {case.case_id for case in smaller.cases} < {case.case_id for case in loaded.cases}


def test_own_models_and_published_ones_exclude_each_other() -> None:
    with pytest.raises(ValidationError, match="own_models leaves out"):
        LaraSource(source="lara", path=Path(), own_models=OWN, answer_models=("gpt-4o",))
