"""A push is one commit, or an error in one line that doesn't hold the token."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub.constants
import pytest

from prerouter.core.errors import RecipeError, StageError
from prerouter.publishing.hub import hub_token, push_dataset

from .hub_server import running_hub

TOKEN = "hf_secretsecretsecret"
CARD = b"---\ntags:\n- prerouter\n- routing\n---\n# Traces\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    for name in ("README.md", "report.json", "examples/train-00000.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"content of {name}".encode())
    return folder


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is a network to the Hub's client."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)


@pytest.mark.usefixtures("online")
def test_a_push_is_one_commit_and_old_shards_go(folder: Path) -> None:
    before = {
        "README.md": CARD,
        "examples/train-00000.parquet": b"old",
        "examples/train-00001.parquet": b"old",
        "traces/train-00000.parquet": b"old",
        "notes.txt": b"somebody's own",
        "examples/mine.parquet": b"somebody's own",
    }
    with running_hub(before, private=True) as hub:
        address = push_dataset(folder, "someone/traces", True, TOKEN, hub.endpoint)
    assert address.endswith("/datasets/someone/traces/commit/1")
    assert hub.commits == 1
    assert hub.created == []
    here = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    own = dict.fromkeys(("notes.txt", "examples/mine.parquet"), b"somebody's own")
    assert hub.files == here | own
    assert hub.keys == {f"Bearer {TOKEN}"}


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("private", [True, False])
def test_a_repository_that_is_not_there_is_made(folder: Path, private: bool) -> None:
    with running_hub() as hub:
        push_dataset(folder, "someone/traces", private, TOKEN, hub.endpoint)
    [created] = hub.created
    assert (created["name"], created["type"]) == ("traces", "dataset")
    assert created["visibility"] == ("private" if private else "public")
    assert "README.md" in hub.files


@pytest.mark.usefixtures("online")
def test_an_empty_repository_is_filled(folder: Path) -> None:
    # What a push leaves behind that was stopped after it had made the repository.
    with running_hub({".gitattributes": b"*.parquet filter=lfs"}) as hub:
        push_dataset(folder, "someone/traces", False, TOKEN, hub.endpoint)
    assert hub.commits == 1


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    "card", [b"someone's corpus", b"---\ntags:\n- text\n---\n", b"---\nlicense: mit\n---\n", None]
)
def test_a_repository_of_somebody_elses_is_left_alone(folder: Path, card: bytes | None) -> None:
    before = {"examples/train-00000.parquet": b"precious", "train.csv": b"a"}
    before |= {"README.md": card} if card else {}
    with running_hub(dict(before)) as hub:
        with pytest.raises(StageError, match=r"holds \d files .*no card of prerouter's"):
            push_dataset(folder, "someone/traces", False, TOKEN, hub.endpoint)
        assert (hub.files, hub.commits, hub.created) == (before, 0, [])


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("there", [True, False])
def test_a_repository_of_another_visibility_is_left_alone(folder: Path, there: bool) -> None:
    with running_hub({"README.md": CARD}, private=there) as hub:
        seen = "private" if there else "public"
        with pytest.raises(StageError, match=f"is {seen} on the Hub, and dataset.private is"):
            push_dataset(folder, "someone/traces", not there, TOKEN, hub.endpoint)
        assert hub.commits == 0


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_hub_that_refuses_is_a_line_without_the_token(folder: Path, status: int) -> None:
    with running_hub(refuse=status) as hub, pytest.raises(StageError) as told:
        push_dataset(folder, "someone/traces", False, TOKEN, hub.endpoint)
    assert "someone/traces: the Hub did not take it" in told.value.line
    assert str(status) in told.value.line
    assert TOKEN not in told.value.line
    assert hub.commits == 0


@pytest.mark.usefixtures("online")
def test_no_hub_is_a_line(folder: Path) -> None:
    with running_hub() as hub:
        endpoint = hub.endpoint
    with pytest.raises(StageError, match="the Hub did not take it"):
        push_dataset(folder, "someone/traces", False, TOKEN, endpoint)


def test_offline_is_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(StageError, match=r"someone/traces: the Hub did not take it: .*offline"):
        push_dataset(folder, "someone/traces", False, TOKEN, "http://127.0.0.1:1")


def test_a_name_that_the_hub_does_not_take_is_a_line(folder: Path) -> None:
    with pytest.raises(StageError, match=r"a\.\.b/c: the Hub did not take it"):
        push_dataset(folder, "a..b/c", False, TOKEN, "http://127.0.0.1:1")


def test_a_folder_without_a_card_is_not_pushed(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is no data set's folder"):
        push_dataset(tmp_path, "someone/traces", False, TOKEN, "http://127.0.0.1:1")


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_token_is_asked_for(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("HF_TOKEN", value)
    with pytest.raises(RecipeError, match=r"HF_TOKEN: is not set.*export HF_TOKEN"):
        hub_token()


def test_the_token_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f" {TOKEN}\n")
    assert hub_token() == TOKEN
