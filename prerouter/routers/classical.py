"""The classical baselines: routers that scikit-learn learns from metadata and the question.

Decision tree and random forest are Pre-Route's (Chen et al., 2026, arXiv 2605.10235, section 1);
logistic regression, gradient boosting and nearest neighbours stand beside them. The features are
ours (`measures/features.py`). A saved router is a skops file, never a pickle.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.records import Decision, Label, MetadataSetting, Route, RoutingCase, by_cost
from prerouter.measures.features import FEATURE_VERSION, FEATURES
from prerouter.recipe.route import ClassicalKind
from prerouter.retrieval.embedding import SentenceEmbedder
from prerouter.routers.pipelines import blank_input, matrix, new_pipeline
from prerouter.routers.skops_file import (
    ABOUT_FILE,
    SkopsAbout,
    dump_model,
    load_model,
    read_about,
    write_model,
)
from prerouter.routers.soundness import sound_pipeline

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

DEFAULT_EMBEDDING = "embedded:all-MiniLM-L6-v2"


class ClassicalAbout(SkopsAbout):
    """`model.json`: what the skops file holds. `embedding` is the model whose vectors of questions
    nearest neighbours compares, and `embedding_identity` its files' hash or its commit. `metadata`
    is how much of the metadata the features were made of."""

    kind: ClassicalKind
    feature_version: int
    features: dict[str, Literal["number", "category"]]
    embedding: str | None = None
    embedding_identity: str | None = None
    metadata: MetadataSetting = MetadataSetting.FULL


class ClassicalRouter:
    """LC where the probability of LC is above one half, else RAG: ties go to the cheap route.

    `embedding` is read by `nearest_neighbours` only: a sentence-transformers model's Hub name, a
    folder, or an `embedded:` name. Of a case's metadata it sees what `metadata` shows.
    """

    def __init__(
        self,
        kind: ClassicalKind,
        seed: int,
        embedding: str = DEFAULT_EMBEDDING,
        metadata: MetadataSetting = MetadataSetting.FULL,
    ) -> None:
        self.kind: ClassicalKind = kind
        self.metadata = metadata
        self.seed = seed
        self._embedding = embedding
        self._embedder: SentenceEmbedder | None = None
        self._pipeline: Pipeline | None = None
        self._trained_on = 0

    @property
    def name(self) -> str:
        return self.kind

    def fit(self, pairs: Sequence[tuple[RoutingCase, Label]]) -> Self:
        """Learn from labelled cases. Labels of one class only give a router that always says it."""
        if not pairs:
            raise StageError(
                self.kind, "has no labelled case to learn from", "at least one in the train split"
            )
        routes = [label.route.value for _, label in pairs]
        pipeline = new_pipeline(self.kind, self.seed, len(set(routes)), len(pairs))
        cases = [case for case, _ in pairs]
        pipeline.fit(self.inputs(matrix(cases, self.kind, self.metadata)), routes)
        _forget_addresses(pipeline)
        self._pipeline = pipeline
        self._trained_on = len(pairs)
        return self

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """One decision for each case, with p_lc. `seconds` is the batch's time shared out."""
        self._fitted()
        if not cases:
            return
        start = time.perf_counter()
        chances = self._chances(self.inputs(matrix(cases, self.kind, self.metadata)))
        seconds = (time.perf_counter() - start) / len(cases)
        for row, case in enumerate(cases):
            by_route = {route: float(column[row]) for route, column in chances.items()}
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                # The likeliest, of equals the cheapest: `chances` go from cheap to dear.
                route=max(by_route, key=lambda route: by_route[route]),
                p_lc=by_route.get(Route.LC, 0.0),
                seconds=seconds,
            )

    def inputs(self, rows: Any) -> Any:
        """What the pipeline reads of `matrix`: the rows, or the vectors of their questions."""
        if self.kind != "nearest_neighbours":
            return rows
        return self._started().documents([question for (question,) in rows])

    def p_lc(self, inputs: Any) -> list[float]:
        """The probability of LC for each row of `inputs`; 0 where no LC was learnt."""
        found = self._chances(inputs).get(Route.LC)
        return [0.0] * len(inputs) if found is None else [float(p) for p in found]

    def _chances(self, inputs: Any) -> dict[Route, Any]:
        """The probability of each route that was learnt, from cheap to dear, for each row."""
        pipeline = self._fitted()
        columns = pipeline.predict_proba(inputs).T
        found = {
            Route(name): column for name, column in zip(pipeline.classes_, columns, strict=True)
        }
        return {route: found[route] for route in by_cost(found)}

    def save(self, folder: Path) -> None:
        """Write model.skops, then model.json with its checksum; earlier ones are replaced."""
        pipeline = self._fitted()
        data, proof = dump_model(pipeline)
        near = self.kind == "nearest_neighbours"
        about = ClassicalAbout(
            kind=self.kind,
            seed=self.seed,
            feature_version=FEATURE_VERSION,
            features=FEATURES,
            embedding=self._embedding if near else None,
            embedding_identity=self._started().identity if near else None,
            classes=tuple(Route(value) for value in pipeline.classes_),
            trained_on=self._trained_on,
            metadata=self.metadata,
            **proof,
        )
        write_model(folder, data, about)

    @classmethod
    def load(cls, folder: Path) -> Self:
        """A saved router, or a CheckpointError: altered, of other features or versions, unsafe."""
        about = read_about(folder, ClassicalAbout)
        _check_features(folder, about)
        embedding = about.embedding or DEFAULT_EMBEDDING
        router = cls(about.kind, about.seed, embedding, about.metadata)
        expected = new_pipeline(about.kind, about.seed, len(about.classes), about.trained_on)
        classes = [route.value for route in about.classes]

        def sound(found: Any) -> Any | None:
            pipeline = sound_pipeline(found, expected, classes, about.trained_on)
            if pipeline is not None:
                pipeline.predict_proba(blank_input(about.kind, pipeline.n_features_in_))
            return pipeline

        router._pipeline = load_model(folder, about, about.kind, sound)
        router._trained_on = about.trained_on
        if about.embedding and router._started().identity != about.embedding_identity:
            raise CheckpointError(
                str(folder / ABOUT_FILE),
                f"was fitted on vectors of another {about.embedding}",
                "the model with the files it was fitted with",
                "fit it again",
            )
        return router

    def _started(self) -> SentenceEmbedder:
        if self._embedder is None:
            self._embedder = SentenceEmbedder(self._embedding)
        return self._embedder

    def _fitted(self) -> Pipeline:
        if self._pipeline is None:
            raise StageError(self.kind, "is not fitted", next_step="call fit, or load a saved one")
        return self._pipeline


def _forget_addresses(pipeline: Pipeline) -> None:
    """TfidfVectorizer remembers where in memory its stop words lay: two fits would differ."""
    features = dict(pipeline.steps).get("features")
    words = features.named_transformers_.get("words") if features is not None else None
    if words is not None:
        vars(words).pop("_stop_words_id", None)


def _check_features(folder: Path, about: ClassicalAbout) -> None:
    if about.feature_version != FEATURE_VERSION or list(about.features.items()) != list(
        FEATURES.items()
    ):
        raise CheckpointError(
            str(folder / ABOUT_FILE),
            f"was fitted on other features (version {about.feature_version})",
            f"version {FEATURE_VERSION}: {', '.join(FEATURES)}",
            "fit it again",
        )
