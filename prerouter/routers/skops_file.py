"""Saved scikit-learn models: a skops file, never a pickle, and a description that proves it whole.

skops by itself trusts every estimator of scikit-learn and many functions; a router needs a dozen
types, so the whole schema is read against the list of its kind before anything is built.
"""

from __future__ import annotations

import hashlib
import importlib
import io
import json
import sys
import zipfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import Field, ValidationError

from prerouter.core.errors import CheckpointError
from prerouter.core.records import Record, Route

MODEL_FILE = "model.skops"
ABOUT_FILE = "model.json"
MAX_MODEL_BYTES = 64_000_000
MAX_ABOUT_BYTES = 100_000
MAX_UNPACKED_BYTES = 512_000_000

_ANY = frozenset(
    {
        "builtins.dict",
        "builtins.list",
        "builtins.str",
        "numpy.ndarray",
        "sklearn.pipeline.Pipeline",
    }
)
_METADATA = _ANY | {
    "builtins.slice",
    "builtins.tuple",
    "numpy.dtype",
    "numpy.float64",
    "sklearn.compose._column_transformer.ColumnTransformer",
    "sklearn.impute._base.MissingIndicator",
    "sklearn.impute._base.SimpleImputer",
    "sklearn.preprocessing._encoders.OneHotEncoder",
}
_TREE = "sklearn.tree._tree.Tree"
_ONE_CLASS = "sklearn.dummy.DummyClassifier"
_SCALER = "sklearn.preprocessing._data.StandardScaler"
_LOGISTIC = "sklearn.linear_model._logistic.LogisticRegression"

ALLOWED_TYPES: dict[str, frozenset[str]] = {
    "decision_tree": _METADATA
    | {_TREE, "numpy.int64", "sklearn.tree._classes.DecisionTreeClassifier"},
    "random_forest": _METADATA
    | {
        _TREE,
        "numpy.int64",
        "sklearn.ensemble._forest.RandomForestClassifier",
        "sklearn.tree._classes.DecisionTreeClassifier",
    },
    "logistic_regression": _METADATA
    | {
        _LOGISTIC,
        _ONE_CLASS,
        _SCALER,
        "sklearn.feature_extraction.text.TfidfTransformer",
        "sklearn.feature_extraction.text.TfidfVectorizer",
    },
    "gradient_boosting": _METADATA
    | {
        _ONE_CLASS,
        _TREE,
        "numpy.random.mtrand.RandomState",
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "sklearn._loss._loss.CyHalfMultinomialLoss",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn.ensemble._gb.GradientBoostingClassifier",
        "sklearn.tree._classes.DecisionTreeRegressor",
    },
    "nearest_neighbours": _ANY
    | {"builtins.tuple", "sklearn.neighbors._classification.KNeighborsClassifier"},
    "linear": _ANY | {"builtins.tuple", "numpy.float64", _LOGISTIC, _ONE_CLASS, _SCALER},
    "mlp": _ANY
    | {
        "builtins.tuple",
        "numpy.float64",
        "numpy.random.mtrand.RandomState",
        "sklearn.neural_network._multilayer_perceptron.MLPClassifier",
        "sklearn.preprocessing._label.LabelBinarizer",
        _ONE_CLASS,
        _SCALER,
    },
}
"""What a file of each kind of model may hold, and nothing that it asks for."""

# Of these, the ones that skops does not trust by itself.
TRUSTED = ("numpy.dtype", _TREE)


class SkopsAbout(Record):
    """`model.json`: what proves the skops file beside it unaltered, and which library wrote it."""

    format_version: Literal[1] = 1
    seed: Annotated[int, Field(ge=0)]
    classes: tuple[Route, ...]
    trained_on: Annotated[int, Field(gt=0, description="labelled cases")]
    versions: Annotated[dict[str, str], Field(description="library to version")]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$", description="of the skops file")]


AboutT = TypeVar("AboutT", bound=SkopsAbout)


def import_skops() -> Any:
    """The module skops.io.

    Its first import asks every loaded module for the home of scipy's functions. A lazy package
    would load all its parts when asked, or fail at one, so transformers is out of sight meanwhile.
    """
    lazy = {name: sys.modules[name] for name in sys.modules if name.split(".")[0] == "transformers"}
    for name in lazy:
        del sys.modules[name]
    try:
        return importlib.import_module("skops.io")
    finally:
        sys.modules.update(lazy)


def dump_model(model: Any) -> tuple[bytes, dict[str, Any]]:
    """The bytes of a skops file, and what `SkopsAbout` says of them and of the libraries."""
    data = import_skops().dumps(model)
    return data, {
        "versions": {name: version(name) for name in ("scikit-learn", "skops", "numpy")},
        "sha256": hashlib.sha256(data).hexdigest(),
    }


def write_model(folder: Path, data: bytes, about: SkopsAbout) -> None:
    """model.skops, then model.json with its checksum; earlier ones are replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / MODEL_FILE).write_bytes(data)
    (folder / ABOUT_FILE).write_text(about.model_dump_json(indent=2) + "\n", "utf-8")


def read_about(folder: Path, model: type[AboutT]) -> AboutT:
    """The description in `folder`. Raises CheckpointError where it is none of this kind, or of
    another version of scikit-learn: a model is its private attributes."""
    path = folder / ABOUT_FILE
    try:
        about = model.model_validate(json.loads(_read_bytes(path, MAX_ABOUT_BYTES)))
    except (ValueError, RecursionError) as error:
        problem = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise CheckpointError(str(path), f"describes no such router: {problem}") from None
    saved, installed = about.versions.get("scikit-learn", "unknown"), version("scikit-learn")
    if saved.split(".")[:2] != installed.split(".")[:2]:
        raise CheckpointError(
            str(path),
            f"was saved by scikit-learn {saved}",
            f"{'.'.join(installed.split('.')[:2])}, which is installed",
            "fit it again, or install that version",
        )
    return about


def load_model(
    folder: Path, about: SkopsAbout, kind: str, sound: Callable[[Any], Any | None]
) -> Any:
    """What `sound` makes of the model in `folder`, once checksum and types are found in order.

    `sound` gives back a model that is safe to use, or None where it isn't what `about` describes.
    Raises CheckpointError for anything else.
    """
    skops_io = import_skops()
    path = folder / MODEL_FILE
    data = _read_bytes(path, MAX_MODEL_BYTES)
    if hashlib.sha256(data).hexdigest() != about.sha256:
        raise CheckpointError(
            str(path),
            f"is not the file that {ABOUT_FILE} describes: the checksum differs",
            next_step="copy the folder anew, or route again",
        )
    trusted = audit(data, str(path), kind)
    try:
        model = sound(skops_io.loads(data, trusted=trusted))
    # A hostile file may fail in skops, zipfile, numpy or scikit-learn; all mean the same here.
    except Exception as error:  # noqa: BLE001
        raise CheckpointError(
            str(path), f"can't be loaded: {type(error).__name__}: {error}"
        ) from None
    if model is None:
        raise CheckpointError(
            str(path), f"holds another model than the {kind} that {ABOUT_FILE} describes"
        )
    return model


def audit(data: bytes, place: str, kind: str) -> list[str]:
    """The types to trust when loading `data`: the same for every file.

    Raises a CheckpointError for a file that holds a type outside the list of its kind, that unpacks
    to more than 512 MB, or that is no skops file.
    """
    skops_io = import_skops()

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > MAX_UNPACKED_BYTES:
                raise CheckpointError(place, f"unpacks to {unpacked:,} bytes", "at most 512 MB")
            types = schema_types(json.loads(archive.read("schema.json")))
        types |= set(skops_io.get_untrusted_types(data=data))
    except CheckpointError:
        raise
    # A hostile file may fail in zipfile, json or skops in many ways; all mean the same here.
    except Exception as error:  # noqa: BLE001
        raise CheckpointError(place, f"is no skops file: {type(error).__name__}: {error}") from None
    foreign = sorted(types - ALLOWED_TYPES[kind])
    if foreign:
        raise CheckpointError(
            place,
            f"asks to load {', '.join(foreign[:5])}",
            f"the types of a {kind} pipeline",
            "don't load it: it was not written by this program",
        )
    return list(TRUSTED)


def schema_types(node: Any) -> set[str]:
    """Every type that a skops schema names, at any depth."""
    found: set[str] = set()
    due = [node]
    while due:
        part = due.pop()
        if isinstance(part, dict):
            if "__class__" in part or "__module__" in part:
                found.add(f"{part.get('__module__')}.{part.get('__class__')}")
            due.extend(part.values())
        elif isinstance(part, list):
            due.extend(part)
    return found


def _read_bytes(path: Path, limit: int) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise CheckpointError(str(path), f"can't be read: {error.strerror}") from None
    if len(data) > limit:
        raise CheckpointError(str(path), "is too large", f"at most {limit:,} bytes")
    return data
