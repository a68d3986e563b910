"""Tables of a prompt study: what is few, left out or collapsed stands in each of them."""

from __future__ import annotations

import csv
import io

from prerouter.core.records import Route
from prerouter.measures.best_of_n import BestOfN
from prerouter.measures.statistics import Measured
from prerouter.reporting.numbers import table_csv
from prerouter.reporting.study_table import best_of_table, study_table, table_markdown

from .test_tables import make_row


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_the_numbers_tell_few_cases_missing_labels_and_a_collapse() -> None:
    rows = [
        make_row(router="a", few_cases=True, collapsed=Route.LC, unseen=True),
        make_row(router="b"),
    ]
    one, other = rows_of(table_csv(study_table(rows)))
    assert (one["few cases"], one["unlabelled"], one["collapsed"]) == ("yes", "12", "LC")
    assert (other["few cases"], other["unlabelled"], other["collapsed"]) == ("no", "12", "")
    assert one["cases, note"] == "so few cases say little about a router"
    assert one["collapsed, note"] == "collapsed: always LC"
    assert one["answer model, note"] == "no router learnt from cases of this answer model"


def best(**changes: object) -> BestOfN:
    fields: dict[str, object] = {
        "samples": 4,
        "n": 9,
        "n_groups": 1,
        "too_few_samples": 3,
        "unlabelled": 2,
        "oracle": Measured(value=0.75, note="fewer than two documents"),
        "majority": Measured(note="no labelled case has 4 samples or more"),
        "caution": "only 9 cases",
    }
    return BestOfN.model_validate(fields | changes)


def test_best_of_n_says_what_was_left_out_and_why_there_is_no_value() -> None:
    table = best_of_table({"large, full": [best()]})
    markdown = table_markdown(table, "The note.")
    assert "| large, full | 4 | 9 (1) | 3 | 2 | 0.750 (2) | n/a (3) |" in markdown
    for note in (
        "(1) only 9 cases.",
        "(2) fewer than two documents.",
        "(3) no labelled case has 4 samples or more.",
    ):
        assert f"\n\n{note}\n" in markdown
    (row,) = rows_of(table_csv(table))
    assert (row["too few samples"], row["unlabelled"]) == ("3", "2")
    assert row["cases, note"] == "only 9 cases"
