"""The probe router: a linear or small non-linear head on a model's frozen prompt states.

Pre-Route (Chen et al., 2026, arXiv 2605.10235, section 1) reads the ideal label off these states
with linear probes; as a router, such a probe costs one pass over the prompt and writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.protocols import GenerationRequest
from prerouter.core.records import (
    Decision,
    Identifier,
    Label,
    MetadataSetting,
    Record,
    Route,
    RoutingCase,
    StudentMode,
)
from prerouter.engines.batches import PromptState, chunk_of
from prerouter.engines.identity import model_identity
from prerouter.engines.transformers import TransformersModel
from prerouter.probing.linear import fit_head, linear_head
from prerouter.probing.representations import (
    NOT_FINITE,
    model_folder,
    read_states,
    render_prompt,
)
from prerouter.prompts.render import prompt_hash
from prerouter.recipe.engine import Dtype
from prerouter.recipe.probe_router import HeadKind, ProbePrompt
from prerouter.routers.failures import call_failure
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


class ProbedModel(Record):
    """The model whose states are read, and the prompt that it reads. `identity` is the hash of its
    files, or its name and revision on the Hub."""

    model: Identifier
    revision: str | None = None
    identity: str
    dtype: Dtype
    prompt: ProbePrompt
    mode: StudentMode
    metadata: MetadataSetting
    thinking: bool
    prompt_hash: str

    @classmethod
    def of(
        cls,
        model: str,
        revision: str | None,
        dtype: Dtype,
        prompt: ProbePrompt,
        mode: StudentMode,
        metadata: MetadataSetting,
        thinking: bool,
    ) -> Self:
        """As the model lies here and the prompt is rendered now."""
        return cls(
            model=model,
            revision=revision,
            identity=model_identity(model, revision),
            dtype=dtype,
            prompt=prompt,
            mode=mode,
            metadata=metadata,
            thinking=thinking,
            prompt_hash=prompt_hash(prompt),
        )


class ProbeAbout(SkopsAbout):
    """`model.json`: the head in the skops file, and the model whose states it reads."""

    head: HeadKind
    c: Annotated[float, Field(gt=0, description="inverse strength of regularisation, chosen")]
    probed: ProbedModel
    layer: Annotated[int, Field(ge=0)]
    hidden_size: Annotated[int, Field(gt=0, le=2**20)]


@dataclass(frozen=True)
class HeadSettings:
    """How a head is fitted; the fields are those of `route.probe`."""

    kind: HeadKind
    layer: str | int
    c: tuple[float, ...]
    folds: int
    seed: int


class ProbeRouter:
    """LC where the head's probability of LC is above one half, else RAG.

    A prompt that the model can't read is a decision with a failure. `priced_as` is what a price
    table calls the model, where that isn't its own name.
    """

    name = "probe_router"

    def __init__(
        self,
        probed: ProbedModel,
        *,
        batch_size: int = 16,
        priced_as: str | None = None,
    ) -> None:
        self.probed = probed
        self._batch_size = batch_size
        self._chunk_size = chunk_of(batch_size)
        self._priced_as = priced_as or probed.model
        self._reader: TransformersModel | None = None
        self._pipeline: Pipeline | None = None
        self._about: dict[str, Any] = {}
        self._layer = 0

    def fit(
        self,
        pairs: Sequence[tuple[RoutingCase, Label]],
        settings: HeadSettings,
        folder: Path,
        advance: Callable[[int], None] = lambda steps: None,
    ) -> Self:
        """Learn from labelled cases; their states are kept in `folder`. Cases whose prompt the
        model can't read are left out. Labels of one class give a router that always says it."""
        identity = {key: getattr(self.probed, key) for key in ("identity", "dtype", "thinking")}
        read = read_states(
            model_folder(folder, identity),
            [self._render(case) for case, _ in pairs],
            settings.layer,
            self._started,
            advance,
            thinking=self.probed.thinking,
        )
        if not read.known.any():
            raise StageError(
                self.name, "has no labelled case to learn from", "at least one in the train split"
            )
        ((layer, vectors),) = read.vectors.items()
        kept = np.flatnonzero(read.known)
        labels = np.array([label.route.value for _, label in pairs])[kept]
        questions = np.array([case.question_id for case, _ in pairs])[kept]
        one_class = len(set(labels.tolist())) == 1
        pipeline, c = fit_head(
            partial(new_head, settings.kind, settings.seed, one_class),
            vectors[kept].astype(np.float64),
            labels,
            questions,
            settings.c[:1] if one_class else settings.c,
            settings.folds,
            settings.seed,
        )
        self._pipeline, self._layer = pipeline, layer
        self._about = {
            "head": settings.kind,
            "seed": settings.seed,
            "c": c,
            "layer": layer,
            "hidden_size": vectors.shape[1],
            "classes": tuple(Route(value) for value in pipeline.classes_),
            "trained_on": len(kept),
        }
        return self

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """Yield one decision for each case, in the order of the cases, chunk by chunk."""
        self._fitted()
        for start in range(0, len(cases), self._chunk_size):
            chunk = cases[start : start + self._chunk_size]
            requests = [GenerationRequest(self._render(case)) for case in chunk]
            states = dict(self._started().prompt_states(requests, self.probed.thinking))
            for index, case in enumerate(chunk):
                yield self._decision(case, states[index])

    def save(self, folder: Path) -> None:
        """Write model.skops, then model.json with its checksum; earlier ones are replaced."""
        data, proof = dump_model(self._fitted())
        write_model(folder, data, ProbeAbout(probed=self.probed, **self._about, **proof))

    @classmethod
    def load(cls, folder: Path, *, model: str | None = None, batch_size: int = 16) -> Self:
        """A saved router. `model` says where its model lies now, where that has moved.

        Raises CheckpointError where the head was altered or is unsafe, where the model's files are
        others than those it was fitted on, or where this version renders another prompt.
        """
        about = read_about(folder, ProbeAbout)
        place = str(folder / ABOUT_FILE)
        probed = about.probed
        if probed.prompt_hash != prompt_hash(probed.prompt):
            raise CheckpointError(
                place,
                f"was fitted on another {probed.prompt} prompt",
                "the prompt that this version of prerouter renders",
                "install the version of prerouter that saved it, or fit it again",
            )
        classes = [route.value for route in about.classes]

        def sound(found: Any) -> Any | None:
            expected = new_head(about.head, about.seed, len(classes) == 1, about.c)
            head = sound_pipeline(found, expected, classes, about.trained_on)
            if head is not None:
                head.predict_proba(np.zeros((1, about.hidden_size)))
            return head

        head = load_model(folder, about, about.head, sound)
        identity = model_identity(model or probed.model, probed.revision)
        if identity != probed.identity:
            raise CheckpointError(
                place,
                f"was fitted on the states of another {model or probed.model}",
                "the model with the files it was fitted with",
                "name it by `model`, or fit the router again",
            )
        update = {"model": model} if model else {}
        router = cls(probed.model_copy(update=update), batch_size=batch_size)
        router._pipeline, router._layer = head, about.layer
        router._about = about.model_dump(exclude={"probed", "format_version", "versions", "sha256"})
        return router

    def _decision(self, case: RoutingCase, state: PromptState) -> Decision:
        p_lc, route, failure, raw = None, None, None, None
        vectors = state.vectors
        if vectors is not None and np.isfinite(vectors[self._layer]).all():
            p_lc = self._p_lc(vectors[self._layer])
            route = Route.LC if p_lc > 0.5 else Route.RAG
        else:
            raw = state.error or NOT_FINITE
            failure = call_failure(raw)
        return Decision(
            case_id=case.case_id,
            router=self.name,
            route=route,
            failure=failure,
            p_lc=p_lc,
            raw=raw,
            model=self._priced_as,
            calls=1,
            prompt_tokens=state.prompt_tokens,
            seconds=state.seconds,
        )

    def _p_lc(self, vector: NDArray[np.float32]) -> float:
        head = self._fitted()
        classes = list(head.classes_)
        if Route.LC.value not in classes:
            return 0.0
        chances = head.predict_proba(vector[None].astype(np.float64))
        return float(chances[0, classes.index(Route.LC.value)])

    def _render(self, case: RoutingCase) -> Any:
        return render_prompt(case, self.probed.prompt, self.probed.metadata, self.probed.mode)

    def _started(self) -> TransformersModel:
        if self._reader is None:
            self._reader = TransformersModel(
                self.probed.model,
                revision=self.probed.revision,
                dtype=self.probed.dtype,
                batch_size=self._batch_size,
            )
        return self._reader

    def _fitted(self) -> Pipeline:
        if self._pipeline is None:
            raise StageError(self.name, "is not fitted", next_step="call fit, or load a saved one")
        return self._pipeline


def new_head(kind: HeadKind, seed: int, one_class: bool, c: float) -> Pipeline:
    """An unfitted head. The network's penalty is 1/c, which weighs as logistic regression's C."""
    from sklearn.dummy import DummyClassifier
    from sklearn.neural_network import MLPClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    if one_class:
        model: Any = DummyClassifier(strategy="prior")
    elif kind == "linear":
        return linear_head(c)
    else:
        # L-BFGS has no batches and no step size, and suits some thousand cases.
        model = MLPClassifier((32,), solver="lbfgs", alpha=1 / c, max_iter=500, random_state=seed)
    return Pipeline([("scaler", StandardScaler()), ("model", model)])
