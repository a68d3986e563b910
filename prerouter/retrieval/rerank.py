"""A cross-encoder that reads question and passage together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from prerouter.core.errors import InputError
from prerouter.recipe.engine import Dtype
from prerouter.retrieval.models import load_encoder, sentence_transformers_missing, windows
from prerouter.retrieval.tokens import tokenizer_starts


class Reranker:
    """A sentence-transformers CrossEncoder with one output, the higher the more relevant.

    A passage longer than the model reads beside the question is read in windows that end with
    sentences; its score is that of its best window.
    """

    def __init__(
        self,
        name: str,
        revision: str | None = None,
        batch_size: int = 32,
        dtype: Dtype = "float32",
    ) -> None:
        try:
            from sentence_transformers import CrossEncoder
        except ImportError:
            raise sentence_transformers_missing() from None
        self._model = load_encoder(CrossEncoder, name, revision, dtype)
        if self._model.num_labels != 1:
            raise InputError(
                name, f"has {self._model.num_labels} outputs", "a reranker, which has one"
            )
        self._name = name
        self._batch_size = batch_size
        self._starts = tokenizer_starts(self._model.tokenizer.backend_tokenizer)
        special = self._model.tokenizer.num_special_tokens_to_add(pair=True)
        self._room = max(2, (self._model.max_seq_length or 512) - special)

    def scores(self, question: str, passages: Sequence[str]) -> list[float]:
        """The model's raw output for each passage. Raises InputError where it is no number."""
        from torch.nn import Identity

        if not passages:
            return []
        # A question of more than half the room is cut short by the tokenizer.
        beside = max(self._room - len(self._starts(question)), self._room // 2)
        pieces = [windows(passage, beside, self._starts) for passage in passages]
        outputs = self._model.predict(
            [(question, text) for each in pieces for text, _ in each],
            batch_size=self._batch_size,
            show_progress_bar=False,
            # Raw: a sigmoid rounds all good passages to 1.
            activation_fn=Identity(),
        )
        if not np.isfinite(outputs).all():
            raise InputError(
                self._name, "gives scores that are not numbers", "finite ones", "check its weights"
            )
        firsts = np.cumsum([0, *(len(each) for each in pieces[:-1])])
        return [float(score) for score in np.maximum.reduceat(outputs, firsts)]
