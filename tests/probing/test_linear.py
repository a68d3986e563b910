from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from prerouter.core.records import (
    AnswerModel,
    DocumentProfile,
    RoutingCase,
    Split,
)
from prerouter.measures.probes import ProbeMeasure
from prerouter.probing.linear import (
    ProbeCases,
    ProbeSettings,
    control_labels,
    fit_probe,
    gather,
    run_probe,
)

SETTINGS = ProbeSettings(
    c=(1e-4, 1e-2, 1.0), folds=4, resamples=100, confidence=0.95, min_cases=30, seed=7
)


def probe_cases(questions: int = 150, signal: float = 2.0, seed: int = 0) -> ProbeCases:
    """Two cases a question (two answer models), ten questions a document, a label for each question
    which stands in one of 20 directions; the last third of the documents are the test split."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, questions)
    states = draw.normal(size=(2 * questions, 20)).astype(np.float32)
    states[:, 3] += signal * (2 * np.repeat(labels, 2) - 1)
    number = np.repeat(np.arange(questions), 2)
    return ProbeCases(
        states=states,
        targets=np.where(np.repeat(labels, 2) == 1, "LC", "RAG"),
        questions=np.array([f"q{each:04}" for each in number]),
        groups=np.array([f"d{each // 10:03}" for each in number]),
        train=number < questions * 2 // 3,
    )


def value(cases: ProbeCases, measure: ProbeMeasure) -> float:
    found = run_probe(cases, SETTINGS).measures[measure].value
    assert found is not None
    return found


def test_it_reads_what_is_there_and_nothing_where_nothing_is() -> None:
    there, nothing = probe_cases(), probe_cases(signal=0.0)
    assert value(there, ProbeMeasure.ACCURACY) > 0.9
    assert value(there, ProbeMeasure.SELECTIVITY) > 0.25
    assert value(there, ProbeMeasure.AUC) > 0.95
    assert 0.3 < value(nothing, ProbeMeasure.ACCURACY) < 0.7
    assert 0.3 < value(nothing, ProbeMeasure.CONTROL) < 0.7


def test_it_counts_what_it_saw() -> None:
    cases = probe_cases()
    found = run_probe(cases, SETTINGS)
    assert (found.train_cases, found.test_cases, found.test_documents) == (200, 100, 5)
    assert sum(found.classes.values()) == 200
    assert found.c in SETTINGS.c
    # Its documents stand on one side: what the control can tell then is said.
    assert found.notes == (
        "no test document stands in training: the control has nothing but the class shares",
    )


def test_a_wide_probe_learns_its_control_by_heart_and_that_shows() -> None:
    draw = np.random.default_rng(1)
    cases = probe_cases()
    wide = replace(cases, states=draw.normal(size=(len(cases.targets), 800)).astype(np.float32))
    settings = replace(SETTINGS, c=(1.0,))
    found = run_probe(wide, settings)
    assert found.memorised == 1.0
    control = found.measures[ProbeMeasure.CONTROL].value
    assert control is not None
    assert control < 0.7


def by_question(cases: ProbeCases) -> ProbeCases:
    """The same cases, split by question: every document stands on both sides."""
    return replace(cases, train=np.arange(len(cases.train)) // 2 % 3 > 0)


@pytest.mark.parametrize("split", [lambda cases: cases, by_question])
def test_a_control_label_belongs_to_a_document_and_keeps_the_shares(split: object) -> None:
    assert callable(split)
    cases = split(probe_cases(questions=600))
    truth = (cases.targets == "LC").astype(np.int64)
    control = control_labels(truth, cases.groups, cases.train, seed=7)
    for document in np.unique(cases.groups):
        assert len(set(control[cases.groups == document].tolist())) == 1
    dealt, real = control[cases.train].mean(), truth[cases.train].mean()
    assert dealt == pytest.approx(real, abs=0.02)
    assert (control != truth)[cases.train].mean() > 0.3
    again = control_labels(truth, cases.groups, cases.train, seed=7)
    other = control_labels(truth, cases.groups, cases.train, seed=8)
    assert np.array_equal(control, again)
    assert not np.array_equal(control, other)


@pytest.mark.parametrize(("documents", "expected"), [(5, 1.0), (15, 1.5)])
def test_few_documents_keep_the_minority_and_its_share_on_average(
    documents: int, expected: float
) -> None:
    truth = np.arange(documents * 21) % 10 == 9
    groups = np.repeat([f"d{number:02}" for number in range(documents)], 21)
    dealt = [
        control_labels(truth.astype(np.int64), groups, np.ones(len(truth), dtype=bool), seed)
        for seed in range(200)
    ]
    counts = [len(set(groups[control == 1].tolist())) for control in dealt]
    assert min(counts) == 1
    assert np.mean(counts) == pytest.approx(expected, abs=0.15)
    # Each document is as likely to bear it as any other.
    bearing = np.mean([control[::21] for control in dealt], axis=0)
    assert bearing == pytest.approx(np.full(documents, expected / documents), abs=0.12)


def test_with_fewer_documents_than_classes_some_class_has_none() -> None:
    truth = np.arange(40) % 4
    groups = np.repeat(["a", "b"], 20)
    dealt = control_labels(truth, groups, np.ones(40, dtype=bool), seed=7)
    assert len(set(dealt.tolist())) == 2


def test_a_probe_that_knows_documents_by_heart_is_caught_where_they_stand_on_both_sides() -> None:
    # A state tells the document and nothing else, and a document's cases have one target: right on
    # the test split, and no better than the control.
    draw = np.random.default_rng(3)
    cases = by_question(probe_cases(questions=300))
    number = np.arange(len(cases.targets)) // 20
    knows = replace(
        cases,
        states=draw.normal(size=(30, 60)).astype(np.float32)[number],
        targets=np.where(draw.integers(0, 2, 30) == 1, "LC", "RAG")[number],
    )
    found = run_probe(knows, replace(SETTINGS, c=(1.0,)))
    values = {name: measured.value for name, measured in found.measures.items()}
    assert values[ProbeMeasure.ACCURACY] == values[ProbeMeasure.CONTROL] == 1.0
    assert values[ProbeMeasure.SELECTIVITY] == 0.0
    assert "30 of 30 test documents also stand in training" in found.notes


@pytest.mark.parametrize("first", ["novel", "the only poem"])
def test_a_target_of_the_document_is_cross_validated_by_documents(first: str) -> None:
    # Noise of a document's own tells its label to folds that part its questions.
    draw = np.random.default_rng(5)
    number = np.repeat(np.arange(60), 4)
    labels = draw.integers(0, 2, 60)
    cases = ProbeCases(
        states=draw.normal(size=(60, 200)).astype(np.float32)[number],
        targets=np.array([first, *np.where(labels == 1, "novel", "paper")[1:]])[number],
        questions=np.array([f"q{index:03}" for index in range(240)]),
        groups=np.array([f"d{each:02}" for each in number]),
        train=np.arange(240) % 4 > 0,
    )
    found = run_probe(cases, SETTINGS)
    assert found.c == min(SETTINGS.c)
    # The control is free to learn documents by heart.
    assert found.control_c == max(SETTINGS.c)


def test_a_class_of_one_document_is_cross_validated_by_questions() -> None:
    # Folds by document would have one class alone to fit.
    draw = np.random.default_rng(5)
    number = np.repeat(np.arange(2), 24)
    targets = np.array(["novel", "paper"])[number]
    states = draw.normal(size=(len(number), 20)).astype(np.float32)
    states[:, 3] += np.where(targets == "novel", 2, -2)
    cases = ProbeCases(
        states=states,
        targets=targets,
        questions=np.array([f"q{index:03}" for index in range(len(number))]),
        groups=np.array([f"d{each}" for each in number]),
        train=np.arange(len(number)) % 4 > 0,
    )
    assert run_probe(cases, SETTINGS).c == max(SETTINGS.c)


def test_a_control_of_one_class_leaves_the_probe_its_measures() -> None:
    cases = probe_cases()
    found = run_probe(replace(cases, groups=np.full(len(cases.targets), "d")), SETTINGS)
    assert found.measures[ProbeMeasure.ACCURACY].value is not None
    for measure in (ProbeMeasure.CONTROL, ProbeMeasure.SELECTIVITY):
        assert found.measures[measure].value is None
        assert found.measures[measure].note == "the control task holds one class only"


def test_cross_validation_keeps_a_question_together() -> None:
    # Each question's own noise tells its label to whoever has seen its twin: folds of rows would
    # choose the weakest regularisation, folds of questions see that nothing carries over.
    draw = np.random.default_rng(5)
    own = np.repeat(draw.normal(size=(60, 200)), 2, axis=0)
    labels = np.repeat(draw.integers(0, 2, 60), 2)
    questions = np.repeat([f"q{index:02}" for index in range(60)], 2)
    rows = np.array([f"r{index:03}" for index in range(120)])
    assert fit_probe(own, labels, questions, SETTINGS)[1] == min(SETTINGS.c)
    assert fit_probe(own, labels, rows, SETTINGS)[1] == max(SETTINGS.c)


def test_the_test_split_has_no_say_in_the_fit() -> None:
    cases = probe_cases()
    flipped = np.where(cases.targets == "LC", "RAG", "LC")
    other = replace(
        cases,
        targets=np.where(cases.train, cases.targets, flipped),
        states=np.where(cases.train[:, None], cases.states, cases.states * 1000),
    )
    mine, theirs = run_probe(cases, SETTINGS), run_probe(other, SETTINGS)
    assert (mine.c, mine.control_c, mine.memorised) == (
        theirs.c,
        theirs.control_c,
        theirs.memorised,
    )


def test_the_seed_decides_everything() -> None:
    cases = probe_cases(signal=0.3)
    assert run_probe(cases, SETTINGS) == run_probe(cases, SETTINGS)
    assert run_probe(cases, SETTINGS) != run_probe(cases, replace(SETTINGS, seed=8))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: replace(c, train=np.arange(len(c.train)) < 20), "20 training cases"),
        (lambda c: replace(c, targets=np.full(len(c.targets), "RAG")), "one class only, RAG"),
        (lambda c: replace(c, train=np.ones(len(c.train), dtype=bool)), "no case with this"),
    ],
)
def test_what_can_not_be_probed_is_refused_in_words(change: object, words: str) -> None:
    assert callable(change)
    found = run_probe(change(probe_cases()), SETTINGS)
    for each in found.measures.values():
        assert each.value is None
        assert words in str(each.note)
    assert found.c is None


def test_few_test_cases_and_unseen_classes_are_flagged() -> None:
    cases = probe_cases()
    targets = cases.targets.astype("U10")
    targets[-4:] = "elsewhere"
    train = np.arange(len(cases.train)) < len(cases.train) - 20
    found = run_probe(replace(cases, targets=targets, train=train), SETTINGS)
    assert any("only 20 test cases" in note for note in found.notes)
    assert any("4 test cases of classes that were not trained on" in n for n in found.notes)
    assert found.measures[ProbeMeasure.ACCURACY].value is not None


def test_a_rare_class_does_not_stop_the_others() -> None:
    cases = probe_cases()
    targets = cases.targets.astype("U10")
    targets[0] = "rare"
    assert run_probe(replace(cases, targets=targets), SETTINGS).classes["rare"] == 1


def test_cases_are_joined_by_name_and_those_without_a_target_counted() -> None:
    cases = [
        RoutingCase(
            case_id=f"c{number}",
            question_id=f"q{number}",
            group_id="d",
            question="Who?",
            document=DocumentProfile(document_id="d"),
            answer_model=AnswerModel(name="m"),
        )
        for number in range(4)
    ]
    sides = {"q0": Split.TRAIN, "q1": Split.TEST, "q2": Split.TRAIN, "q3": Split.TRAIN}
    states = np.arange(8, dtype=np.float32).reshape(4, 2)
    known = [True, True, True, False]
    kept, lacking = gather(cases, sides, {"c1": "LC", "c2": "RAG", "c3": "LC"}, states, known)
    assert kept.targets.tolist() == ["LC", "RAG"]
    assert kept.train.tolist() == [False, True]
    assert kept.states.tolist() == [[2, 3], [4, 5]]
    assert lacking == 1
