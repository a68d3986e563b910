"""Whether a loaded pipeline is the one its description names, and safe to use.

scikit-learn and scipy trust a fitted model: a node's child out of range, a column past a matrix's
end or a label past the classes would read or write foreign memory.
"""

from __future__ import annotations

from typing import Any


def same_settings(loaded: Any, expected: Any) -> bool:
    """Whether two estimators are of one type with the same settings, those inside them as well."""
    if type(loaded) is not type(expected):
        return False
    mine, other = loaded.get_params(deep=True), expected.get_params(deep=True)
    return mine.keys() == other.keys() and all(str(mine[key]) == str(other[key]) for key in other)


def sound_pipeline(pipeline: Any, expected: Any, classes: list[str], trained_on: int) -> Any | None:
    """`pipeline` where it is a fitted `expected`; None where it is anything else."""
    if not same_settings(pipeline, expected):
        return None
    steps, model = dict(pipeline.steps), pipeline.steps[-1][1]
    if list(model.classes_) != classes:
        return None
    if "KNeighbors" in type(model).__name__:
        return _fitted_anew(model, expected, classes, trained_on)
    if "features" in steps and not _sound_features(steps["features"], expected.steps[0][1]):
        return None
    if not all(_sound_tree(tree, model) for tree in _trees(model)):
        return None
    return pipeline if _adds_up(model) else None


def _fitted_anew(model: Any, expected: Any, classes: list[str], trained_on: int) -> Any | None:
    """Neighbours are their points: fitted once more, none of the file's own bookkeeping is used."""
    import numpy as np

    points, labels = np.asarray(model._fit_X), np.asarray(model._y)
    if points.shape[:1] != (trained_on,) or labels.shape != (trained_on,):
        return None
    return expected.fit(points.astype(np.float32), np.asarray(classes)[labels])


def _sound_features(fitted: Any, expected: Any) -> bool:
    parts = [
        (name, part, columns) for name, part, columns in fitted.transformers_ if part != "drop"
    ]
    if len(parts) != len(expected.transformers):
        return False
    for (name, part, columns), (wanted, like, its) in zip(
        parts, expected.transformers, strict=True
    ):
        if name != wanted or columns != its or not same_settings(part, like):
            return False
        if name == "categories" and part._n_features_outs != [len(c) for c in part.categories_]:
            return False
        if name == "words" and sorted(part.vocabulary_.values()) != [*range(len(part.vocabulary_))]:
            return False
    return True


def _trees(model: Any) -> list[Any]:
    members = getattr(model, "estimators_", None)
    if members is None:
        return [model] if hasattr(model, "tree_") else []
    if hasattr(members, "ndim"):
        # Boosting has a tree a step for two classes, else one for each; scikit-learn trusts that.
        members = members.ravel() if members.shape == (model.n_estimators, _ways(model)) else []
    # No trees at all are not sound either.
    return list(members) or [None]


def _ways(model: Any) -> int:
    classes = len(model.classes_)
    return 1 if classes == 2 else classes


def _adds_up(model: Any) -> bool:
    """Whether what the trees of a boosted model are added to has a column for each of a step's:
    they would be added to foreign memory otherwise."""
    import numpy as np

    if not hasattr(getattr(model, "estimators_", None), "ndim"):
        return True
    start = model._raw_predict_init(np.zeros((1, model.n_features_in_), dtype=np.float32))
    return bool(start.shape == (1, _ways(model)))


def _sound_tree(member: Any, model: Any) -> bool:
    """A child comes after its parent and before the end, and a feature is one of the input's.

    scikit-learn walks a tree in C without looking: a child or feature out of range would read
    foreign memory, a child before its parent would never end.
    """
    import numpy as np

    tree = getattr(member, "tree_", None)
    if tree is None or tree.node_count < 1:
        return False
    node = np.arange(tree.node_count)
    inner = tree.children_left != -1
    for children in (tree.children_left, tree.children_right):
        child = children[inner]
        if ((child <= node[inner]) | (child >= tree.node_count)).any():
            return False
    feature = tree.feature[inner]
    return not ((feature < 0) | (feature >= model.n_features_in_)).any()
