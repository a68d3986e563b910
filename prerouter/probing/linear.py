"""Linear probes: logistic regression on standardised states, regularised as cross-validation says.

Pre-Route, section 1 (Chen et al., 2026, arXiv 2605.10235) names the classifier; its regularisation,
the control task and the intervals are ours.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from prerouter.core.records import RoutingCase, Split
from prerouter.measures.probes import Predictions, ProbeMeasure, measure_probe
from prerouter.measures.statistics import Measured

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

States = NDArray[np.float32]

NO_TARGET = "no_target"


@dataclass(frozen=True)
class ProbeCases:
    """The cases that have both a target and a state. All are (cases,), `states` (cases, hidden)."""

    states: States
    targets: NDArray[np.str_]
    questions: NDArray[np.str_]
    groups: NDArray[np.str_]
    train: NDArray[np.bool_]


@dataclass(frozen=True)
class ProbeSettings:
    """How probes are fitted and measured; the fields are those of `ProbeStudy`."""

    c: tuple[float, ...]
    folds: int
    resamples: int
    confidence: float
    min_cases: int
    seed: int


@dataclass(frozen=True)
class ProbeOutcome:
    """What one probe gave; `measures` hold the reason instead where it could not be fitted."""

    train_cases: int
    test_cases: int
    test_documents: int
    classes: dict[str, int]
    measures: dict[ProbeMeasure, Measured]
    c: float | None = None
    control_c: float | None = None
    memorised: float | None = None
    notes: tuple[str, ...] = ()


def gather(
    cases: Sequence[RoutingCase],
    sides: Mapping[str, Split],
    targets: Mapping[str, str],
    states: States,
    known: Sequence[bool],
) -> tuple[ProbeCases, int]:
    """The cases of the train and test splits with a target and a state, and how many of those with
    a state lack a target. `states` (cases, hidden) and `known` are in the order of `cases`."""
    chosen, lacking = [], 0
    for index, case in enumerate(cases):
        if not known[index]:
            continue
        if case.case_id in targets:
            chosen.append(index)
        else:
            lacking += 1
    kept = [cases[index] for index in chosen]
    return ProbeCases(
        states=states[chosen],
        targets=np.array([targets[case.case_id] for case in kept], dtype=np.str_),
        questions=np.array([case.question_id for case in kept], dtype=np.str_),
        groups=np.array([case.group_id for case in kept], dtype=np.str_),
        train=np.array([sides[case.question_id] is Split.TRAIN for case in kept], dtype=np.bool_),
    ), lacking


def run_probe(cases: ProbeCases, settings: ProbeSettings) -> ProbeOutcome:
    """Fit on the training cases, measure on the test cases, beside the control task."""
    train, test = cases.train, ~cases.train
    counts = Counter(cases.targets[train].tolist())
    classes = sorted(counts)
    outcome = partial(
        ProbeOutcome,
        train_cases=int(train.sum()),
        test_cases=int(test.sum()),
        test_documents=len(np.unique(cases.groups[test])),
        classes={name: counts[name] for name in classes},
    )
    refused = _refusal(cases, counts, settings)
    if refused:
        none = Measured(note=refused)
        return outcome(measures=dict.fromkeys(ProbeMeasure, none))
    number = {name: index for index, name in enumerate(classes)}
    truth = np.array([number.get(name, -1) for name in cases.targets.tolist()], dtype=np.int64)
    control = control_labels(truth, cases.groups, train, settings.seed)
    scaled = cases.states.astype(np.float64)
    probe, c = fit_probe(scaled[train], truth[train], _folds_of(cases), settings)
    predicted, control_c, memorised = control, None, None
    controlled = len(np.unique(control[train])) > 1
    if controlled:
        # Folds that part documents would forbid the control what it is there to show.
        other, control_c = fit_probe(
            scaled[train], control[train], cases.questions[train], settings
        )
        predicted = other.predict(scaled)
        memorised = float(np.mean(predicted[train] == control[train]))
    found = Predictions(
        truth=truth[test],
        predicted=probe.predict(scaled[test]),
        scores=probe.predict_proba(scaled[test]),
        majority=int(np.argmax([counts[name] for name in classes])),
        control_truth=control[test],
        control_predicted=predicted[test],
        groups=cases.groups[test],
    )
    measures = measure_probe(found, settings.resamples, settings.confidence, settings.seed)
    if not controlled:
        none = Measured(note="the control task holds one class only")
        measures |= {ProbeMeasure.CONTROL: none, ProbeMeasure.SELECTIVITY: none}
    return outcome(
        measures=measures,
        c=c,
        control_c=control_c,
        memorised=memorised,
        notes=(*_flags(truth[test], settings.min_cases), _shared(cases)),
    )


def _refusal(cases: ProbeCases, counts: Counter[str], settings: ProbeSettings) -> str | None:
    train, test = int(cases.train.sum()), int((~cases.train).sum())
    if train < settings.min_cases:
        return f"{train} training cases: a probe needs {settings.min_cases}"
    if len(counts) < 2:
        return f"the training split holds one class only, {next(iter(counts))}"
    if not test:
        return "the test split holds no case with this target"
    return None


def _flags(truth: NDArray[np.int64], min_cases: int) -> tuple[str, ...]:
    flags = []
    if len(truth) < min_cases:
        flags.append(f"only {len(truth)} test cases: so few say little about a probe")
    unseen = int((truth < 0).sum())
    if unseen:
        flags.append(f"{unseen} test cases of classes that were not trained on count as wrong")
    return tuple(flags)


def _shared(cases: ProbeCases) -> str:
    """How many test documents the probe may know by heart, and so what its control can tell."""
    documents = set(cases.groups[~cases.train].tolist())
    known = len(documents & set(cases.groups[cases.train].tolist()))
    if known:
        return f"{known} of {len(documents)} test documents also stand in training"
    return "no test document stands in training: the control has nothing but the class shares"


def _folds_of(cases: ProbeCases) -> NDArray[np.str_]:
    """What stays together in cross-validation, by training case: a document where every case of one
    has the same target, and two targets have two documents or more, else a question."""
    groups, questions = cases.groups[cases.train], cases.questions[cases.train]
    targets = set(zip(groups.tolist(), cases.targets[cases.train].tolist(), strict=True))
    # Where a target's only document is held out, one class may be all that is left to fit.
    several = [each for each in Counter(target for _, target in targets).values() if each > 1]
    by_document = len(targets) == len(np.unique(groups)) and len(several) > 1
    return groups if by_document else questions


def control_labels(
    truth: NDArray[np.int64],
    groups: NDArray[np.str_],
    train: NDArray[np.bool_],
    seed: int,
) -> NDArray[np.int64]:
    """A control label for each case, the same for all cases of a document.

    The documents with a training case are dealt labels, and keep them in the test split; the others
    draw from what was dealt. On average over seeds the labels have the shares that the classes have
    among the training cases, but for a class that no document would get: it takes one from the most
    frequent, where there are as many documents as classes.
    """
    draw = np.random.default_rng(seed)
    names, member = np.unique(groups, return_inverse=True)
    trained = np.isin(names, groups[train])
    ranked = np.sort(truth[train])
    # One random start for all places: each case is as likely to give its label as any other.
    places = (np.arange(trained.sum()) + draw.random()) * len(ranked) / trained.sum()
    labels = ranked[np.minimum(places.astype(np.int64), len(ranked) - 1)]
    if len(labels) >= len(np.unique(ranked)):
        for label in np.setdiff1d(ranked, labels):
            labels[np.argmax(labels == np.bincount(labels).argmax())] = label
    labels = draw.permutation(labels)
    dealt = np.empty(len(names), dtype=np.int64)
    dealt[trained] = labels
    dealt[~trained] = draw.choice(labels, size=int((~trained).sum()))
    return dealt[member]


def fit_probe(
    states: NDArray[np.float64],
    labels: NDArray[Any],
    together: NDArray[np.str_],
    settings: ProbeSettings,
) -> tuple[Pipeline, float]:
    """Logistic regression on standardised states, and the C that it was given.

    Of `settings.c`, the one whose held-out log-loss is least, in folds that keep the cases of one
    name in `together` (a question, or a document) together; of equal ones the strongest
    regularisation. Log-loss tells probes apart that accuracy can't, such as two that say the
    majority class of everything.
    """
    return fit_head(
        linear_head, states, labels, together, settings.c, settings.folds, settings.seed
    )


def linear_head(c: float) -> Pipeline:
    """An unfitted probe: standardisation, then logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    return Pipeline(
        [("scaler", StandardScaler()), ("model", LogisticRegression(C=c, max_iter=2000))]
    )


def fit_head(
    make: Callable[[float], Pipeline],
    states: NDArray[np.float64],
    labels: NDArray[Any],
    questions: NDArray[np.str_],
    grid: Sequence[float],
    folds: int,
    seed: int,
) -> tuple[Pipeline, float]:
    """`make(c)` fitted on all cases, with the c of `grid` that grouped cross-validation chooses."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.metrics import log_loss
    from sklearn.model_selection import StratifiedGroupKFold

    classes, members = np.unique(labels, return_counts=True)
    ways = min(folds, int(members.max()), len(np.unique(questions)))
    losses = dict.fromkeys(sorted(grid), 0.0)
    with warnings.catch_warnings():
        # A weakly regularised fit that stops early is one of the candidates, and rarely the best.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # A class with fewer cases than folds is missing from some, and has no chance there.
        warnings.filterwarnings("ignore", message="The least populated class")
        if len(losses) > 1 and ways > 1:
            cut = StratifiedGroupKFold(ways, shuffle=True, random_state=seed)
            for fit, held in cut.split(states, labels, questions):
                seen = np.unique(labels[fit])
                if len(seen) < 2:
                    continue
                for c in losses:
                    chances = np.zeros((len(held), len(classes)))
                    head = make(c).fit(states[fit], labels[fit])
                    chances[:, np.isin(classes, seen)] = head.predict_proba(states[held])
                    loss = log_loss(labels[held], _certain(chances), labels=classes)
                    losses[c] += loss * len(held)
        best = min(losses, key=lambda c: (losses[c], c))
        return make(best).fit(states, labels), best


def _certain(chances: NDArray[np.float64]) -> NDArray[np.float64]:
    # A class that a fold has not seen has no chance in it; its log would be minus infinity.
    bounded = np.clip(chances, 1e-12, 1)
    total: NDArray[np.float64] = bounded / bounded.sum(axis=1, keepdims=True)
    return total
