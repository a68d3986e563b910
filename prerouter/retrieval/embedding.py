"""Texts as vectors, by sentence-transformers, kept on disk by what they depend on."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prerouter.core.errors import InputError
from prerouter.recipe.engine import Dtype
from prerouter.retrieval.models import (
    identity,
    load_encoder,
    sentence_transformers_missing,
    windows,
)
from prerouter.retrieval.tokens import tokenizer_starts

# Changes with the way in which this file makes vectors of a model's outputs.
_METHOD = "mean of windows, 1"


class SentenceEmbedder:
    """A sentence-transformers model. Vectors are float32 of length 1.

    A text longer than the model reads is read in windows that end with sentences, and its vector is
    the mean of theirs, weighted by their tokens: cut off, most of a chunk of 600 tokens would be
    unknown to a model that reads 256.
    """

    def __init__(
        self,
        name: str,
        revision: str | None = None,
        batch_size: int = 32,
        dtype: Dtype = "float32",
    ) -> None:
        try:
            from sentence_transformers import SentenceTransformer
        except ImportError:
            raise sentence_transformers_missing() from None
        self._model = load_encoder(SentenceTransformer, name, revision, dtype)
        self._name = name
        self._batch_size = batch_size
        self._starts = tokenizer_starts(self._model.tokenizer.backend_tokenizer)
        special = self._model.tokenizer.num_special_tokens_to_add()
        self._window = max(1, (self._model.max_seq_length or 512) - special)
        weights = identity(name, revision, self._model)
        self.identity = f"{weights}; {_METHOD}" + ("" if dtype == "float32" else f"; {dtype}")
        self.question = lru_cache(maxsize=16)(self._question)

    def documents(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Shape (texts, dimensions). Raises InputError where the model gives no numbers."""
        if not texts:
            return np.zeros((0, self._model.get_embedding_dimension() or 0), dtype=np.float32)
        pieces = [windows(text, self._window, self._starts) for text in texts]
        flat = self._model.encode_document(
            [text for each in pieces for text, _ in each],
            batch_size=self._batch_size,
            show_progress_bar=False,
            normalize_embeddings=True,
        )
        weights = np.array([length for each in pieces for _, length in each], dtype=np.float32)
        firsts = np.cumsum([0, *(len(each) for each in pieces[:-1])])
        return self._unit(np.add.reduceat(flat * weights[:, None], firsts, axis=0))

    def _question(self, text: str) -> NDArray[np.float32]:
        vector = self._model.encode_query([text], show_progress_bar=False)
        first: NDArray[np.float32] = self._unit(vector)[0]
        return first

    def _unit(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths) & (lengths > 0)).all():
            raise InputError(
                self._name, "gives vectors that are not numbers", "finite ones", "check its weights"
            )
        return np.asarray(vectors / lengths, dtype=np.float32)


class VectorCache:
    """Arrays in a folder, one .npy file a key, renamed into place when whole; None keeps nothing.

    A file that can't be read as what it should be is made anew.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def get(
        self, key: str, rows: int, make: Callable[[], NDArray[np.float32]]
    ) -> NDArray[np.float32]:
        """What `make` gives, or what it gave for `key` before: `rows` float32 vectors."""
        if self._folder is None:
            return make()
        path = self._folder / f"{key}.npy"
        with contextlib.suppress(OSError, ValueError, EOFError):
            found: NDArray[np.float32] = np.load(path, allow_pickle=False)
            if found.dtype == np.float32 and found.ndim == 2 and len(found) == rows:
                return found
        vectors = make()
        self._folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=self._folder, suffix=".partial", delete=False) as file:
            np.save(file, vectors, allow_pickle=False)
        os.replace(file.name, path)
        return vectors
