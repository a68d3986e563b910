from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import RouterConfig, read_router, write_router
from prerouter.runs.rows import file_sha256


@pytest.fixture
def router(model_dir: Path, config: RouterConfig, tmp_path: Path) -> Path:
    return write_router(model_dir, tmp_path / "router", config, "# card\n", {"evaluation.json": {}})


def test_what_is_written_is_read_back(router: Path, config: RouterConfig) -> None:
    found = read_router(router)
    assert found.model_copy(update={"files": {}}) == config
    assert set(found.files) == {path.name for path in router.iterdir()} - {
        "router.json",
        "README.md",
    }
    assert {"evaluation.json", "model.safetensors"} <= set(found.files)


def test_a_card_may_be_mended_by_hand(router: Path) -> None:
    (router / "README.md").write_text("# mended on the Hub\n")
    read_router(router)


def test_files_that_no_router_needs_stay_behind(router: Path) -> None:
    assert not (router / "training_args.bin").exists()


def test_nothing_of_the_machine_is_in_the_folder(router: Path, tmp_path: Path) -> None:
    for path in router.glob("*.json"):
        text = path.read_text()
        assert "/home/someone" not in text
        assert str(tmp_path) not in text
        assert "is_local" not in text


def test_a_router_is_replaced_and_nothing_is_left_beside_it(
    router: Path, model_dir: Path, config: RouterConfig
) -> None:
    write_router(model_dir, router, config, "# second card\n")
    assert (router / "README.md").read_text() == "# second card\n"
    assert not (router / "evaluation.json").exists()
    assert sorted(path.name for path in router.parent.iterdir()) == ["exported", "router"]


def test_a_folder_of_something_else_is_left_alone(
    model_dir: Path, config: RouterConfig, tmp_path: Path
) -> None:
    target = tmp_path / "thesis"
    target.mkdir()
    (target / "chapter.txt").write_text("years of work")
    with pytest.raises(CheckpointError, match="is no router's folder"):
        write_router(model_dir, target, config, "# card\n")
    assert (target / "chapter.txt").read_text() == "years of work"


def test_a_failed_write_leaves_the_earlier_router(
    router: Path, model_dir: Path, config: RouterConfig
) -> None:
    (model_dir / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="weights in safetensors"):
        write_router(model_dir, router, config, "# second\n")
    assert (router / "README.md").read_text() == "# card\n"
    assert sorted(path.name for path in router.parent.iterdir()) == ["exported", "router"]


@pytest.mark.parametrize("name", ["../evil.json", "sub/x.json", "config.json", "code.py"])
def test_extra_files_have_names_of_their_own(
    name: str, model_dir: Path, config: RouterConfig, tmp_path: Path
) -> None:
    with pytest.raises(CheckpointError, match="file of its own"):
        write_router(model_dir, tmp_path / "router", config, "# card\n", {name: {}})


@pytest.mark.parametrize("value", ["/home/me/model", "./model", "~/model", "a/../b", "C:\\model"])
def test_a_local_path_is_no_base_model(value: str, config: RouterConfig) -> None:
    with pytest.raises(ValidationError, match="path of one machine"):
        RouterConfig.model_validate({**config.model_dump(), "base_model": value})


def _edit(name: str, **changes: Any) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
        if name != "router.json":
            _list(folder, name)

    return apply


def _list(folder: Path, name: str) -> None:
    """Make router.json agree with a changed file: hashes alone must not be what protects."""
    path = folder / "router.json"
    data = json.loads(path.read_text())
    data["files"][name] = file_sha256(folder / name)
    path.write_text(json.dumps(data))


def _add(name: str, content: bytes = b"x") -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / name).write_bytes(content)
        _list(folder, name)

    return apply


def _link_outside(folder: Path) -> None:
    outside = folder.parent / "outside.safetensors"
    shutil.move(folder / "model.safetensors", outside)
    (folder / "model.safetensors").symlink_to(outside)


def _shards(name: str) -> Callable[[Path], None]:
    def apply(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        path = folder / "router.json"
        data = json.loads(path.read_text())
        del data["files"]["model.safetensors"]
        path.write_text(json.dumps(data))
        index = {"weight_map": {"weight": name}}
        _add("model.safetensors.index.json", json.dumps(index).encode())(folder)

    return apply


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no router.json": (lambda f: (f / "router.json").unlink(), "router.json: is missing"),
    "no card": (lambda f: (f / "README.md").unlink(), "README.md: is missing"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "is missing"),
    "no generation config": (lambda f: (f / "generation_config.json").unlink(), "is missing"),
    "no chat template": (lambda f: (f / "chat_template.jinja").unlink(), "is missing"),
    "altered": (
        lambda f: (f / "chat_template.jinja").write_text("{{ evil }}"),
        "was altered",
    ),
    "unlisted": (lambda f: (f / "more.json").write_text("{}"), "is not listed"),
    "python": (_add("modeling_router.py"), "can carry code"),
    "torch pickle": (_add("pytorch_model.bin"), "can carry code"),
    "pt": (_add("optimizer.pt"), "can carry code"),
    "pth": (_add("rng_state.pth"), "can carry code"),
    "pkl": (_add("tree.pkl"), "can carry code"),
    "ckpt": (_add("last.ckpt"), "can carry code"),
    "double suffix": (_add("model.json.py"), "can carry code"),
    "no suffix": (_add("run"), "can carry code"),
    "link outside": (_link_outside, "link that leaves the folder"),
    "subfolder": (lambda f: (f / "sub").mkdir(), "is no file"),
    "auto_map": (_edit("config.json", auto_map={"AutoModel": "x.Y"}), "asks for code"),
    "nested auto_map": (_edit("config.json", text_config=[{"auto_map": {}}]), "asks for code"),
    "tokenizer code": (_edit("tokenizer_config.json", auto_map={}), "asks for code"),
    "remote code": (_edit("generation_config.json", trust_remote_code=True), "asks for code"),
    "traversal": (_edit("router.json", files={"../x": "0" * 64}), "no file name of the folder"),
    "absolute": (_edit("router.json", files={"/etc/passwd": "0" * 64}), "no file name"),
    "lists itself": (_edit("router.json", files={"router.json": "0" * 64}), "no file name"),
    "next format": (_edit("router.json", format_version=2), "format_version is 2"),
    "no format": (_edit("router.json", format_version=None), "format_version is None"),
    "other routes": (_edit("router.json", routes=["RAG"]), "other routes"),
    "turned routes": (_edit("router.json", routes=["LC", "RAG"]), "other routes"),
    "foreign route": (_edit("router.json", routes=["RAG", "LC", "X"]), "routes"),
    "unknown key": (_edit("router.json", script="x"), "script"),
    "huge": (lambda f: (f / "router.json").write_text(" " * 1_000_001), "1000000 at most"),
    "no JSON": (lambda f: (f / "router.json").write_text("{"), "can't be read as JSON"),
    "deep JSON": (lambda f: (f / "router.json").write_text("[" * 200_000), "read as JSON"),
    "a list": (lambda f: (f / "router.json").write_text("[]"), "no JSON object"),
    "bytes": (lambda f: (f / "router.json").write_bytes(b"\xff\xfe"), "can't be read as JSON"),
    "shard outside": (_shards("../outside.safetensors"), "no weights file here"),
    "shard of code": (_shards("config.json"), "no weights file here"),
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("verify", [True, False])
def test_a_folder_that_is_not_safe_is_refused_in_one_line(
    name: str, verify: bool, router: Path
) -> None:
    harm, message = HOSTILE[name]
    harm(router)
    if name == "altered" and not verify:
        assert read_router(router, verify=False)
        return
    with pytest.raises(CheckpointError) as refused:
        read_router(router, verify=verify)
    assert message in refused.value.line
    assert len(refused.value.line) < 1000


def test_what_git_and_the_hub_add_is_no_harm(router: Path) -> None:
    (router / ".gitattributes").write_text("*.safetensors filter=lfs\n")
    (router / ".git").mkdir()
    (router / ".git" / "hook.py").write_text("x")
    (router / ".cache").mkdir()
    read_router(router)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        read_router(tmp_path / "nowhere")
