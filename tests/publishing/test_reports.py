"""Pictures and tables beside a router: they go along, and nothing else may lie among them."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import CheckpointError
from prerouter.publishing.checkpoint import RouterConfig, read_router, write_router

REPORTS = {"evaluation/plane.png": b"picture", "training/losses.csv": b"Step,Loss\n1,2\n"}


@pytest.fixture
def folder(model_dir: Path, tmp_path: Path, config: RouterConfig) -> Path:
    return write_router(model_dir, tmp_path / "router", config, "# Card", None, REPORTS)


def test_reports_go_along_and_are_no_part_of_what_is_loaded(folder: Path) -> None:
    assert {name: (folder / name).read_bytes() for name in REPORTS} == REPORTS
    assert not set(REPORTS) & set(read_router(folder).files)


def test_a_router_published_again_keeps_nothing_of_the_earlier_one(
    folder: Path, model_dir: Path, config: RouterConfig
) -> None:
    write_router(model_dir, folder, config, "# Card", None, {"training/losses.csv": b"new"})
    assert not (folder / "evaluation").exists()
    assert (folder / "training" / "losses.csv").read_bytes() == b"new"


@pytest.mark.parametrize("name", ["model.pkl", "handler.py", "model.safetensors", "page.html"])
def test_only_pictures_and_tables_lie_there(folder: Path, name: str) -> None:
    (folder / "evaluation" / name).write_bytes(b"x")
    with pytest.raises(CheckpointError, match=rf"{name}: is no picture and no table"):
        read_router(folder)


def test_no_folder_and_no_link_lies_there(folder: Path, tmp_path: Path) -> None:
    (folder / "evaluation" / "more.png").mkdir()
    with pytest.raises(CheckpointError, match="is no picture and no table"):
        read_router(folder)
    (folder / "evaluation" / "more.png").rmdir()
    (tmp_path / "outside.png").write_bytes(b"x")
    (folder / "evaluation" / "more.png").symlink_to(tmp_path / "outside.png")
    with pytest.raises(CheckpointError, match="is no picture and no table"):
        read_router(folder)


def test_a_router_of_another_recipe_is_left_alone(
    folder: Path, model_dir: Path, config: RouterConfig
) -> None:
    before = (folder / "router.json").read_bytes()
    other = config.model_copy(
        update={"provenance": config.provenance.model_copy(update={"recipe": "another"})}
    )
    with pytest.raises(
        CheckpointError, match=r"holds the router of recipe 'quickstart'; a new name"
    ):
        write_router(model_dir, folder, other, "# Card")
    assert (folder / "router.json").read_bytes() == before
