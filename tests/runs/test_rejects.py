from __future__ import annotations

from prerouter.runs.rejects import MOST_RAW, cut_raw


def test_a_reply_beyond_all_measure_is_kept_by_its_ends() -> None:
    assert cut_raw("x" * MOST_RAW) == "x" * MOST_RAW
    cut = cut_raw("begins" + "x" * 60_000_000 + "ends")
    assert len(cut) < MOST_RAW + 100
    assert cut.startswith("begins")
    assert cut.endswith("ends")
    assert f"[{60_000_010 - MOST_RAW} characters left out]" in cut
