from __future__ import annotations

import numpy as np
import pytest

from prerouter.core.errors import StageError
from prerouter.measures.escalation import (
    fallback_rates,
    rag_was_right,
    routing_precision,
    token_efficiency,
    trigger_rates,
)

GROUPS = ["a", "a", "b", "b", "c", "c"]


def test_the_oracle_keeps_full_marks_and_what_lc_does_no_better() -> None:
    right = rag_was_right([4, 2, 2, 2, 0], [4, 2, 3, 1, 0], high=4)
    assert right.tolist() == [True, True, False, True, True]
    # On a scale that ends at 3, three are full marks.
    assert rag_was_right([3.0], [3.0], high=3).tolist() == [True]
    with pytest.raises(StageError, match="above 1"):
        rag_was_right([3], [4], high=1)


def test_routing_precision_counts_both_kinds_of_decisions() -> None:
    escalated = [1, 1, 0, 0, 0, 0]
    right = [0, 1, 1, 1, 1, 0]
    found = routing_precision(escalated, right, GROUPS)
    assert found.value == pytest.approx(4 / 6)
    assert found.interval is not None
    assert found.interval.n_groups == 3
    assert found.interval.low < found.value < found.interval.high


def test_over_and_under_triggering_are_shares_of_their_own_kind() -> None:
    escalated = [1, 0, 0, 0, 1, 0]
    answerable = [1, 1, 1, 1, 0, 0]
    found = trigger_rates(escalated, answerable, GROUPS)
    assert (found.n_answerable, found.n_unanswerable) == (4, 2)
    assert found.over.value == 0.25
    assert found.under.value == 0.5
    assert "only 2 cases of one kind" in (found.caution or "")


def test_a_kind_without_cases_has_no_rate() -> None:
    found = trigger_rates([1, 0], [1, 1], ["a", "b"])
    assert found.over.value == 0.5
    assert found.under.value is None
    assert found.under.note == "n/a: no case of the kind"


def test_fallback_rates_by_a_key_that_some_cases_lack() -> None:
    rows = fallback_rates(
        [1, 0, 1, 1, 0, 0], ["point", "point", None, "all", "point", None], GROUPS
    )
    assert [(row.value, row.n, row.rate.value) for row in rows] == [
        ("all", 1, 1.0),
        ("point", 3, pytest.approx(1 / 3)),
        (None, 2, 0.5),
    ]
    assert rows[0].rate.note == "no interval: fewer than two documents to resample"
    with pytest.raises(StageError, match="1 values of the key for 6 cases"):
        fallback_rates([0] * 6, ["point"], GROUPS)


def test_token_efficiency_is_the_gain_per_token_more() -> None:
    qa, rag = [1, 1, 0, 1, 1, 0], [0, 1, 0, 0, 1, 0]
    tokens = [1100, 100, 100, 1100, 100, 100]
    found = token_efficiency(qa, rag, tokens, [100] * 6, GROUPS)
    assert found.value == pytest.approx(2 / 2000)
    assert found.interval is not None
    # Resamples of the last document alone read no token more: there is no ratio, and that is said.
    assert found.interval.left_out > 0
    assert "leaves out" in (found.note or "")


def test_token_efficiency_where_nothing_more_is_read() -> None:
    found = token_efficiency([1, 1], [0, 1], [100, 100], [100, 100], ["a", "b"])
    assert found.value is None
    assert found.note == "n/a: no token more is read than by always RAG"


def test_intervals_resample_documents_and_not_cases() -> None:
    # 20 documents of 10 questions, each escalated as a whole.
    groups = np.repeat(np.arange(20), 10)
    escalated = (groups % 2).astype(float)
    by_document = routing_precision(escalated, np.zeros(200), groups).interval
    by_case = routing_precision(escalated, np.zeros(200), np.arange(200)).interval
    assert by_document is not None
    assert by_case is not None
    assert by_document.high - by_document.low > 2 * (by_case.high - by_case.low)


def test_no_cases_are_refused() -> None:
    with pytest.raises(StageError, match="no cases"):
        routing_precision([], [], [])
    with pytest.raises(StageError, match="1 values for 2 cases"):
        routing_precision([1], [1, 0], ["a", "b"])
