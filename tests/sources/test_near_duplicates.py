"""Components on the real documents, and on made texts whose overlaps are known."""

from __future__ import annotations

import random

import pytest

from prerouter.core.records import DocumentProfile
from prerouter.sources.loaded import Loaded
from prerouter.sources.near_duplicates import (
    FORM_LANGUAGE_DOCUMENTS,
    Components,
    JoinReason,
    find_components,
)

RUN = 50


def _words(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    return [f"w{rng.randrange(100_000)}" for _ in range(count)]


def _profile(name: str, title: str | None = None, head: str | None = None) -> DocumentProfile:
    return DocumentProfile(document_id=name, title=title, head=head)


def _find(bodies: dict[str, str], run_words: int = RUN) -> Components:
    return find_components([_profile(name) for name in bodies], bodies, run_words)


@pytest.fixture(scope="module")
def lara_components(compact: Loaded) -> Components:
    return find_components([case.document for case in compact.cases], compact.bodies, RUN)


def test_lara_filings_do_not_grow_into_one_component(lara_components: Components) -> None:
    assert lara_components.compared_by_text == 12
    assert lara_components.compared_by_title_or_head == 89
    assert lara_components.largest == 2
    assert JoinReason.SHARED_RUNS not in lara_components.pairs


def test_lara_files_with_one_title_are_joined(lara_components: Components) -> None:
    members: dict[str, list[str]] = {}
    for document, component in lara_components.component_of.items():
        members.setdefault(component, []).append(document)
    joined = sorted(sorted(group) for group in members.values() if len(group) > 1)
    assert joined == [
        ["128k/paper/128k_paper_1.md", "128k/paper/128k_paper_10.md"],
        ["128k/paper/128k_paper_12.md", "128k/paper/128k_paper_13.md"],
        ["128k/paper/128k_paper_29.md", "32k/paper/32k_paper_14.md"],
        ["32k/paper/32k_paper_11.md", "32k/paper/32k_paper_5.md"],
    ]
    assert lara_components.count == 101 - 4


def test_short_runs_would_join_the_filings(clone: Loaded) -> None:
    """The form language is there: a rule that asks for less makes most filings one component."""
    profiles = [case.document for case in clone.cases]
    assert find_components(profiles, clone.bodies, 5).largest >= 4
    assert find_components(profiles, clone.bodies, RUN).largest == 1


@pytest.mark.parametrize(("shared", "joined"), [(549, True), (548, False), (120, False)])
def test_the_amount_of_shared_text_decides(shared: int, joined: bool) -> None:
    common = _words(0, shared)
    bodies = {
        "a": " ".join(_words(1, 2000) + common + _words(2, 2000)),
        "b": " ".join(_words(3, 3000) + common),
    }
    found = _find(bodies)
    assert (found.component_of["a"] == found.component_of["b"]) is joined
    assert found.pairs == ({JoinReason.SHARED_RUNS: 1} if joined else {})


def test_a_document_in_between_hides_no_pair() -> None:
    """`b` holds a tenth of what `a` and `c` share, and sorts between them."""
    common = _words(0, 560)
    bodies = {
        "a": " ".join(_words(1, 900) + common),
        "b": " ".join(_words(2, 900) + common[:100]),
        "c": " ".join(common + _words(3, 900)),
    }
    assert _find(bodies).component_of == {"a": "a", "b": "b", "c": "a"}


def test_case_punctuation_and_hidden_characters_do_not_hide_a_copy() -> None:
    words = _words(0, 700)
    disguised = ",\u00a0".join(
        word.upper() if i % 2 else f"{word[0]}\u200b{word[1:]}" for i, word in enumerate(words)
    )
    bodies = {"a": " ".join(_words(1, 900) + words), "b": disguised + "\ufeff" + "tail " * 30}
    assert _find(bodies).count == 1


def test_components_are_transitive_and_named_by_the_smallest_id() -> None:
    one, two = _words(1, 600), _words(2, 600)
    bodies = {
        "z": " ".join(one + _words(3, 800)),
        "m": " ".join(one + two),
        "b": " ".join(two + _words(4, 800)),
        "other": " ".join(_words(5, 900)),
    }
    assert _find(bodies).component_of == {"b": "b", "m": "b", "z": "b", "other": "other"}


def test_the_order_of_documents_changes_nothing() -> None:
    common = _words(0, 600)
    bodies = {f"d{i}": " ".join(_words(i + 1, 700) + common * (i % 3 == 0)) for i in range(8)}
    backwards = dict(reversed(bodies.items()))
    assert _find(bodies) == _find(backwards)


def test_text_that_stands_in_many_documents_is_form_language() -> None:
    licence = _words(0, 1500)

    def with_licence(count: int) -> dict[str, str]:
        return {f"d{i:02}": " ".join(_words(i + 1, 2500) + licence) for i in range(count)}

    few = _find(with_licence(FORM_LANGUAGE_DOCUMENTS))
    many = _find(with_licence(FORM_LANGUAGE_DOCUMENTS + 1))
    assert few.count == 1
    assert many.largest == 1
    assert many.form_language_runs == 1500 - RUN + 1


def test_word_for_word_copies_are_joined_however_many() -> None:
    body = " ".join(_words(0, 300))
    found = _find({f"copy{i:02}": body for i in range(25)} | {"short": "two words"})
    assert found.largest == 25
    assert found.pairs == {JoinReason.SAME_TEXT: 24}


def test_short_documents_are_joined_by_half_their_runs() -> None:
    common = _words(0, 150)
    bodies = {"a": " ".join(common + _words(1, 60)), "b": " ".join(common + _words(2, 60))}
    assert _find(bodies).count == 1


def test_scripts_without_spaces_are_compared_by_character() -> None:
    rng = random.Random(0)

    def text(count: int) -> str:
        return "".join(chr(0x4E00 + rng.randrange(3000)) for _ in range(count))

    common = text(700)
    assert _find({"a": text(900) + common, "b": common + text(900), "c": text(900)}).count == 2


HEAD = "In the spring of that year the firm moved its offices to the harbour and hired again"


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ({"title": "Annual Report 2023"}, {"title": "ANNUAL  report, 2023"}, JoinReason.SAME_TITLE),
        ({"head": HEAD}, {"head": HEAD.upper() + "."}, JoinReason.SAME_HEAD),
        ({"title": "form10-k"}, {"title": "form10-k"}, None),
        ({"title": "One thing or another"}, {"title": "Another thing or one"}, None),
        ({"head": "Page 1"}, {"head": "Page 1"}, None),
        ({}, {}, None),
    ],
)
def test_without_text_title_or_head_decide(
    one: dict[str, str], other: dict[str, str], reason: JoinReason | None
) -> None:
    found = find_components([_profile("a", **one), _profile("b", **other)], {}, RUN)
    assert found.pairs == ({reason: 1} if reason else {})
    assert found.compared_by_text == 0
    assert found.compared_by_title_or_head == 2


def test_texts_that_were_compared_are_not_joined_by_a_title() -> None:
    profiles = [_profile(name, title="The same long title") for name in "abc"]
    bodies = {"a": " ".join(_words(1, 800)), "b": " ".join(_words(2, 800))}
    assert find_components(profiles[:2], bodies, RUN).count == 2
    # The third has no text, so that it may be a copy of either.
    assert find_components(profiles, bodies, RUN).count == 1


def test_a_title_on_many_documents_joins_none() -> None:
    profiles = [_profile(f"d{i}", title="Quarterly report") for i in range(11)]
    assert find_components(profiles, {}, RUN).largest == 1
    assert find_components(profiles[:10], {}, RUN).largest == 10


def test_nothing_gives_nothing_and_the_report_names_every_reason() -> None:
    found = find_components([], {}, RUN)
    assert found.component_of == {}
    assert found.report["components"] == found.report["largest_component"] == 0
    assert {f"pairs_joined_by_{reason.value}" for reason in JoinReason} <= set(found.report)
