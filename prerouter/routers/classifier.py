"""The router with a classification head: one forward pass, a probability, no text."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from prerouter.core.errors import MissingDependencyError, RecipeError
from prerouter.core.records import (
    Decision,
    DecisionFailure,
    MetadataSetting,
    Route,
    RoutingCase,
    StudentMode,
)
from prerouter.engines.batches import chunk_of
from prerouter.engines.quiet import without_bars
from prerouter.prompts.render import StudentForm, render_student
from prerouter.recipe.engine import Dtype
from prerouter.training.classifier import classify_probabilities, encode_prompt


class ClassifierRouter:
    """A router over a folder that `classify` wrote (safetensors, no code of a model's is run).

    p_lc is the softmax of the head's two outputs; LC where it is above 0.5. A prompt that the model
    has no room for, or whose outputs are no numbers, is a decision with a failure. Prompts are
    batched by length.
    """

    def __init__(
        self,
        folder: Path,
        form: StudentForm,
        metadata: MetadataSetting,
        *,
        max_length: int,
        batch_size: int = 16,
        dtype: Dtype = "bfloat16",
        priced_as: str | None = None,
    ) -> None:
        try:
            import torch
            from transformers import AutoModelForSequenceClassification, AutoTokenizer
        except ImportError as error:
            raise MissingDependencyError(error.name or "transformers", "train") from None
        try:
            with without_bars():
                self._tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
                model = AutoModelForSequenceClassification.from_pretrained(
                    folder,
                    dtype=getattr(torch, dtype),
                    use_safetensors=True,
                    trust_remote_code=False,
                )
        except (OSError, ValueError) as error:
            raise RecipeError(
                str(folder), f"can't be loaded: {error}", "what classify wrote"
            ) from None
        self._model = model.to("cuda" if torch.cuda.is_available() else "cpu").eval()
        self._form = form
        self._metadata = metadata
        self._max_length = max_length
        self._batch_size = batch_size
        self._chunk_size = chunk_of(batch_size)
        self._priced_as = priced_as

    @property
    def name(self) -> str:
        return "classifier"

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """Yield one decision for each case, in the order of the cases, chunk by chunk."""
        for start in range(0, len(cases), self._chunk_size):
            yield from self._chunk(cases[start : start + self._chunk_size])

    def _chunk(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        prompts = [
            encode_prompt(
                self._tokenizer,
                render_student(case, self._form, self._metadata, StudentMode.DECIDE),
            )
            for case in cases
        ]
        decided: dict[int, Decision] = {}
        fitting = []
        for index, (case, ids) in enumerate(zip(cases, prompts, strict=True)):
            if len(ids) <= self._max_length:
                fitting.append(index)
                continue
            decided[index] = Decision(
                case_id=case.case_id,
                router=self.name,
                failure=DecisionFailure.TOO_LONG,
                raw=f"prompt of {len(ids)} tokens, {self._max_length} at most",
            )
        fitting.sort(key=lambda index: -len(prompts[index]))
        for start in range(0, len(fitting), self._batch_size):
            batch = fitting[start : start + self._batch_size]
            began = time.perf_counter()
            chances = classify_probabilities(
                self._model, [prompts[index] for index in batch], self._model.config.pad_token_id
            )
            seconds = (time.perf_counter() - began) / len(batch)
            for index, p_lc in zip(batch, chances, strict=True):
                known = math.isfinite(p_lc)
                decided[index] = Decision(
                    case_id=cases[index].case_id,
                    router=self.name,
                    route=(Route.LC if p_lc > 0.5 else Route.RAG) if known else None,
                    failure=None if known else DecisionFailure.UNPARSABLE,
                    p_lc=p_lc if known else None,
                    raw=None if known else "the head's outputs are no numbers",
                    model=self._priced_as,
                    calls=1,
                    prompt_tokens=len(prompts[index]),
                    seconds=seconds,
                )
        yield from (decided[index] for index in range(len(cases)))
