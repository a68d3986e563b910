from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from prerouter.core.errors import InputError
from prerouter.retrieval.embedding import SentenceEmbedder, VectorCache

SENTENCE = "the ferry sailed at noon. "


@pytest.fixture(scope="module")
def embedder(tiny_embedding: Path) -> SentenceEmbedder:
    return SentenceEmbedder(str(tiny_embedding))


def test_vectors_are_the_models_own_at_length_one(tiny_embedding: Path) -> None:
    from sentence_transformers import SentenceTransformer

    texts = ["the ferry", "sailed at noon", "9"]
    own = SentenceTransformer(str(tiny_embedding), device="cpu").encode(
        texts, normalize_embeddings=True
    )
    embedder = SentenceEmbedder(str(tiny_embedding))
    assert embedder.documents(texts) == pytest.approx(own, abs=1e-5)
    assert embedder.question("the ferry") == pytest.approx(own[0], abs=1e-5)
    assert embedder.documents([]).shape == (0, 16)


def test_the_end_of_a_long_text_counts(embedder: SentenceEmbedder) -> None:
    # The model reads 62 characters; the texts differ after 63.
    begin = SENTENCE * 3
    vectors = embedder.documents([begin + "zzz.", begin + "000.", begin + "zzz."])
    assert np.array_equal(vectors[0], vectors[2])
    assert not np.allclose(vectors[0], vectors[1], atol=1e-3)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)


def test_a_long_text_is_the_weighted_mean_of_its_windows(embedder: SentenceEmbedder) -> None:
    # Sentences of 21 characters without their spaces: two fit a window of 62, the third does not
    # pass it, the fourth begins another.
    whole = embedder.documents([SENTENCE * 3 + "zzz."])[0]
    first, second = embedder.documents([SENTENCE * 2, SENTENCE + "zzz."])
    expected = 42 * first + 25 * second
    assert whole == pytest.approx(expected / np.linalg.norm(expected), abs=1e-4)


@pytest.mark.parametrize("text", ["", "   ", "日本語", "\U0001f600", "x" * 500])
def test_any_text_has_a_vector(embedder: SentenceEmbedder, text: str) -> None:
    assert np.linalg.norm(embedder.documents([text])) == pytest.approx(1)


def test_gte_loads_without_code_of_its_own(tiny_gte: Path) -> None:
    assert SentenceEmbedder(str(tiny_gte)).documents(["the ferry"]).shape == (1, 16)


def test_a_model_that_brings_code_is_refused_and_its_code_not_run(
    tiny_gte: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_gte, folder)
    # As the original repository of gte-multilingual-base has it.
    config = next(path for path in folder.rglob("config.json") if "model_type" in path.read_text())
    keys = json.loads(config.read_text())
    keys["model_type"] = "new"
    keys["auto_map"] = {"AutoConfig": "configuration.NewConfig", "AutoModel": "modeling.NewModel"}
    config.write_text(json.dumps(keys))
    ran = tmp_path / "ran"
    for name in ("configuration.py", "modeling.py"):
        (config.parent / name).write_text(f"open({str(ran)!r}, 'w').close()\n")
    with pytest.raises(InputError, match="code of its own, which is never run"):
        SentenceEmbedder(str(folder))
    assert not ran.exists()


def test_a_foreign_module_is_refused(tiny_embedding: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_embedding, folder)
    modules = json.loads((folder / "modules.json").read_text())
    modules[1]["type"] = "subprocess.Popen"
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(InputError, match="code of its own"):
        SentenceEmbedder(str(folder))


def test_weights_as_pickles_are_not_read(tiny_embedding: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_embedding, folder)
    weights = next(folder.rglob("model.safetensors"))
    weights.rename(weights.with_name("pytorch_model.bin"))
    with pytest.raises(InputError, match=r"safetensors"):
        SentenceEmbedder(str(folder))


@pytest.mark.parametrize("name", ["no/such-model-anywhere", "embedded:nothing"])
def test_a_model_that_is_not_there_is_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(InputError) as caught:
        SentenceEmbedder(name)
    assert caught.value.line.startswith(f"{name}: ")


def test_a_vector_of_no_numbers_is_an_error(tiny_embedding: Path, tmp_path: Path) -> None:
    from safetensors.numpy import load_file, save_file

    folder = tmp_path / "model"
    shutil.copytree(tiny_embedding, folder)
    weights = next(folder.rglob("model.safetensors"))
    tensors = load_file(weights)
    save_file({name: np.full_like(it, np.nan) for name, it in tensors.items()}, weights)
    with pytest.raises(InputError, match="not numbers"):
        SentenceEmbedder(str(folder)).documents(["the ferry"])


def test_the_identity_is_of_the_files_and_not_of_their_place(
    tiny_embedding: Path, tiny_gte: Path, tmp_path: Path, embedder: SentenceEmbedder
) -> None:
    copied = tmp_path / "elsewhere"
    shutil.copytree(tiny_embedding, copied)
    assert SentenceEmbedder(str(copied)).identity == embedder.identity
    assert SentenceEmbedder(str(tiny_gte)).identity != embedder.identity


def test_the_cache_makes_each_key_once_and_keeps_the_exact_numbers(tmp_path: Path) -> None:
    made: list[str] = []
    vectors = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)

    def make(name: str) -> np.ndarray:
        made.append(name)
        return vectors

    for _ in range(2):
        for name in ("a", "b"):
            found = VectorCache(tmp_path).get(name, 3, lambda name=name: make(name))
            assert np.array_equal(found, vectors)
    assert made == ["a", "b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npy", "b.npy"]


@pytest.mark.parametrize(
    "content", [b"", b"torn", b"\x93NUMPY\x01\x00", "objects", "other rows"], ids=repr
)
def test_an_unusable_cache_file_is_made_anew(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "key.npy"
    if content == "objects":
        np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    elif content == "other rows":
        np.save(path, np.zeros((2, 4), dtype=np.float32))
    else:
        assert isinstance(content, bytes)
        path.write_bytes(content)
    vectors = np.ones((3, 4), dtype=np.float32)
    assert np.array_equal(VectorCache(tmp_path).get("key", 3, lambda: vectors), vectors)
    assert np.array_equal(np.load(path), vectors)


def test_without_a_folder_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    VectorCache(None).get("key", 1, lambda: np.ones((1, 2), dtype=np.float32))
    assert list(tmp_path.iterdir()) == []
