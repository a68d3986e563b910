"""Curves of training, as pictures and as files of numbers."""

from __future__ import annotations

import pytest

from prerouter.reporting.curves import losses, watched
from prerouter.reporting.figures import draw
from prerouter.reporting.numbers import table_csv


def test_the_file_of_numbers_holds_every_point_unrounded() -> None:
    figure, table = losses([(1, 3.123456789, None), (2, 0.5, None)])
    assert table_csv(table) == "Step,Loss\n1,3.123456789\n2,0.5\n"
    assert figure.alternative == "The training loss goes from 3.123 at step 1 to 0.5 at step 2."


def test_what_was_watched_has_a_column_each() -> None:
    _, table = watched([(5, 0.5, 0.25, 1.0), (10, 0.75, 0.5, 1.0)])
    assert table_csv(table).splitlines() == [
        "Step,Route accuracy,LC rate,Parse rate",
        "5,0.5,0.25,1.0",
        "10,0.75,0.5,1.0",
    ]


def test_one_point_is_drawn_as_well() -> None:
    pytest.importorskip("matplotlib")
    for figure, axis in (
        (losses([(1, 2.0, None)])[0], "Nats a completion token"),
        (watched([(1, 0.5, 0.5, 1.0)])[0], "parse rate"),
    ):
        assert axis in draw(figure).svg


def test_the_token_accuracy_is_a_panel_of_its_own_where_it_is_known() -> None:
    figure, table = losses([(1, 2.0, 0.25), (2, 1.0, None), (3, 0.5, 0.75)])
    assert table_csv(table) == "Step,Loss,Token accuracy\n1,2.0,0.25\n2,1.0,\n3,0.5,0.75\n"
    assert figure.alternative.endswith("The token accuracy goes from 25% to 75%.")
    pytest.importorskip("matplotlib")
    assert "Token accuracy" in draw(figure).svg
