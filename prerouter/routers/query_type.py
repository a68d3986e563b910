"""EDAR's query classifiers: a small one distilled from task types, and a prompted one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self

from prerouter.core.errors import StageError
from prerouter.core.protocols import Engine, GenerationRequest
from prerouter.core.records import RoutingCase
from prerouter.prompts.checks import QUERY_TYPES, render_query_type
from prerouter.recipe.checks import AskBy
from prerouter.routers.asking import ask_word
from prerouter.routers.edar import Sorted

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

_PLACE = "route.checks.query_types"


class DistilledQueryTypes:
    """Logistic regression on the words and word pairs of the question, by TF-IDF.

    Learnt from questions whose task type is known, so that it sorts those whose isn't. The rarer
    kind weighs as much as the other: to miss a synthesis query is what the classifier is against.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._pipeline: Pipeline | None = None

    def fit(
        self, questions: Sequence[str], task_types: Sequence[str], synthesis: Sequence[str]
    ) -> Self:
        """`task_types` of the questions, (n,); those in `synthesis` are global synthesis. Raises
        StageError where there is one kind only."""
        from sklearn.feature_extraction.text import TfidfVectorizer
        from sklearn.linear_model import LogisticRegression
        from sklearn.pipeline import make_pipeline

        is_synthesis = [kind in synthesis for kind in task_types]
        if len(set(is_synthesis)) < 2:
            known = ", ".join(sorted(set(task_types))) or "none: no case has a task type"
            raise StageError(
                f"{_PLACE}.synthesis",
                "leaves one kind of query only among the training questions",
                f"some, not all, of the task types there are: {known}",
                "name others, or leave edar for edar_unclassified or edar_prompted",
            )
        self._pipeline = make_pipeline(
            TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
            LogisticRegression(class_weight="balanced", max_iter=1000, random_state=self._seed),
        ).fit(list(questions), is_synthesis)
        return self

    def sort(self, cases: Sequence[RoutingCase]) -> list[Sorted]:
        if self._pipeline is None:
            raise StageError(_PLACE, "the classifier is not fitted", next_step="call fit")
        if not cases:
            return []
        began = time.perf_counter()
        found = self._pipeline.predict([case.question for case in cases])
        seconds = (time.perf_counter() - began) / len(cases)
        return [Sorted(bool(kind), seconds=seconds) for kind in found]


class PromptedQueryTypes:
    """A model that is asked for one word: point or synthesis."""

    def __init__(
        self, engine: Callable[[], Engine], model: str, by: AskBy = AskBy.PROBABILITY
    ) -> None:
        self._engine = engine
        self._model = model
        self._by = by

    def sort(self, cases: Sequence[RoutingCase]) -> list[Sorted]:
        """Each question is asked once here, whichever models are to answer it; each case pays, as a
        query by itself would."""
        first = {case.question_id: case for case in cases}
        requests = [GenerationRequest(render_query_type(case)) for case in first.values()]
        if not requests:
            return []
        words = ask_word(self._engine(), requests, QUERY_TYPES, self._by)
        found = dict(zip(first, words, strict=True))
        return [
            Sorted(
                synthesis=None if word.chosen is None else word.chosen == 1,
                failure=word.failure,
                raw=word.raw,
                model=self._model,
                calls=word.calls,
                prompt_tokens=word.prompt_tokens,
                completion_tokens=word.completion_tokens,
                seconds=word.seconds,
            )
            for case in cases
            for word in [found[case.question_id]]
        ]
