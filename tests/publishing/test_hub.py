"""A push is one commit of what changed, or an error in one line that doesn't hold the token; what
was pushed is fetched back whole. The client is the real one, over HTTP to a Hub on loopback."""

from __future__ import annotations

import json
import types
from pathlib import Path

import huggingface_hub.constants
import huggingface_hub.utils._http
import pytest
from huggingface_hub import ModelCard, hf_hub_download, snapshot_download

from prerouter.core.errors import RecipeError, StageError
from prerouter.publishing import hub as hub_module
from prerouter.publishing.checkpoint import RouterConfig, read_router, write_router
from prerouter.publishing.hub import Parcel, Pushed, hub_token, push

from .hub_server import Fault, HubServer, running_hub

TOKEN = "hf_secretsecretsecret"
CARD = b"---\nlicense: mit\ntags:\n- prerouter\n- routing\n---\n# Traces\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "hub"
    for name in ("README.md", "report.json", "examples/train-00000.parquet"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(f"content of {name}".encode())
    (folder / "README.md").write_bytes(CARD)
    return folder


@pytest.fixture
def router(model_dir: Path, tmp_path: Path, config: RouterConfig) -> Path:
    reports = {"evaluation/plane.png": b"\x89PNG picture", "training/losses.csv": b"Step,Loss\n"}
    return write_router(model_dir, tmp_path / "router", config, CARD.decode(), None, reports)


@pytest.fixture
def online(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is a network to the Hub's client; it uploads by LFS, and does not wait to retry."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
    at_once = types.SimpleNamespace(sleep=lambda seconds: None)
    monkeypatch.setattr(huggingface_hub.utils._http, "time", at_once)


def push_dataset(folder: Path, hub: HubServer, private: bool = False) -> Pushed:
    return push(Parcel("dataset", folder, "someone/traces", private), TOKEN, hub.endpoint)


def push_router(folder: Path, hub: HubServer, private: bool = False) -> Pushed:
    return push(Parcel("model", folder, "someone/router", private), TOKEN, hub.endpoint)


def contents(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


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
        pushed = push_dataset(folder, hub, private=True)
    assert "/datasets/someone/router/commit/" in pushed.address
    assert pushed.changed
    assert (hub.commits, hub.created) == (1, [])
    own = dict.fromkeys(("notes.txt", "examples/mine.parquet"), b"somebody's own")
    assert hub.files == contents(folder) | own
    assert hub.keys <= {f"Bearer {TOKEN}", ""}


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("private", [True, False])
def test_a_repository_that_is_not_there_is_made(folder: Path, private: bool) -> None:
    with running_hub() as hub:
        push_dataset(folder, hub, private)
    [created] = hub.created
    assert (created["name"], created["type"]) == ("traces", "dataset")
    assert created["visibility"] == ("private" if private else "public")
    assert "README.md" in hub.files


@pytest.mark.usefixtures("online")
def test_an_empty_repository_is_filled(folder: Path) -> None:
    # What a push leaves behind that was stopped after it had made the repository.
    with running_hub({".gitattributes": b"*.parquet filter=lfs"}) as hub:
        push_dataset(folder, hub)
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
            push_dataset(folder, hub)
        assert (hub.files, hub.commits, hub.created) == (before, 0, [])


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("there", [True, False])
def test_a_repository_of_another_visibility_is_left_alone(router: Path, there: bool) -> None:
    with running_hub({"README.md": CARD}, private=there) as hub:
        seen = "private" if there else "public"
        with pytest.raises(StageError, match=f"is {seen} on the Hub, and publish.private is"):
            push_router(router, hub, private=not there)
        assert hub.commits == 0


@pytest.mark.usefixtures("online")
def test_a_router_is_fetched_back_as_it_was_pushed(router: Path, tmp_path: Path) -> None:
    with running_hub() as hub:
        pushed = push_router(router, hub)
        assert pushed.address == f"{hub.endpoint}/someone/router/commit/{hub.head}"
        fetched = snapshot_download(
            "someone/router", local_dir=tmp_path / "fetched", endpoint=hub.endpoint, token=TOKEN
        )
        card = hf_hub_download(
            "someone/router", "README.md", local_dir=tmp_path / "card", endpoint=hub.endpoint
        )
    assert [created["type"] for created in hub.created] == ["model"]
    assert hub.commits == 1
    assert hub.calls.count("upload") == 2  # the weights and the picture
    there = contents(Path(fetched))
    assert {name: there[name] for name in contents(router)} == contents(router)
    assert read_router(Path(fetched)) == read_router(router)
    assert ModelCard.load(card).data.tags == ["prerouter", "routing"]


@pytest.mark.usefixtures("online")
def test_a_push_again_sends_what_changed_and_takes_away_what_went(router: Path) -> None:
    with running_hub() as hub:
        first = push_router(router, hub)
        again = push_router(router, hub)
        assert (first.changed, again.changed) == (True, False)
        assert again.address == first.address
        uploads = hub.calls.count("upload")
        (router / "README.md").write_bytes(CARD + b"Mended.\n")
        (router / "training" / "losses.csv").unlink()
        assert push_router(router, hub).changed
    assert hub.commits == 2
    assert hub.committed[1] == ["training/losses.csv", "README.md"]
    assert hub.calls.count("upload") == uploads
    assert hub.files == contents(router) | {".gitattributes": hub.files[".gitattributes"]}


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("name", ["notes.txt", "checkpoint-1/model.safetensors", "handler.py"])
def test_what_keeps_a_router_from_being_loaded_is_told_before(router: Path, name: str) -> None:
    with running_hub({"README.md": CARD, name: b"mine"}) as hub:
        with pytest.raises(
            StageError, match=r"with which no router can be loaded.*remove it there"
        ):
            push_router(router, hub)
        assert (hub.commits, hub.files[name]) == (0, b"mine")


@pytest.mark.usefixtures("online")
def test_whoever_commits_in_between_is_not_written_over(
    router: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running_hub({"README.md": CARD}) as hub:
        asked = hub_module._check_ours

        def somebody_commits(*arguments: object) -> list[str]:
            hub.commits += 1
            return asked(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(hub_module, "_check_ours", somebody_commits)
        with pytest.raises(StageError, match=r"somebody made or changed .* 412"):
            push_router(router, hub)
        assert hub.files == {"README.md": CARD}


STATUSES = {
    401: "make one at https://huggingface.co/settings/tokens and export HF_TOKEN",
    403: "take a token with the right to write, or a name of your own",
    404: "run the same again",
    409: "somebody made or changed the repository",
    413: "too large for the Hub",
    429: "wait some minutes",
    500: "run the same again: what the Hub has already is not sent twice",
}
CALLS = ("info", "create", "validate", "preupload", "batch", "upload", "verify", "commit")


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    ("call", "status"),
    # 404 of a repository's own page is a repository that isn't there.
    [(call, status) for call in CALLS for status in STATUSES if (call, status) != ("info", 404)],
)
def test_a_call_that_is_refused_is_a_line_and_nothing_is_half_there(
    router: Path, call: str, status: int
) -> None:
    with running_hub(faults={call: Fault(status)}) as hub:
        with pytest.raises(StageError) as error:
            push_router(router, hub)
        line = error.value.line
        assert line.startswith("someone/router: the Hub did not take it")
        assert STATUSES[status] in line
        assert str(status) in line
        assert TOKEN not in line
        made = call not in ("info", "create")
        assert ("an empty repository, made just now" in line) is made
        assert ("what was there before, unchanged" in line) is not made
        assert hub.commits == 0
        hub.faults.clear()
        assert push_router(router, hub).changed
        assert hub.files.keys() >= contents(router).keys()


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize(
    "call", ["info", "create", "validate", "preupload", "batch", "upload", "verify"]
)
def test_a_connection_that_breaks_is_a_line_and_a_rerun_goes_on(router: Path, call: str) -> None:
    with running_hub(faults={call: Fault(drop=True)}) as hub:
        with pytest.raises(StageError, match=r"the connection broke.*; there now: .*run the same"):
            push_router(router, hub)
        assert hub.commits == 0
        hub.faults.clear()
        push_router(router, hub)
        assert hub.commits == 1


@pytest.mark.usefixtures("online")
def test_a_repository_may_stand_where_the_answer_to_its_making_is_lost(router: Path) -> None:
    with running_hub(faults={"create": Fault(after=True, times=1)}) as hub:
        with pytest.raises(StageError) as error:
            push_router(router, hub)
        told = "there now: nothing, or an empty repository, since the answer was lost"
        assert told in error.value.line
        assert len(hub.created) == 1
        assert push_router(router, hub).changed


@pytest.mark.usefixtures("online")
def test_what_was_uploaded_before_the_connection_broke_is_not_sent_again(router: Path) -> None:
    with running_hub(faults={"commit": Fault(drop=True)}) as hub:
        with pytest.raises(StageError, match=r"while committing .*the old state or the whole"):
            push_router(router, hub)
        assert (hub.calls.count("upload"), hub.commits) == (2, 0)
        hub.faults.clear()
        push_router(router, hub)
        assert (hub.calls.count("upload"), hub.commits) == (2, 1)


@pytest.mark.usefixtures("online")
def test_an_answer_that_is_lost_after_the_commit_is_found_by_a_rerun(router: Path) -> None:
    with running_hub(faults={"commit": Fault(after=True, times=1)}) as hub:
        with pytest.raises(StageError, match=r"since the answer was lost; run the same again"):
            push_router(router, hub)
        assert not push_router(router, hub).changed
        assert hub.commits == 1


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("call", ["upload", "batch", "verify", "preupload"])
@pytest.mark.parametrize("fault", [{"status": 503}, {"drop": True}])
def test_a_short_disturbance_is_got_over(
    router: Path, call: str, fault: dict[str, int | bool]
) -> None:
    with running_hub(faults={call: Fault(times=2, **fault)}) as hub:  # type: ignore[arg-type]
        assert push_router(router, hub).changed
    assert hub.files.keys() >= contents(router).keys()


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("call", ["info", "create", "validate", "preupload", "batch", "commit"])
def test_a_page_in_place_of_an_answer_is_a_line(router: Path, call: str) -> None:
    with running_hub(faults={call: Fault(page=True)}) as hub:
        with pytest.raises(StageError, match=r"its answer can't be read.*no page of a proxy's"):
            push_router(router, hub)
        assert hub.commits == 0


@pytest.mark.usefixtures("online")
def test_a_slow_hub_is_waited_for(router: Path) -> None:
    with running_hub(faults={"*": Fault(slow=0.05)}) as hub:
        assert push_router(router, hub).changed


@pytest.mark.usefixtures("online")
def test_a_token_that_the_hub_does_not_know_is_told(router: Path) -> None:
    with running_hub() as hub:
        hub.token = "hf_another"
        with pytest.raises(StageError, match=r"the token is not valid.*export HF_TOKEN") as told:
            push_router(router, hub)
        assert TOKEN not in told.value.line
        assert (hub.commits, hub.created) == (0, [])


@pytest.mark.usefixtures("online")
def test_a_card_that_the_hub_refuses_stops_the_push_before_any_upload(router: Path) -> None:
    (router / "README.md").write_bytes(CARD.replace(b"mit", b"my-own-licence"))
    with running_hub() as hub:
        with pytest.raises(StageError, match=r"Invalid metadata in README.md.*license.*mend what"):
            push_router(router, hub)
        assert "upload" not in hub.calls
        assert hub.commits == 0


@pytest.mark.usefixtures("online")
def test_what_the_hub_notes_of_a_card_is_handed_on(router: Path) -> None:
    (router / "README.md").write_bytes(CARD.replace(b"license: mit\n", b""))
    with running_hub() as hub:
        [note] = push_router(router, hub).notes
    assert "empty or missing license" in note


def test_a_file_over_the_limit_is_told_before_anything_is_sent(
    router: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_module, "MAX_FILE_BYTES", 100)
    with running_hub() as hub:
        with pytest.raises(StageError, match=r"has \S+ bytes; 100 a file on the Hub; nothing was"):
            push_router(router, hub)
        assert hub.calls == []


@pytest.mark.usefixtures("online")
def test_no_hub_is_a_line(folder: Path) -> None:
    with running_hub() as hub:
        pass
    with pytest.raises(StageError, match=r"the Hub did not take it: the connection broke"):
        push_dataset(folder, hub)


def test_offline_is_a_line(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with running_hub() as hub:
        with pytest.raises(StageError, match=r"the Hub did not take it: offline.*HF_HUB_OFFLINE"):
            push_dataset(folder, hub)
        assert hub.calls == []


def test_a_folder_without_a_card_is_not_pushed(tmp_path: Path) -> None:
    with pytest.raises(StageError, match="is no data set's folder"):
        push(Parcel("dataset", tmp_path, "someone/traces", False), TOKEN)


def test_what_a_client_left_in_a_folder_does_not_go_along(router: Path) -> None:
    (router / ".cache" / "huggingface").mkdir(parents=True)
    (router / ".cache" / "huggingface" / "x.lock").write_text("")
    parcel = Parcel("model", router, "someone/router", False)
    listed = set(json.loads((router / "router.json").read_text())["files"])
    reports = {"evaluation/plane.png", "training/losses.csv"}
    assert set(parcel.files) == listed | reports | {"README.md", "router.json"}


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
