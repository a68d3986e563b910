"""Entropy of a RAG answer's first tokens against its error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from prerouter.core.records import Answer, Route, RoutingCase
from prerouter.measures.entropy_error import EntropyError, entropy_against_error
from prerouter.measures.entropy_routing import answer_entropy
from prerouter.reporting import charts
from prerouter.reporting.contents import (
    Cell,
    Column,
    Figure,
    Section,
    Table,
    count_cell,
    measured_cell,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.tables import fixed

_MOST_POINTS = 1_500


class _Scored(NamedTuple):
    """A RAG answer with its mean entropy in bits, and its error from 0 (full marks) to 1."""

    case: RoutingCase
    answer: Answer
    bits: float
    error: float


def entropy(material: Material) -> Section:
    """The scatter with its bins, and Pearson's r over all and over each answer model. Answers
    without entropies are counted."""
    title = "Entropy against error"
    scored: list[_Scored] = []
    without = bounds = 0
    for case in material.cases:
        answer, pair = (
            material.answers.get((case.case_id, Route.RAG)),
            material.score_of.get(case.case_id),
        )
        arm = pair.arms[Route.RAG] if pair else None
        if answer is None or pair is None or arm is None or arm.score is None:
            continue
        bits = answer_entropy(answer)
        if bits is None:
            without += 1
            continue
        bounds += answer.entropies_are_bounds
        error = (pair.high - arm.score) / (pair.high - pair.low)
        scored.append(_Scored(case, answer, bits, error))
    if not scored:
        return Section(
            "entropy", title, ["No scored RAG answer holds token entropies: nothing to show."]
        )
    rows = {
        name: _measured(material, own)
        for name, part in material.by_answer_model()
        if (own := [each for each in scored if each.case.answer_model.name in part.answer_models])
    }
    measured = next(iter(rows.values()))
    answered = material.recipe.answer
    first = answered.entropy_tokens if answered and answered.entropy_tokens else "measured"
    words = [
        f"Mean entropy, in bits, of the first {first} tokens of each RAG answer; error is "
        "how far its score is from full marks, as a share of the scale.",
        *([f"{without:,} scored RAG answers hold no entropies: left out."] if without else []),
        *([f"{bounds:,} of the entropies are lower bounds."] if bounds else []),
        *([f"{measured.caution.capitalize()}."] if measured.caution else []),
    ]
    return Section(
        "entropy",
        title,
        words,
        [
            _figure([(each.bits, each.error) for each in scored], measured),
            _correlation(rows),
            _bins(measured),
            _answers(scored),
        ],
    )


def _measured(material: Material, scored: Sequence[_Scored]) -> EntropyError:
    return entropy_against_error(
        [each.bits for each in scored],
        [each.error for each in scored],
        np.array([each.case.group_id for each in scored], dtype=object),
        min_cases=material.section.min_cases,
        **material.resampling,
    )


def _figure(points: list[charts.Point], measured: EntropyError) -> Figure:
    step = -(-len(points) // _MOST_POINTS)
    means = [(bin_.mean_entropy, bin_.mean_error) for bin_ in measured.bins]
    said = ", ".join(f"{y:.2f} at {x:.2f} bits" for x, y in means)
    return Figure(
        name="entropy",
        title="Error of RAG answers by the entropy of their first tokens",
        alternative=f"Single answers and the mean error of bins: {said}.",
        size=(8.2, 3.8),
        paint=charts.line_panels(
            [
                charts.LinePanel(
                    "",
                    [
                        charts.Line("answers", points[::step], number=6, connected=False),
                        charts.Line("mean of a bin", means, number=1),
                    ],
                )
            ],
            "Mean entropy of the first tokens, bits",
            "Error",
            across=1,
        ),
    )


def _correlation(rows: Mapping[str, EntropyError]) -> Table:
    return Table(
        name="entropy",
        caption="Pearson's r of entropy and error",
        columns=[Column("Answers of", numeric=False), *map(Column, ("r", "Answers", "Documents"))],
        rows=[
            [
                text_cell(name),
                measured_cell(measured.pearson, fixed),
                count_cell(measured.n, measured.caution),
                count_cell(measured.n_groups),
            ]
            for name, measured in rows.items()
        ],
    )


def _answers(scored: Sequence[_Scored]) -> Table:
    return Table(
        name="entropy-answers",
        caption="Entropy and error of every answer",
        columns=[
            Column("Case", numeric=False),
            Column("Answer model", numeric=False),
            *map(Column, ("Mean bits", "Error")),
            Column("Entropy is", numeric=False),
        ],
        rows=[
            [
                text_cell(each.case.case_id),
                text_cell(each.case.answer_model.name),
                Cell(fixed(each.bits), each.bits),
                Cell(fixed(each.error), each.error),
                text_cell("a lower bound" if each.answer.entropies_are_bounds else "exact"),
            ]
            for each in scored
        ],
        shown=False,
    )


def _bins(measured: EntropyError) -> Table:
    return Table(
        name="entropy-bins",
        caption="Mean error by entropy",
        columns=[
            Column("Bin", numeric=False),
            *map(Column, ("Bits from", "Bits to", "Mean bits", "Mean error", "Answers")),
        ],
        rows=[
            [
                text_cell(str(number)),
                *(
                    Cell(fixed(value), value)
                    for value in (bin_.low, bin_.high, bin_.mean_entropy, bin_.mean_error)
                ),
                count_cell(bin_.n),
            ]
            for number, bin_ in enumerate(measured.bins, start=1)
        ],
        folded=True,
    )
