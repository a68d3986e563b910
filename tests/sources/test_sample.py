from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import ValidationError

from prerouter.core.errors import CombinedError
from prerouter.core.records import AnswerModel, RagConfig
from prerouter.recipe.cases import SampleSource
from prerouter.retrieval.chunking import count_words
from prerouter.sources.sample import load_sample

MODELS = (
    AnswerModel(name="small", context_window=4096),
    AnswerModel(name="large", context_window=16384, thinking=True),
)
RAG = RagConfig(chunk_tokens=150, overlap_tokens=30, top_k=5)


def section(path: Path, **given: object) -> SampleSource:
    return SampleSource.model_validate(
        {"source": "sample", "path": path, "answer_models": MODELS, **given}
    )


@pytest.fixture(scope="module")
def sample(repository: Path) -> Path:
    return repository / "data" / "sample"


@pytest.fixture
def copy(sample: Path, tmp_path: Path) -> Path:
    """The sample's first two documents, free to be spoilt."""
    (tmp_path / "documents").mkdir()
    rows = (sample / "documents.jsonl").read_text(encoding="utf-8").splitlines()[:2]
    names = [json.loads(row)["document_id"] for row in rows]
    questions = (sample / "questions.jsonl").read_text(encoding="utf-8").splitlines()
    kept = [line for line in questions if json.loads(line)["document_id"] in names]
    (tmp_path / "documents.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "questions.jsonl").write_text("\n".join(kept) + "\n", encoding="utf-8")
    for name in names:
        shutil.copy(sample / "documents" / f"{name}.txt", tmp_path / "documents")
    return tmp_path


def test_every_question_is_crossed_with_every_answer_model(sample: Path) -> None:
    loaded = load_sample(section(sample), RAG)
    assert len(loaded.cases) == 2 * len(loaded.references) == loaded.counts["cases"]
    assert len({case.case_id for case in loaded.cases}) == len(loaded.cases)
    assert len({reference.question_id for reference in loaded.references}) == len(loaded.references)
    assert {case.question_id for case in loaded.cases} == {
        reference.question_id for reference in loaded.references
    }
    assert {(case.answer_model, case.rag) for case in loaded.cases} == {
        (model, RAG) for model in MODELS
    }


def test_profiles_tell_the_documents_truly(sample: Path) -> None:
    loaded = load_sample(section(sample, head_characters=120), RAG)
    for case in loaded.cases:
        body = loaded.bodies[case.document.document_id]
        assert case.document.head == body[:120]
        assert case.group_id == case.document.document_id
        assert case.document.title is not None
        assert body.startswith(case.document.title)
    for profile in {case.group_id: case.document for case in loaded.cases}.values():
        assert profile.tokens == count_words(loaded.bodies[profile.document_id])
    for file in loaded.documents:
        assert (sample / file.path).is_file()
        assert file.characters == len(loaded.bodies[file.document_id])


def test_evidence_stands_where_it_is_said_to(sample: Path) -> None:
    loaded = load_sample(section(sample), RAG)
    groups = {case.question_id: case.group_id for case in loaded.cases}
    pieces = 0
    for reference in loaded.references:
        body = loaded.bodies[groups[reference.question_id]]
        for piece in reference.evidence:
            assert body[piece.start : piece.end] == piece.text
            pieces += 1
    assert pieces > 500


def test_no_case_shows_its_level_unless_it_is_asked_for(sample: Path) -> None:
    hidden = load_sample(section(sample), RAG)
    assert {case.task_type for case in hidden.cases} == {None}
    for word in ("hallucination", "superlative", "absent_"):
        assert not any(word in case.model_dump_json() for case in hidden.cases)
    shown = load_sample(section(sample, task_type="level"), RAG)
    levels = {reference.question_id: reference.level for reference in shown.references}
    assert all(case.task_type == levels[case.question_id] for case in shown.cases)


def test_any_first_documents_are_a_mixture(sample: Path) -> None:
    loaded = load_sample(section(sample, documents=12), RAG)
    assert len(loaded.documents) == len(loaded.bodies) == 12
    profiles = {case.group_id: case.document for case in loaded.cases}
    assert sorted(profile.type or "" for profile in profiles.values()) == sorted(
        ["novel", "paper", "report"] * 4
    )
    tokens = sorted(profile.tokens or 0 for profile in profiles.values())
    assert tokens[0] < 2_048
    assert tokens[-1] > 8_192
    assert {reference.context_length for reference in loaded.references} <= {
        *("2k", "4k", "8k", "16k")
    }


def test_answer_models_that_would_share_case_ids_are_refused(sample: Path) -> None:
    with pytest.raises(ValidationError, match="clash"):
        section(sample, answer_models=(MODELS[0], MODELS[0]))


def spoil_document(folder: Path) -> None:
    path = next((folder / "documents").iterdir())
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))


def lose_document(folder: Path) -> None:
    next((folder / "documents").iterdir()).unlink()


def lose_questions(folder: Path) -> None:
    (folder / "questions.jsonl").unlink()


def tear_line(folder: Path) -> None:
    path = folder / "questions.jsonl"
    path.write_text(path.read_text(encoding="utf-8")[:-30], encoding="utf-8")


def climb_out(folder: Path) -> None:
    path = folder / "documents.jsonl"
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    path.write_text(json.dumps({**row, "document_id": "../../secret"}), encoding="utf-8")


def move_evidence(folder: Path) -> None:
    path = folder / "questions.jsonl"
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    row = next(row for row in rows if row["evidence"])
    row["evidence"][0]["start"] += 1
    path.write_text("\n".join(json.dumps(row) for row in rows), encoding="utf-8")


def forget_document(folder: Path) -> None:
    path = folder / "documents.jsonl"
    path.write_text(path.read_text(encoding="utf-8").splitlines()[0] + "\n", encoding="utf-8")


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (spoil_document, ".txt: is not the document"),
        (lose_document, ".txt: can't be read (No such file"),
        (lose_questions, "questions.jsonl: can't be read (No such file"),
        (tear_line, "questions.jsonl:10: "),
        (climb_out, "documents.jsonl:1: document_id"),
        (move_evidence, "evidence is not at"),
        (forget_document, ": no document novel-01"),
    ],
)
def test_a_sample_that_is_not_whole_is_refused(
    copy: Path, spoil: Callable[[Path], None], says: str
) -> None:
    assert load_sample(section(copy), RAG).counts["documents"] == 2
    spoil(copy)
    with pytest.raises(CombinedError) as caught:
        load_sample(section(copy), RAG)
    assert any(says in line for line in caught.value.lines)
    assert all("make_sample.py" in line for line in caught.value.lines)


def test_an_error_of_the_system_without_a_number_is_told_in_its_words(
    sample: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> str:
        raise OSError("the share is gone")

    monkeypatch.setattr(Path, "read_text", fail)
    with pytest.raises(CombinedError, match=r"can't be read \(the share is gone\)"):
        load_sample(section(sample), RAG)
