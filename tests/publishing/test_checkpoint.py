from __future__ import annotations

import json
import math
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from safetensors.numpy import save_file

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import RouterConfig, read_router, write_router
from prerouter.publishing.weights import checkpoint_sha256
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


def _weights(content: bytes) -> Callable[[Path], None]:
    return _add("model.safetensors", content)


def _safetensors(header: Any, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def _tensor(shape: Any, offsets: Any, dtype: str = "F32") -> dict[str, Any]:
    return {"weight": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}


def _sparse(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(65_000_000_000)


def _pipe(folder: Path) -> None:
    os.mkfifo(folder / "more.json")


HOSTILE: dict[str, tuple[Callable[[Path], None], str]] = {
    "no router.json": (lambda f: (f / "router.json").unlink(), "model without router.json"),
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
    "kernel": (_edit("config.json", attn_implementation="evil/kernel"), "asks for code"),
    "set kernel": (_edit("config.json", _attn_implementation="evil/kernel"), "asks for code"),
    "experts": (_edit("config.json", experts_implementation="evil/kernel"), "asks for code"),
    "hidden weights": (
        _edit("config.json", transformers_weights=".cache/evil.bin"),
        "asks for code or files",
    ),
    "adapter": (
        _add("adapter_config.json", b'{"base_model_name_or_path": "evil/model"}'),
        "adapter",
    ),
    "pipe": (_pipe, "is no file"),
    "10^9 layers": (_edit("config.json", num_hidden_layers=10**9), "1000 at most"),
    "10^9 wide": (_edit("config.json", hidden_size=10**9), "at most"),
    "10^9 wide inside": (_edit("config.json", text_config=[{"vocab_size": 1e9}]), "at most"),
    "-10^9 experts": (_edit("config.json", num_experts=-(10**9)), "at most"),
    "endless number": (_edit("config.json", initializer_range=math.inf), "at most"),
    "NaN in the config": (_edit("config.json", initializer_range=math.nan), "at most"),
    "NaN threshold": (_edit("router.json", threshold=math.nan), "threshold"),
    "endless threshold": (_edit("router.json", threshold=math.inf), "threshold"),
    "NaN temperature": (_edit("router.json", temperature=math.nan), "temperature"),
    "long reply": (_edit("router.json", max_tokens=10**9), "max_tokens"),
    "another's threshold": (_edit("router.json", threshold_for="ab" * 32), "fitted to checkpoint"),
    "long template": (
        lambda f: (f / "chat_template.jinja").write_text("x" * 1_000_001),
        "1000000 at most",
    ),
    "huge tokenizer": (
        lambda f: os.truncate(f / "tokenizer.json", 64_000_001),
        "64000000 at most",
    ),
    "huge weights": (_sparse, "64000000000 at most"),
    "empty weights": (_weights(b""), "has a header of 0 bytes"),
    "endless header": (_weights(_safetensors({}, length=2**63)), "has a header of 9223"),
    "long header": (_weights(_safetensors({}, length=15_000_000)), "has a header of 15000000"),
    "no header": (_weights(_safetensors(b"{]")), "can't be read"),
    "deep header": (_weights(_safetensors(b"[" * 200_000)), "can't be read"),
    "header of a list": (_weights(_safetensors([1])), "can't be read"),
    "tensor of nothing": (_weights(_safetensors({"weight": None})), "can't be read"),
    "more than there is": (_weights(_safetensors(_tensor([10**9], [0, 4]), b"0000")), "agree"),
    "beyond the end": (_weights(_safetensors(_tensor([2], [0, 8]), b"0000")), "agree"),
    "turned offsets": (_weights(_safetensors(_tensor([1], [8, 4]), b"00000000")), "agree"),
    "negative": (_weights(_safetensors(_tensor([-1, -1], [0, 4]), b"0000")), "whole number"),
    "half": (_weights(_safetensors(_tensor([0.5, 2], [0, 4]), b"0000")), "whole number"),
    "true": (_weights(_safetensors(_tensor([True], [0, 4]), b"0000")), "whole number"),
    "own type": (_weights(_safetensors(_tensor([1], [0, 4], "PICKLE"), b"0000")), "can't be read"),
    "undescribed": (_weights(_safetensors(_tensor([1], [0, 4]), b"0000evil")), "other bytes"),
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


def test_a_threshold_is_bound_to_the_checkpoint_it_was_fitted_to(
    model_dir: Path, config: RouterConfig, tmp_path: Path
) -> None:
    weights = file_sha256(model_dir / "model.safetensors")
    fitted = config.model_copy(update={"threshold": 0.3, "threshold_for": weights})
    folder = write_router(model_dir, tmp_path / "router", fitted, "# card\n")
    assert read_router(folder).checkpoint == weights
    # Trained again: other weights, and the threshold of before.
    save_file({"weight": np.ones((2, 3), np.float32)}, model_dir / "model.safetensors")
    with pytest.raises(CheckpointError, match="fitted to checkpoint"):
        write_router(model_dir, tmp_path / "again", fitted, "# card\n")
    assert not (tmp_path / "again").exists()


def test_several_weights_files_are_one_checkpoint() -> None:
    files = {"b.safetensors": "2" * 64, "a.safetensors": "1" * 64, "config.json": "3" * 64}
    name = checkpoint_sha256(files)
    assert name == checkpoint_sha256(dict(sorted(files.items())))
    assert name != checkpoint_sha256({**files, "a.safetensors": "4" * 64})
    assert name == checkpoint_sha256({**files, "config.json": "5" * 64})


OTHER_FOLDERS = {
    "trees": ("route/routers/decision_tree", "model.skops", "holds a tree or a forest"),
    "stage": ("publish", "manifest.json", "is a stage's folder"),
    "model": ("train/model", "config.json", "is a model without router.json"),
    "run": ("", "recipe.yaml", "is the folder of a run"),
}


@pytest.mark.parametrize("name", OTHER_FOLDERS)
@pytest.mark.parametrize("published", [True, False])
def test_another_folder_is_told_for_what_it_is_and_where_the_router_lies(
    name: str, published: bool, router: Path, tmp_path: Path
) -> None:
    place, file, message = OTHER_FOLDERS[name]
    target = tmp_path / "run" / "publish" / "router"
    if published:
        shutil.copytree(router, target)
    folder = tmp_path / "run" / place
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_text("x")
    with pytest.raises(CheckpointError) as refused:
        read_router(folder)
    if published:
        assert message in refused.value.line
        assert f"give {target}" in refused.value.line
    elif name != "run":
        assert message in refused.value.line
        assert "run `prerouter publish RECIPE` first" in refused.value.line
