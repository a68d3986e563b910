"""Prompt states that are read once: hidden states of a prompt's last token, kept as safetensors.

A folder holds what one model makes of prompts, `states-NNNN.safetensors` of up to 256 each. A
state's key is the hash of its rendered prompt, so a changed template, case or metadata setting is
another prompt, and rows that share prompts share states.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from prerouter.core.errors import InputError, RecipeError
from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import Message, MetadataSetting, RoutingCase, StudentMode
from prerouter.prompts.render import render_student, render_teacher
from prerouter.recipe.probe_router import ProbePrompt
from prerouter.recipe.teach import TeacherPrompt

SHARD = 256
NOT_FINITE = "the model's states are not numbers"
_NAME = "states-{:04d}.safetensors"
_CHOICES = "choices"
_BESIDE_CHOICES = "beside_choices"


class PromptState(Protocol):
    """What a model makes of one prompt: float32 vectors (layers + 1, hidden size), or why none."""

    @property
    def vectors(self) -> NDArray[np.float32] | None: ...

    @property
    def log_probabilities(self) -> tuple[float, ...]: ...

    @property
    def error(self) -> str | None: ...


class StateReader(Protocol):
    """A model whose layers can be read (`engines/transformers.py`)."""

    @property
    def layers(self) -> int: ...

    def prompt_states(
        self,
        requests: Sequence[GenerationRequest],
        thinking: bool = False,
        choices: Sequence[str] = (),
    ) -> Generator[tuple[int, Any], None, None]: ...


@dataclass(frozen=True)
class States:
    """`vectors` by layer, float32 (prompts, hidden size), and `log_probabilities` of the choices
    asked for, float64 (prompts, choices); zeros where `known` (prompts,) is False, and `errors`
    says why by the prompt's number. `computed` prompts were read anew."""

    vectors: dict[int, NDArray[np.float32]]
    log_probabilities: NDArray[np.float64]
    known: NDArray[np.bool_]
    errors: dict[int, str]
    layers: int
    computed: int


@dataclass
class _Shards:
    """Where each key's state lies: shard and row, or the error in its place. With choices behind it
    a prompt is longer: what failed so, `errors_beside`, may do without them."""

    layers: int | None = None
    places: dict[str, tuple[Path, int]] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    errors_beside: dict[str, str] = field(default_factory=dict)
    files: int = 0

    def failed(self, beside_choices: bool) -> dict[str, str]:
        return self.errors | self.errors_beside if beside_choices else self.errors


def render_prompt(
    case: RoutingCase, prompt: ProbePrompt, metadata: MetadataSetting, mode: StudentMode
) -> tuple[Message, ...]:
    """A case's prompt: the teacher's of one of the three paradigms, or the student's compact one,
    of which alone `mode` says something."""
    if prompt == "compact":
        return render_student(case, "compact", metadata, mode)
    return render_teacher(case, TeacherPrompt(paradigm=prompt, metadata=metadata))


def prompt_key(messages: Sequence[Message]) -> str:
    """SHA-256 (hex) of a rendered prompt."""
    turns = [[message.role, message.content] for message in messages]
    # A lone half of a character can stand in a question; it has no UTF-8 but its escape.
    return hashlib.sha256(json.dumps(turns).encode()).hexdigest()


def model_folder(root: Path, identity: Mapping[str, object]) -> Path:
    """The folder for what a model makes of prompts, by all that its states depend on."""
    text = json.dumps(identity, sort_keys=True)
    return root / hashlib.sha256(text.encode()).hexdigest()[:16]


def read_states(
    folder: Path,
    prompts: Sequence[Sequence[Message]],
    layer: str | int,
    start: Callable[[], StateReader],
    advance: Callable[[int], None],
    *,
    thinking: bool = False,
    choices: Sequence[str] = (),
) -> States:
    """States of `prompts`, in their order, from `folder` where they are there already. A prompt's
    `choices` depend on nothing but the prompt: they are no part of its key.

    `start` loads the model, and is called only where something is missing. Each 256 prompts are
    kept as soon as they are read: a killed study goes on from there. Raises RecipeError for a layer
    that the model lacks, InputError for a file that can't be read.
    """
    keys = [prompt_key(messages) for messages in prompts]
    shards = _open(folder)
    wanted = None if layer == "all" else layer
    stored = _stored_names(shards)
    failed = shards.failed(bool(choices))
    due = {
        key: messages
        for key, messages in zip(keys, prompts, strict=True)
        if key not in failed and not _holds(shards, stored, key, wanted, bool(choices))
    }
    advance(len(keys) - len(due))
    if due:
        reader = start()
        _chosen(wanted, reader.layers)
        order = [*due]
        for first in range(0, len(order), SHARD):
            block = order[first : first + SHARD]
            requests = [GenerationRequest(tuple(due[key])) for key in block]
            read: dict[int, PromptState] = {}
            for index, state in reader.prompt_states(requests, thinking, choices):
                read[index] = state
                advance(1)
            layers = _chosen(wanted, reader.layers)
            _write(folder, shards, block, read, layers, reader.layers, bool(choices))
    assert shards.layers is not None
    layers = _chosen(wanted, shards.layers)
    return _collect(shards, keys, layers, len(choices), len(due))


def _chosen(layer: int | str | None, layers: int) -> list[int]:
    """The numbers of the layers asked for, of a model with so many."""
    if layer is None:
        return [*range(layers + 1)]
    number = layers - 1 if layer == "penultimate" else int(layer)
    if number > layers:
        raise RecipeError(
            "layer", f"{number}, of a model with {layers} layers", f"0 (the embedding) to {layers}"
        )
    return [number]


def _open(folder: Path) -> _Shards:
    from safetensors import SafetensorError, safe_open

    shards = _Shards()
    for path in sorted(folder.glob("states-*.safetensors")):
        try:
            with safe_open(path, framework="np") as file:
                about = file.metadata() or {}
            keys, errors = json.loads(about["keys"]), json.loads(about["errors"])
            shards.layers = int(about["model_layers"])
        except (SafetensorError, KeyError, ValueError, OSError) as error:
            raise InputError(
                str(path), f"can't be read: {error}", next_step="delete it: it is read anew"
            ) from None
        shards.places |= {key: (path, row) for row, key in enumerate(keys)}
        # A shard that doesn't tell is an older one: what failed there is tried again.
        beside = about.get(_BESIDE_CHOICES, "yes") == "yes"
        (shards.errors_beside if beside else shards.errors).update(errors)
        shards.files += 1
    return shards


def _stored_names(shards: _Shards) -> dict[Path, set[str]]:
    from safetensors import safe_open

    stored = {}
    for path in {path for path, _ in shards.places.values()}:
        with safe_open(path, framework="np") as file:
            stored[path] = set(file.keys())
    return stored


def _holds(
    shards: _Shards, stored: dict[Path, set[str]], key: str, layer: int | str | None, chosen: bool
) -> bool:
    if key not in shards.places or shards.layers is None:
        return False
    names = {str(number) for number in _chosen(layer, shards.layers)}
    return names | ({_CHOICES} if chosen else set()) <= stored[shards.places[key][0]]


def _write(
    folder: Path,
    shards: _Shards,
    keys: Sequence[str],
    read: Mapping[int, PromptState],
    layers: Sequence[int],
    model_layers: int,
    beside_choices: bool,
) -> None:
    """Put a shard in place by one rename, and its keys among those known."""
    from safetensors.numpy import save_file

    good, rows, errors, chances = [], [], {}, []
    for index, key in enumerate(keys):
        vectors = read[index].vectors
        if vectors is None:
            errors[key] = read[index].error or NOT_FINITE
        elif not np.isfinite(vectors[list(layers)]).all():
            errors[key] = NOT_FINITE
        else:
            good.append(key)
            rows.append(vectors)
            chances.append(read[index].log_probabilities)
    tensors: dict[str, NDArray[Any]] = {
        str(layer): np.stack([row[layer] for row in rows]) for layer in layers if rows
    }
    if any(chances):
        tensors[_CHOICES] = np.array(chances, dtype=np.float64)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / _NAME.format(shards.files)
    partial = path.with_suffix(".partial")
    save_file(
        tensors,
        partial,
        metadata={
            "keys": json.dumps(good),
            "errors": json.dumps(errors),
            "model_layers": str(model_layers),
            _BESIDE_CHOICES: "yes" if beside_choices else "no",
        },
    )
    os.replace(partial, path)
    shards.files += 1
    shards.layers = model_layers
    shards.places |= {key: (path, row) for row, key in enumerate(good)}
    (shards.errors_beside if beside_choices else shards.errors).update(errors)


def _collect(
    shards: _Shards, keys: Sequence[str], layers: Sequence[int], choices: int, computed: int
) -> States:
    from safetensors import safe_open

    by_file: dict[Path, list[tuple[int, int]]] = {}
    errors, failed = {}, shards.failed(bool(choices))
    for index, key in enumerate(keys):
        if key in failed:
            errors[index] = failed[key]
        else:
            path, row = shards.places[key]
            by_file.setdefault(path, []).append((index, row))
    vectors: dict[int, NDArray[np.float32]] = {}
    chances = np.zeros((len(keys), choices))
    for path, pairs in sorted(by_file.items()):
        into, rows = (list(column) for column in zip(*pairs, strict=True))
        with safe_open(path, framework="np") as file:
            if choices:
                chances[into] = file.get_tensor(_CHOICES)[rows]
            for layer in layers:
                found = file.get_tensor(str(layer))
                if layer not in vectors:
                    vectors[layer] = np.zeros((len(keys), found.shape[1]), dtype=np.float32)
                vectors[layer][into] = found[rows]
    if not by_file:
        vectors = {layer: np.zeros((len(keys), 0), dtype=np.float32) for layer in layers}
    known = np.ones(len(keys), dtype=np.bool_)
    known[[*errors]] = False
    return States(vectors, chances, known, errors, shards.layers or 0, computed)
