"""Heads, estimated lengths, and JSON lines as strangers write them."""

from __future__ import annotations

import gzip
from collections import defaultdict
from pathlib import Path

import pytest

from prerouter.core.errors import InputError
from prerouter.sources.text_files import (
    CHARACTERS_PER_TOKEN,
    CHARACTERS_PER_TOKEN_POOLED,
    estimate_tokens,
    head_of,
    read_json_lines,
)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("\ufeffA\u00a0b\u2028c\x85d\u3000 e", "A b c d e"),
        (
            "zero\u200bwidth\u2060, soft\xadhyphen, \u202eturned\u202c",
            "zerowidth, softhyphen, turned",
        ),
        ("cafe\u0301 nai\u0308ve", "caf\u00e9 na\u00efve"),
        ("bell\x07 and escape\x1b[31m", "bell and escape[31m"),
        ("\u200b \ufeff\n", None),
        ("", None),
    ],
)
def test_a_head_is_visible_text_with_single_spaces(text: str, head: str | None) -> None:
    assert head_of(text, 100) == head


@pytest.mark.parametrize(
    ("characters", "head"), [(0, None), (3, "one"), (4, "one"), (99, "one two")]
)
def test_a_head_is_no_longer_than_asked(characters: int, head: str | None) -> None:
    assert head_of(" one   two ", characters) == head


def test_the_ratios_are_those_of_the_published_counts(lara_dir: Path) -> None:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    seen = set()
    off: dict[str, list[float]] = defaultdict(list)
    for line in read_json_lines(lara_dir / "queries.jsonl.gz"):
        assert line.value is not None
        row = line.value
        if row["file"] in seen:
            continue
        seen.add(row["file"])
        for name in (row["doc_type"], "all"):
            sums[name][0] += row["n_chars"]
            sums[name][1] += row["n_tokens"]
        estimate = estimate_tokens(row["n_chars"], row["doc_type"])
        off[row["doc_type"]].append(abs(estimate / row["n_tokens"] - 1))
    ratios = {name: round(chars / tokens, 3) for name, (chars, tokens) in sums.items()}
    assert ratios.pop("all") == pytest.approx(CHARACTERS_PER_TOKEN_POOLED)
    assert ratios == CHARACTERS_PER_TOKEN
    # What the docstring of estimate_tokens says.
    assert max(max(values) for values in off.values()) < 0.165
    means = {name: sum(values) / len(values) for name, values in off.items()}
    assert min(means.values()) == pytest.approx(0.03, abs=0.005)
    assert max(means.values()) == pytest.approx(0.06, abs=0.005)


def test_an_unknown_type_takes_the_pooled_ratio() -> None:
    assert estimate_tokens(4280) == estimate_tokens(4280, "poem") == 1000


def test_lines_end_at_line_feeds_only(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes('\ufeff{"a": "x\u2028y\x85z"}\r\n\n{"a": 2}'.encode())
    lines = list(read_json_lines(path))
    assert [line.value for line in lines] == [{"a": "x\u2028y\x85z"}, {"a": 2}]
    assert [line.place for line in lines] == [f"{path}:1", f"{path}:3"]
    assert [line.ended for line in lines] == [True, False]


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"x" * 99, mtime=0)[:20]])
def test_a_spoilt_archive_is_an_error_of_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"rows\.jsonl\.gz: can't be read"):
        list(read_json_lines(path))


def test_numbers_too_long_for_python_are_a_bad_line(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": ' + "9" * 10_000 + "}\n")
    (line,) = read_json_lines(path)
    assert line.problem is not None
    assert line.problem.reason == "unreadable_line"
