"""The classical baselines: a decision tree (depth 6) and a random forest (8 trees) on metadata.

Pre-Route, section 1 (Chen et al., 2026, arXiv 2605.10235); the features are ours
(`measures/features.py`). A saved router is a skops file, never a pickle.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError

from prerouter.core.errors import CheckpointError, StageError
from prerouter.core.records import Decision, Label, Record, Route, RoutingCase
from prerouter.measures.features import FEATURE_VERSION, FEATURES, case_features
from prerouter.routers.skops_file import audit, import_skops

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

ClassicalKind = Literal["decision_tree", "random_forest"]

MODEL_FILE = "model.skops"
ABOUT_FILE = "model.json"
MAX_MODEL_BYTES = 64_000_000
MAX_ABOUT_BYTES = 100_000


class ClassicalAbout(Record):
    """`model.json`: what the skops file holds, and what proves it unaltered."""

    format_version: Literal[1] = 1
    kind: ClassicalKind
    seed: Annotated[int, Field(ge=0)]
    feature_version: int
    features: dict[str, Literal["number", "category"]]
    classes: tuple[Route, ...]
    trained_on: Annotated[int, Field(gt=0, description="labelled cases")]
    versions: Annotated[dict[str, str], Field(description="library to version")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="of the skops file")]


class ClassicalRouter:
    """LC where the probability of LC is above one half, else RAG: ties go to the cheap route."""

    def __init__(self, kind: ClassicalKind, seed: int) -> None:
        self.kind: ClassicalKind = kind
        self.seed = seed
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
        self._pipeline = _new_pipeline(self.kind, self.seed)
        self._pipeline.fit(
            _matrix([case for case, _ in pairs]), [label.route.value for _, label in pairs]
        )
        self._trained_on = len(pairs)
        return self

    def route(self, cases: Sequence[RoutingCase]) -> Iterator[Decision]:
        """One decision for each case, with p_lc. `seconds` is the batch's time shared out."""
        pipeline = self._fitted()
        if not cases:
            return
        start = time.perf_counter()
        probabilities = pipeline.predict_proba(_matrix(cases))
        seconds = (time.perf_counter() - start) / len(cases)
        classes = list(pipeline.classes_)
        column = classes.index(Route.LC.value) if Route.LC.value in classes else None
        for row, case in enumerate(cases):
            p_lc = 0.0 if column is None else float(probabilities[row, column])
            yield Decision(
                case_id=case.case_id,
                router=self.name,
                route=Route.LC if p_lc > 0.5 else Route.RAG,
                p_lc=p_lc,
                seconds=seconds,
            )

    def save(self, folder: Path) -> None:
        """Write model.skops, then model.json with its checksum; earlier ones are replaced."""
        skops_io = import_skops()

        pipeline = self._fitted()
        data = skops_io.dumps(pipeline)
        about = ClassicalAbout(
            kind=self.kind,
            seed=self.seed,
            feature_version=FEATURE_VERSION,
            features=FEATURES,
            classes=tuple(Route(value) for value in pipeline.classes_),
            trained_on=self._trained_on,
            versions={name: version(name) for name in ("scikit-learn", "skops", "numpy")},
            sha256=hashlib.sha256(data).hexdigest(),
        )
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MODEL_FILE).write_bytes(data)
        (folder / ABOUT_FILE).write_text(about.model_dump_json(indent=2) + "\n", "utf-8")

    @classmethod
    def load(cls, folder: Path) -> Self:
        """A saved router, or a CheckpointError: altered, of other features or versions, unsafe."""
        skops_io = import_skops()

        about = _read_about(folder / ABOUT_FILE)
        path = folder / MODEL_FILE
        data = _read_bytes(path, MAX_MODEL_BYTES)
        if hashlib.sha256(data).hexdigest() != about.sha256:
            raise CheckpointError(
                str(path),
                "is not the file that model.json describes: the checksum differs",
                next_step="copy the folder anew, or route again",
            )
        trusted = audit(data, str(path))
        try:
            pipeline = skops_io.loads(data, trusted=trusted)
            sound = _is_sound(pipeline, about)
        # A hostile file may fail in skops, zipfile, numpy or scikit-learn; all mean the same here.
        except Exception as error:  # noqa: BLE001
            raise CheckpointError(
                str(path), f"can't be loaded: {type(error).__name__}: {error}"
            ) from None
        if not sound:
            raise CheckpointError(
                str(path), f"holds another model than the {about.kind} that model.json describes"
            )
        router = cls(about.kind, about.seed)
        router._pipeline = pipeline
        router._trained_on = about.trained_on
        return router

    def _fitted(self) -> Pipeline:
        if self._pipeline is None:
            raise StageError(self.kind, "is not fitted", next_step="call fit, or load a saved one")
        return self._pipeline


def _new_pipeline(kind: ClassicalKind, seed: int) -> Pipeline:
    from sklearn.compose import ColumnTransformer
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import OneHotEncoder
    from sklearn.tree import DecisionTreeClassifier

    models = {
        "decision_tree": DecisionTreeClassifier(max_depth=6, random_state=seed),
        "random_forest": RandomForestClassifier(n_estimators=8, random_state=seed, n_jobs=1),
    }
    imputer = SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True)
    columns = ColumnTransformer(
        [
            ("numbers", imputer, _columns("number")),
            (
                "categories",
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                _columns("category"),
            ),
        ]
    )
    return Pipeline([("features", columns), ("model", models[kind])])


def _columns(kind: str) -> list[int]:
    return [index for index, of in enumerate(FEATURES.values()) if of == kind]


def _matrix(cases: Sequence[RoutingCase]) -> Any:
    """Features as an object array (cases, features); a missing number is NaN."""
    import numpy as np

    rows = []
    for case in cases:
        features = case_features(case)
        rows.append(
            [
                math.nan if features[name] is None and kind == "number" else features[name]
                for name, kind in FEATURES.items()
            ]
        )
    return np.array(rows, dtype=object)


def _is_sound(pipeline: Any, about: ClassicalAbout) -> bool:
    """Whether it is the pipeline that `about` names, with trees that can be walked safely.

    scikit-learn walks a tree in C without looking: a node's child or feature out of range would
    read foreign memory, a child before its parent would never end.
    """
    import numpy as np

    expected = _new_pipeline(about.kind, about.seed)
    if type(pipeline) is not type(expected):
        return False
    if [(n, type(step)) for n, step in pipeline.steps] != [
        (n, type(step)) for n, step in expected.steps
    ]:
        return False
    model = pipeline.named_steps["model"]
    if list(model.classes_) != list(about.classes):
        return False
    members = [model] if about.kind == "decision_tree" else model.estimators_
    for member in members:
        tree = member.tree_
        if tree.node_count < 1:
            return False
        node = np.arange(tree.node_count)
        inner = tree.children_left != -1
        for children in (tree.children_left, tree.children_right):
            child = children[inner]
            if ((child <= node[inner]) | (child >= tree.node_count)).any():
                return False
        feature = tree.feature[inner]
        if ((feature < 0) | (feature >= model.n_features_in_)).any():
            return False
    return bool(members)


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(str(path), f"can't be read: {error.strerror}") from None
    if len(data) > limit:
        raise CheckpointError(str(path), "is too large", f"at most {limit:,} bytes")
    return data


def _read_about(path: Path) -> ClassicalAbout:
    try:
        about = ClassicalAbout.model_validate(json.loads(_read_bytes(path, MAX_ABOUT_BYTES)))
    except (ValueError, RecursionError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise CheckpointError(str(path), f"describes no classical router: {problem}") from None
    if about.feature_version != FEATURE_VERSION or list(about.features.items()) != list(
        FEATURES.items()
    ):
        raise CheckpointError(
            str(path),
            f"was fitted on other features (version {about.feature_version})",
            f"version {FEATURE_VERSION}: {', '.join(FEATURES)}",
            "fit it again",
        )
    saved, installed = about.versions.get("scikit-learn", "unknown"), version("scikit-learn")
    if saved.split(".")[:2] != installed.split(".")[:2]:
        raise CheckpointError(
            str(path),
            f"was saved by scikit-learn {saved}",
            f"{'.'.join(installed.split('.')[:2])}, which is installed",
            "fit it again, or install that version",
        )
    return about
