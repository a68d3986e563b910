"""Faithfulness: claims supported / claims made, or a reason for having none."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.answering.faithfulness import CheckedClaim, Claims, Faithfulness, NoFaithfulness
from prerouter.core.errors import MissingDependencyError, StageError
from prerouter.core.protocols import Completion, SilentProgress
from prerouter.core.records import Reject, Route
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import answer, cases, faithfulness
from tests.e2e.runner import prerouter
from tests.e2e.test_pipeline import KILL_AFTER_ROWS

from .judged import ENGINE, Judge

FILLER = " ".join(f"Nothing of note befell house number {number}." for number in range(60))
DECLINE = "The document does not tell."


def write_recipe(folder: Path, **section: Any) -> Path:
    """Six chronicles; the evidence reader answers each question with a sentence of its chronicle,
    but for the last, whose right answer is that it isn't told."""
    rows = []
    (folder / "documents").mkdir()
    for number in range(6):
        mill = f"The mill of parish {number} burned in June."
        (folder / "documents" / f"{number}.txt").write_text(f"{FILLER}\n{mill}\n{FILLER}\n")
        row = {"question": f"When did the mill of parish {number} burn?"}
        row |= {"document_path": f"{number}.txt", "question_id": f"q{number}", "evidence": mill}
        rows.append(row)
    rows[5] |= {"answerable": False, "evidence": None}
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "name": "faithful",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "rows.jsonl"),
            "documents": str(folder / "documents"),
            "answer_models": [{"name": "reader", "context_window": 4096}],
        },
        "rag": {"chunk_tokens": 30, "overlap_tokens": 5, "top_k": 2},
        "answer": {},
        "score": {
            "metric": "evidence_recall",
            "faithfulness": {"engine": ENGINE, "max_failed_share": 0.5, **section},
        },
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def checker(shown: dict[str, Any]) -> Completion:
    """Each answer claims its sentence, and but for parish 4 an arson that no passage tells of; a
    refusal claims nothing. The claims of parish 2 and the check of parish 3 can't be read."""
    if "answer" in shown:
        said = shown["answer"]
        claims = [] if said == DECLINE else [said, "It was arson."]
        if "parish 4" in said:
            claims = [said]
        text = "no JSON" if "parish 2" in said else json.dumps({"claims": claims})
    else:
        passages = " ".join(shown["passages"].values())
        verdicts = [
            {"claim": int(number), "supported": claim in passages}
            for number, claim in shown["claims"].items()
        ]
        text = json.dumps({"verdicts": verdicts[:1] if "parish 3" in passages else verdicts})
    return Completion(text, "stop", 50, 10)


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch, **section: Any) -> tuple[Recipe, Judge]:
    recipe = load_recipe(write_recipe(folder, **section))
    engine = Judge(checker)
    monkeypatch.setattr("prerouter.stages.faithfulness.start_engine", lambda section: engine)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(answer.STAGE, recipe, SilentProgress())
    return recipe, engine


def rows_of(recipe: Recipe) -> list[Faithfulness]:
    return list(read_rows(recipe.run_dir / "faithfulness" / "rows.jsonl", Faithfulness))


def test_claims_are_extracted_and_then_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, engine = prepare(tmp_path, monkeypatch)
    outcome = execute(faithfulness.STAGE, recipe, SilentProgress())
    rows = rows_of(recipe)
    assert {row.route for row in rows} == {Route.RAG}
    assert [row.score for row in rows] == [0.5, 0.5, 1.0, None]
    assert rows[0].claims == (
        CheckedClaim(text="The mill of parish 0 burned in June.", supported=True),
        CheckedClaim(text="It was arson.", supported=False),
    )
    # No claims at all is no faithfulness, neither the best nor the worst.
    assert rows[3].missing is NoFaithfulness.NO_CLAIMS
    report = outcome.manifest.report
    assert (report["answers"], report["n"], report["claims"]) == (6, 3, 5)
    assert report["missing"] == {"no_claims": 1, "not_judged": 2}
    assert report["mean"]["value"] == pytest.approx(2 / 3)
    assert report["mean"]["interval"]["n_groups"] == 3
    rejects = list(read_rows(recipe.run_dir / "faithfulness" / "rejects.jsonl", Reject))
    assert [(reject.key[-10:], reject.reason) for reject in rejects] == [
        ("RAG|claims", "no_json"),
        ("AG|support", "wrong_shape"),
    ]
    # Nobody is asked which claims of none are supported.
    assert len(engine.shown) == 6 + 4


def test_the_verifier_sees_the_retrieved_passages_and_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, engine = prepare(tmp_path, monkeypatch)
    execute(faithfulness.STAGE, recipe, SilentProgress())
    for shown in engine.shown:
        if "passages" not in shown:
            assert list(shown) == ["question", "answer"]
            continue
        assert list(shown) == ["passages", "claims"]
        assert len(shown["passages"]) == 2
        assert sum(len(text.split()) for text in shown["passages"].values()) < 100


def test_too_many_failures_are_an_error_and_only_failed_calls_are_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, _ = prepare(tmp_path, monkeypatch, max_failed_share=0.1)

    def down(shown: dict[str, Any]) -> Completion:
        if "parish 1" in str(shown.get("claims", shown)):
            return Completion("", "error", error="503")
        return checker({**shown, "answer": DECLINE} if "answer" in shown else shown)

    engine = Judge(down)
    monkeypatch.setattr("prerouter.stages.faithfulness.start_engine", lambda section: engine)
    with pytest.raises(StageError, match=r"1 of 6 were refused.*score.faithfulness.max_failed"):
        execute(faithfulness.STAGE, recipe, SilentProgress())
    assert read_manifest(recipe.run_dir / "faithfulness") is None
    healed = Judge(checker)
    monkeypatch.setattr("prerouter.stages.faithfulness.start_engine", lambda section: healed)
    execute(faithfulness.STAGE, recipe, SilentProgress())
    assert len(healed.shown) == 2
    assert [row.score for row in rows_of(recipe)] == [None, 0.5, None, None, None, None]


# The sixth row ends the first step; the seventh is of the answer without claims.
@pytest.mark.parametrize("count", [3, 8])
def test_killed_in_either_step_nothing_is_asked_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    undisturbed, _ = prepare(whole, monkeypatch)
    execute(faithfulness.STAGE, undisturbed, SilentProgress())
    recipe, _ = prepare(killed, monkeypatch)
    engine = f"""
from pathlib import Path
from prerouter.stages import faithfulness
from tests.stages.judged import Judge
from tests.stages.test_faithfulness import checker
asked = Path({str(killed / "asked.txt")!r})
faithfulness.start_engine = lambda section: Judge(checker, asked)
"""
    code = KILL_AFTER_ROWS.format(count=count) + engine
    died = prerouter("faithfulness", str(killed / "recipe.yaml"), code=code)
    assert died.returncode == -9, died.stderr
    done = prerouter("faithfulness", str(killed / "recipe.yaml"), code=engine)
    assert done.returncode == 0, done.stderr
    folder = recipe.run_dir / "faithfulness"
    for file in ("rows.jsonl", "claims.jsonl"):
        expected = (undisturbed.run_dir / "faithfulness" / file).read_bytes()
        assert (folder / file).read_bytes() == expected, file
    asked = Counter((killed / "asked.txt").read_text().splitlines())
    assert asked.total() == 10
    assert max(asked.values()) == 1
    assert len(list(read_rows(folder / "claims.jsonl", Claims))) == 5


@pytest.mark.skipif(importlib.util.find_spec("ragas") is not None, reason="ragas is installed")
def test_ragas_that_is_not_there_is_told_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, _ = prepare(tmp_path, monkeypatch, by="ragas")
    with pytest.raises(MissingDependencyError, match=r"pip install -e '\.\[ragas\]'"):
        execute(faithfulness.STAGE, recipe, SilentProgress())


def test_check_tells_the_number_of_calls(tmp_path: Path) -> None:
    told = prerouter("check", str(write_recipe(tmp_path, by="ragas")))
    assert told.returncode == 0, told.stderr
    if importlib.util.find_spec("ragas") is None:
        assert (
            "not installed here: ragas (in prerouter's clone: pip install -e '.[ragas]')"
            in told.stdout
        )
    assert "faithfulness: at most 12 calls of big-judge through openai" in told.stdout
