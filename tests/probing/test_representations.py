from __future__ import annotations

import hashlib
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from prerouter.core.errors import InputError, RecipeError
from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Message
from prerouter.engines.batches import PromptState
from prerouter.probing import representations
from prerouter.probing.representations import (
    NOT_FINITE,
    StateReader,
    States,
    model_folder,
    prompt_key,
    read_states,
)

LAYERS = 4


class Reader:
    """States made of a prompt's text, last prompt first; those with "long" in them don't fit."""

    layers = LAYERS

    def __init__(self, fails_after: int | None = None) -> None:
        self.read: list[str] = []
        self._fails_after = fails_after

    def prompt_states(
        self,
        requests: Sequence[GenerationRequest],
        thinking: bool = False,
        choices: Sequence[str] = (),
    ) -> Generator[tuple[int, Any], None, None]:
        for index in reversed(range(len(requests))):
            if self._fails_after is not None and len(self.read) >= self._fails_after:
                raise KeyboardInterrupt
            text = requests[index].messages[0].content
            self.read.append(text)
            if "long" in text:
                yield index, PromptState(error="prompt too long")
            else:
                scores = tuple(-float(len(text + choice)) for choice in choices)
                yield index, PromptState(state_of(text), scores)


def state_of(text: str) -> np.ndarray:
    digest = hashlib.sha256(text.encode()).digest()
    row = np.frombuffer(digest[:6], dtype=np.uint8).astype(np.float32)
    states = np.stack([row + 1000 * layer for layer in range(LAYERS + 1)])
    if "overflow" in text:
        states[LAYERS - 1, 2] = np.inf
    return states


def prompts(*texts: str) -> list[tuple[Message, ...]]:
    return [(Message(role="user", content=text),) for text in texts]


def read(
    folder: Path,
    texts: Sequence[str],
    layer: str | int,
    reader: StateReader | None,
    choices: Sequence[str] = (),
) -> States:
    def start() -> StateReader:
        assert reader is not None, "a model was loaded"
        return reader

    return read_states(folder, prompts(*texts), layer, start, lambda steps: None, choices=choices)


TEXTS = ["one", "two", "three", "two"]


def test_states_are_in_the_order_of_the_prompts(tmp_path: Path) -> None:
    reader = Reader()
    found = read(tmp_path, TEXTS, "penultimate", reader)
    assert list(found.vectors) == [LAYERS - 1]
    expected = np.stack([state_of(text)[LAYERS - 1] for text in TEXTS])
    assert np.array_equal(found.vectors[LAYERS - 1], expected)
    assert found.vectors[LAYERS - 1].dtype == np.float32
    assert found.known.all()
    # The prompt that stands twice is read once.
    assert (len(reader.read), found.computed, found.layers) == (3, 3, LAYERS)


def test_a_second_time_no_model_is_loaded(tmp_path: Path) -> None:
    first = read(tmp_path, TEXTS, "all", Reader())
    again = read(tmp_path, TEXTS, "all", None)
    assert again.computed == 0
    assert sorted(again.vectors) == [*range(LAYERS + 1)]
    for layer, vectors in first.vectors.items():
        assert np.array_equal(vectors, again.vectors[layer])
    # What all layers hold, one layer needs nothing more for.
    assert read(tmp_path, ["two"], 0, None).computed == 0
    assert read(tmp_path, ["two"], "penultimate", None).computed == 0


def test_only_what_is_new_is_read(tmp_path: Path) -> None:
    read(tmp_path, TEXTS, "penultimate", Reader())
    reader = Reader()
    found = read(tmp_path, ["four", *TEXTS], "penultimate", reader)
    assert reader.read == ["four"]
    assert np.array_equal(found.vectors[LAYERS - 1][0], state_of("four")[LAYERS - 1])
    other_layer = Reader()
    read(tmp_path, ["one"], 1, other_layer)
    assert other_layer.read == ["one"]


def test_choices_are_kept_with_the_states(tmp_path: Path) -> None:
    texts, choices = ["one", "too long", "three"], ["RAG", "LC"]
    read(tmp_path, texts, "penultimate", Reader())
    reader = Reader()
    for each in (reader, None):
        found = read(tmp_path, texts, "penultimate", each, choices)
        assert found.log_probabilities.tolist() == [[-6, -5], [0, 0], [-8, -7]]
    # States without them were there; a prompt that can't be read isn't tried again.
    assert sorted(reader.read) == ["one", "three"]


class Fussy(Reader):
    """Has no room for a prompt with a choice behind it."""

    def prompt_states(
        self,
        requests: Sequence[GenerationRequest],
        thinking: bool = False,
        choices: Sequence[str] = (),
    ) -> Generator[tuple[int, Any], None, None]:
        if not choices:
            yield from super().prompt_states(requests, thinking)
            return
        for index, request in enumerate(requests):
            self.read.append(request.messages[0].content)
            yield index, PromptState(error="prompt too long")


def test_what_has_no_room_beside_choices_is_read_without_them(tmp_path: Path) -> None:
    assert not read(tmp_path, ["one", "two"], "all", Fussy(), ["RAG", "LC"]).known.any()
    reader = Fussy()
    assert read(tmp_path, ["one", "two"], "all", reader).known.all()
    assert sorted(reader.read) == ["one", "two"]
    # Both are kept: neither is tried once more.
    assert read(tmp_path, ["one", "two"], "all", None).known.all()
    beside = read(tmp_path, ["one", "two"], "all", None, ["RAG", "LC"])
    assert beside.errors == {0: "prompt too long", 1: "prompt too long"}


def test_what_was_read_before_a_stop_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(representations, "SHARD", 2)
    texts = [f"prompt {number}" for number in range(6)]
    with pytest.raises(KeyboardInterrupt):
        read(tmp_path, texts, "penultimate", Reader(fails_after=5))
    reader = Reader()
    found = read(tmp_path, texts, "penultimate", reader)
    assert sorted(reader.read) == texts[4:]
    expected = np.stack([state_of(text)[LAYERS - 1] for text in texts])
    assert np.array_equal(found.vectors[LAYERS - 1], expected)


def test_a_prompt_without_a_state_is_missing_with_its_reason(tmp_path: Path) -> None:
    texts = ["one", "too long", "overflow", "two"]
    for reader in (Reader(), None):
        found = read(tmp_path, texts, "penultimate", reader)
        assert found.known.tolist() == [True, False, False, True]
        assert found.errors == {1: "prompt too long", 2: NOT_FINITE}
    nothing = read(tmp_path / "other", ["too long"], "all", Reader())
    assert not nothing.known.any()
    assert len(nothing.vectors) == LAYERS + 1


def test_a_layer_that_the_model_lacks_is_refused(tmp_path: Path) -> None:
    assert list(read(tmp_path, ["one"], LAYERS, Reader()).vectors) == [LAYERS]
    for reader in (Reader(), None):
        with pytest.raises(RecipeError, match="of a model with 4 layers; 0"):
            read(tmp_path, ["one"], LAYERS + 1, reader)


def test_a_broken_file_is_told_of(tmp_path: Path) -> None:
    read(tmp_path, TEXTS, "all", Reader())
    (path,) = tmp_path.glob("*.safetensors")
    path.write_bytes(path.read_bytes()[:20])
    with pytest.raises(InputError, match=r"states-0000\.safetensors: can't be read"):
        read(tmp_path, TEXTS, "all", Reader())


def test_keys_tell_roles_and_texts_apart() -> None:
    keys = {
        prompt_key([Message(role="user", content="ab")]),
        prompt_key([Message(role="system", content="ab")]),
        prompt_key([Message(role="user", content="a"), Message(role="user", content="b")]),
        prompt_key([Message(role="user", content="\ud800")]),
    }
    assert len(keys) == 4


def test_folders_tell_models_apart(tmp_path: Path) -> None:
    one = {"identity": "a", "dtype": "float32", "thinking": False}
    folders = {model_folder(tmp_path, one | change) for change in ({}, {"dtype": "bfloat16"})}
    assert len(folders) == 2
    assert model_folder(tmp_path, dict(reversed(one.items()))) in folders
