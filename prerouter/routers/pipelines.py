"""The scikit-learn pipelines of the classical routers, and the inputs that they read.

No kind weights its classes. Where LC is rare (11% of LaRA's labels) most of them then say RAG for
nearly every case, as the labels have it, and the routing table names one that has collapsed; but
p_lc stays an estimate of the probability, which `calibrate` cuts where the validation split has it,
and which the cost-quality curve reads at every threshold. Weighted classes would move all p_lc for
one threshold's sake.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from prerouter.core.records import MetadataSetting, RoutingCase
from prerouter.measures.features import FEATURES, case_features
from prerouter.measures.words import fold, split_words
from prerouter.recipe.route import ClassicalKind

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

QUESTION = "question"
"""The column that holds the question's words, where a kind reads them."""


def columns(kind: ClassicalKind) -> tuple[str, ...]:
    """The original features that a kind reads, in the order of its input's columns."""
    if kind == "nearest_neighbours":
        return (QUESTION,)
    return (*FEATURES, QUESTION) if kind == "logistic_regression" else (*FEATURES,)


def matrix(
    cases: Sequence[RoutingCase],
    kind: ClassicalKind,
    metadata: MetadataSetting = MetadataSetting.FULL,
) -> Any:
    """What a kind reads of the `metadata` as an object array (cases, columns); a missing number is
    NaN.

    The question is its folded words with one space between them, so that scripts without spaces
    have words too. Raises TypeError for anything but a RoutingCase.
    """
    import numpy as np

    rows = np.empty((len(cases), len(columns(kind))), dtype=object)
    for row, case in enumerate(cases):
        values: dict[str, float | str | None] = {**case_features(case, metadata)}
        if kind == "nearest_neighbours":
            values[QUESTION] = case.question
        else:
            values[QUESTION] = " ".join(split_words(fold(case.question)))
        for column, name in enumerate(columns(kind)):
            value = values[name]
            absent = value is None and FEATURES.get(name) == "number"
            rows[row, column] = math.nan if absent else value
    return rows


def blank_input(kind: ClassicalKind, width: int) -> Any:
    """One row of which nothing is known, as a fitted pipeline of `width` columns reads it."""
    import numpy as np

    if kind == "nearest_neighbours":
        return np.zeros((1, width), dtype=np.float32)
    known = {QUESTION: "", **{name: None for name, of in FEATURES.items() if of == "category"}}
    return np.array([[known.get(name, math.nan) for name in columns(kind)]], dtype=object)


def new_pipeline(kind: ClassicalKind, seed: int, classes: int, cases: int) -> Pipeline:
    """An unfitted pipeline for `cases` labelled cases of so many `classes`.

    Tree and forest have the paper's sizes (Chen et al., 2026, arXiv 2605.10235, section 1); the
    other kinds are ours. Logistic regression keeps C = 1: the rows of TF-IDF have length 1, the
    numbers unit variance, and a word of one question is left out, because it tells of that document
    only. Boosting takes shallow trees with leaves of 20 cases or more, since labels are noisy where
    both routes score alike, and a small step (0.05) over 100 of them, each on 80% of the cases. 25
    neighbours give a share whose standard error is at most 0.1.
    """
    from sklearn.dummy import DummyClassifier
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.neighbors import KNeighborsClassifier
    from sklearn.pipeline import Pipeline
    from sklearn.tree import DecisionTreeClassifier

    if kind == "nearest_neighbours":
        near = KNeighborsClassifier(n_neighbors=min(25, cases), algorithm="brute")
        return Pipeline([("model", near)])
    models = {
        "decision_tree": DecisionTreeClassifier(max_depth=6, random_state=seed),
        "random_forest": RandomForestClassifier(n_estimators=8, random_state=seed, n_jobs=1),
        "logistic_regression": LogisticRegression(C=1.0, max_iter=1000),
        "gradient_boosting": GradientBoostingClassifier(
            n_estimators=100,
            learning_rate=0.05,
            max_depth=3,
            min_samples_leaf=20,
            subsample=0.8,
            random_state=seed,
        ),
    }
    model = models[kind]
    if classes == 1 and kind in ("logistic_regression", "gradient_boosting"):
        # These two refuse labels of one class, which trees learn as they are.
        model = DummyClassifier(strategy="prior")
    features = _with_question(cases) if kind == "logistic_regression" else _metadata()
    return Pipeline([("features", features), ("model", model)])


def _metadata() -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    return ColumnTransformer(
        [
            (
                "numbers",
                SimpleImputer(strategy="median", add_indicator=True, keep_empty_features=True),
                _of_kind("number"),
            ),
            (
                "categories",
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                _of_kind("category"),
            ),
        ]
    )


def _with_question(cases: int) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    (_, imputer, numbers), categories = _metadata().transformers
    # White space splits what `matrix` has split into words already. With few cases no word stands
    # in two of them.
    words = TfidfVectorizer(
        lowercase=False,
        token_pattern=r"\S+",  # noqa: S106 -- a pattern of words, no password
        min_df=2 if cases >= 50 else 1,
        sublinear_tf=True,
    )
    scaled = Pipeline([("imputer", imputer), ("scaler", StandardScaler())])
    return ColumnTransformer(
        [("numbers", scaled, numbers), categories, ("words", words, len(FEATURES))]
    )


def _of_kind(kind: str) -> list[int]:
    return [index for index, of in enumerate(FEATURES.values()) if of == kind]
