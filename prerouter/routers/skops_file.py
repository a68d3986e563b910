"""What a skops file may hold: the types of our two pipelines, named here, and nothing it asks for.

skops by itself trusts every estimator of scikit-learn and many functions; a router needs a dozen
types, so the whole schema is read against that list before anything is built.
"""

from __future__ import annotations

import importlib
import io
import json
import sys
import zipfile
from typing import Any

from prerouter.core.errors import CheckpointError

MAX_UNPACKED_BYTES = 512_000_000

ALLOWED_TYPES = frozenset(
    {
        "builtins.dict",
        "builtins.list",
        "builtins.slice",
        "builtins.str",
        "builtins.tuple",
        "numpy.dtype",
        "numpy.float64",
        "numpy.int64",
        "numpy.ndarray",
        "sklearn.compose._column_transformer.ColumnTransformer",
        "sklearn.ensemble._forest.RandomForestClassifier",
        "sklearn.impute._base.MissingIndicator",
        "sklearn.impute._base.SimpleImputer",
        "sklearn.pipeline.Pipeline",
        "sklearn.preprocessing._encoders.OneHotEncoder",
        "sklearn.tree._classes.DecisionTreeClassifier",
        "sklearn.tree._tree.Tree",
    }
)
# Of these, the ones that skops does not trust by itself.
TRUSTED = ["numpy.dtype", "sklearn.tree._tree.Tree"]


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


def audit(data: bytes, place: str) -> list[str]:
    """The types to trust when loading `data`: the same for every file.

    Raises a CheckpointError for a file that holds a type outside the list, that unpacks to more
    than 512 MB, or that is no skops file.
    """
    skops_io = import_skops()

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            if unpacked > MAX_UNPACKED_BYTES:
                raise CheckpointError(place, f"unpacks to {unpacked:,} bytes", "at most 512 MB")
            types = _types(json.loads(archive.read("schema.json")))
        types |= set(skops_io.get_untrusted_types(data=data))
    except CheckpointError:
        raise
    # A hostile file may fail in zipfile, json or skops in many ways; all mean the same here.
    except Exception as error:  # noqa: BLE001
        raise CheckpointError(place, f"is no skops file: {type(error).__name__}: {error}") from None
    foreign = sorted(types - ALLOWED_TYPES)
    if foreign:
        raise CheckpointError(
            place,
            f"asks to load {', '.join(foreign[:5])}",
            "the types of a decision tree or random forest pipeline",
            "don't load it: it was not written by this program",
        )
    return list(TRUSTED)


def _types(node: Any) -> set[str]:
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
