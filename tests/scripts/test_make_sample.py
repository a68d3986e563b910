from __future__ import annotations

import json
import subprocess
import sys
from hashlib import blake2b
from pathlib import Path

import pytest


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def sample(repository: Path) -> Path:
    return repository / "data" / "sample"


def test_the_script_writes_what_is_committed_byte_for_byte(
    repository: Path, sample: Path, tmp_path: Path
) -> None:
    subprocess.run(
        [sys.executable, repository / "scripts" / "make_sample.py", "--target", tmp_path],
        check=True,
        capture_output=True,
        env={"PYTHONHASHSEED": "77", "PYTHONPATH": str(repository)},
    )
    made = {path.relative_to(tmp_path): path for path in tmp_path.rglob("*") if path.is_file()}
    kept = {path.relative_to(sample): path for path in sample.rglob("*") if path.is_file()}
    assert made.keys() == kept.keys()
    assert [name for name in made if made[name].read_bytes() != kept[name].read_bytes()] == []


def test_a_second_run_replaces_the_first(repository: Path, tmp_path: Path) -> None:
    for count in ("4", "2"):
        subprocess.run(
            [
                *(sys.executable, repository / "scripts" / "make_sample.py"),
                *("--target", tmp_path, "--documents", count),
            ],
            check=True,
            capture_output=True,
            env={"PYTHONPATH": str(repository)},
        )
    assert len(list((tmp_path / "documents").iterdir())) == 2
    assert len(lines(tmp_path / "documents.jsonl")) == 2


def test_no_two_documents_share_a_run_of_fifty_words(sample: Path) -> None:
    seen: dict[bytes, str] = {}
    for path in sorted((sample / "documents").iterdir()):
        text = path.read_text(encoding="utf-8").split()
        for start in range(len(text) - 49):
            run = blake2b(" ".join(text[start : start + 50]).encode(), digest_size=12).digest()
            assert seen.setdefault(run, path.name) == path.name


def test_the_sample_is_small_and_its_summary_true(sample: Path) -> None:
    summary = json.loads((sample / "sample.json").read_text(encoding="utf-8"))
    documents, questions = lines(sample / "documents.jsonl"), lines(sample / "questions.jsonl")
    assert sum(path.stat().st_size for path in sample.rglob("*") if path.is_file()) < 3_000_000
    assert summary["documents"] == len(documents) == len(list((sample / "documents").iterdir()))
    assert summary["questions"] == len(questions)
    assert summary["by_level"].keys() == {"location", "reasoning", "comparison", "hallucination"}
    assert sum(summary["by_form"].values()) == len(questions)
    assert len({str(row["title"]) for row in documents}) == len(documents)


def test_what_is_asked_in_vain_stands_nowhere_and_the_rest_has_evidence(sample: Path) -> None:
    for row in lines(sample / "questions.jsonl"):
        assert row["answerable"] is (row["level"] != "hallucination")
        assert bool(row["evidence"]) is row["answerable"]
        assert (row["answer"] is not None) is row["answerable"]


def test_the_answers_follow_from_the_evidence(sample: Path) -> None:
    """Recompute what can be: lookups quote their evidence, a most or least is the extreme."""
    checked = 0
    for row in lines(sample / "questions.jsonl"):
        evidence = [str(piece["text"]) for piece in row["evidence"]]  # type: ignore[attr-defined]
        answer = str(row["answer"])
        if row["form"] in ("direct", "oblique"):
            assert answer in evidence[0]
        elif row["form"] == "chain":
            assert sum(answer in text for text in evidence) == 1
        elif row["form"] == "superlative":
            assert sum(answer in text for text in evidence) == 1
            assert len(evidence) >= 5
        else:
            continue
        checked += 1
    assert checked > 100
