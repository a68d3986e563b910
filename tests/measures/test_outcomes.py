from __future__ import annotations

import numpy as np
import pytest

from prerouter.core.errors import CombinedError, StageError
from prerouter.measures.outcomes import join_outcomes, lc_probabilities
from tests.measures.matched import evaluation

MADE = evaluation(
    [(0.2, 0.8), (0.5, 0.5), (0.9, 0.1)], {"r": "LL?"}, "aab", p_lc={"r": (0.9, 0.6, 0.0)}
)


def test_cases_without_a_label_are_left_out_of_every_array() -> None:
    outcomes = join_outcomes(MADE.decisions, MADE.labels[1:], MADE.scores, MADE.cases)
    assert (outcomes.n, outcomes.n_groups, outcomes.case_ids) == (2, 2, ("c1", "c2"))
    assert outcomes.qa_of("r").tolist() == [0.5, 0.9]
    assert outcomes.right("r").tolist() == [False, False]
    assert outcomes.right("oracle").all()


def test_the_fallback_stands_for_an_undecided_case_and_is_not_right() -> None:
    outcomes = MADE.outcomes()
    assert outcomes.qa_of("r")[2] == 0.9
    assert not outcomes.right("r")[2]


def test_routers_over_other_cases_are_refused() -> None:
    decisions = {"r": MADE.decisions["r"], "s": MADE.decisions["r"][:2]}
    with pytest.raises(CombinedError, match="router s: has no decision for 1"):
        join_outcomes(decisions, MADE.labels, MADE.scores, MADE.cases)


def test_no_label_at_all_is_refused() -> None:
    with pytest.raises(StageError, match="none of 3 cases has a label"):
        join_outcomes(MADE.decisions, [], MADE.scores, MADE.cases)


def test_p_lc_follows_the_cases_and_none_is_refused() -> None:
    decisions = MADE.decisions["r"]
    assert np.array_equal(lc_probabilities("r", decisions[::-1], ["c0", "c2"]), [0.9, 0.0])
    without = [decisions[0], decisions[1].model_copy(update={"p_lc": None})]
    with pytest.raises(StageError, match=r"router r: gives no p_lc for 1 of 2 cases, c1 among"):
        lc_probabilities("r", without, ["c0", "c1"])
