"""The report from evaluations that are small, one-sided, incomplete or hostile."""

from __future__ import annotations

import csv
import html
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Canvas

from prerouter.core.errors import InputError, StageError
from prerouter.core.records import (
    Answer,
    AnswerModel,
    ArmScore,
    Decision,
    DocumentProfile,
    Rationale,
    Reference,
    Route,
    Step,
)
from prerouter.measures.importances import Importance, Importances
from prerouter.recipe.route import RouteSection
from prerouter.reporting import page, report
from prerouter.reporting.contents import (
    Column,
    Figure,
    Listing,
    Section,
    Table,
    text_cell,
)
from prerouter.reporting.material import Material
from prerouter.reporting.page import page_within
from prerouter.reporting.report import make_sections, write_report
from prerouter.runs.manifest import Fingerprint, Manifest
from tests.measures.matched import Evaluation, evaluation
from tests.reporting.made import material

HOSTILE = (
    "<script>fetch('//evil.test')</script><img src=x onerror=alert(1)> \"q\" 'a' </script>"
    "<!--</style><svg onload=alert(2)> {{ 7*7 }} \x1b[31m\u202e"
)


def sections_of(made: Material) -> dict[str, Section]:
    return {section.name: section for section in make_sections(made)}


def table(section: Section, name: str) -> Table:
    return next(p for p in section.parts if isinstance(p, Table) and p.name == name)


def column(made: Table, heading: str) -> list[str]:
    place = [column.heading for column in made.columns].index(heading)
    return [row[place].text for row in made.rows]


def usual(n: int = 40) -> Evaluation:
    """Every second case gains by LC; the student finds half of these."""
    return evaluation(
        [(0.2, 0.8) if i % 2 else (0.6, 0.4) for i in range(n)],
        {
            "always_rag": "R" * n,
            "always_lc": "L" * n,
            "student": "".join("L" if i % 4 == 1 else "R" for i in range(n)),
        },
        p_lc={"student": [0.9 if i % 4 == 1 else 0.2 for i in range(n)]},
        types=["novel" if i % 3 else "report" for i in range(n)],
    )


class Reader(HTMLParser):
    """What a browser would make of the page: its elements, and the text it shows."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def written(folder: Path, made: Material) -> Reader:
    write_report(folder / "report", made)
    return Reader((folder / "report" / "index.html").read_text("utf-8"))


def test_it_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_report(tmp_path / name, material(usual()))
    files = [p.relative_to(tmp_path / "one") for p in (tmp_path / "one").rglob("*") if p.is_file()]
    assert len(files) > 10
    for file in files:
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_every_figure_has_svg_and_png_and_every_table_its_numbers(tmp_path: Path) -> None:
    page = written(tmp_path, material(usual()))
    folder = tmp_path / "report"
    figures = {path.stem for path in (folder / "figures").iterdir()}
    assert {"plane", "errors", "comparisons", "calibration", "by-document-type"} <= figures
    for name in figures:
        assert (folder / "figures" / f"{name}.svg").read_text("utf-8").startswith("<?xml")
        assert (folder / "figures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    tables = {path.stem for path in (folder / "data").iterdir()}
    shown = {a["data-table"] for _, a in page.elements if "data-table" in a}
    assert shown <= tables
    rows = list(csv.DictReader((folder / "data" / "routing.csv").open()))
    student = next(row for row in rows if row["Router"] == "student")
    assert float(student["QA"]) == pytest.approx((0.6 * 20 + 0.8 * 10 + 0.2 * 10) / 40)
    assert float(student["QA, low"]) < float(student["QA"]) < float(student["QA, high"])


def test_nothing_is_loaded_and_the_page_is_whole(tmp_path: Path) -> None:
    page = written(tmp_path, material(usual()))
    assert (tmp_path / "report" / "index.html").stat().st_size < 5_000_000
    policy = next(a["content"] for t, a in page.elements if "http-equiv" in a)
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "script-src 'unsafe-inline'" not in policy
    for tag, attributes in page.elements:
        assert tag not in {"iframe", "object", "embed", "base", "form"}
        assert not [key for key in attributes if key.startswith("on")]
        for key in ("src", "href", "xlink:href", "srcset"):
            assert re.match(r"#|data:|figures/|data/|$", attributes.get(key) or ""), attributes
    ids = [a["id"] for _, a in page.elements if "id" in a]
    assert len(ids) == len(set(ids))


def test_tables_and_figures_can_be_read_out(tmp_path: Path) -> None:
    page = written(tmp_path, material(usual()))
    count = [tag for tag, _ in page.elements].count
    assert count("table") == count("caption") > 5
    for tag, attributes in page.elements:
        if tag == "th":
            assert attributes["scope"] in {"row", "col"}
        if attributes.get("role") == "img":
            assert len(attributes["aria-label"] or "") > 20
    assert page.elements[0] == ("html", {"lang": "en"})


def hostile() -> Material:
    made = usual()
    cases = [
        case.model_copy(
            update={
                "question": HOSTILE,
                "document": DocumentProfile(
                    document_id="d", title=HOSTILE, type=f"{HOSTILE}{i % 2}", head=HOSTILE
                ),
                "answer_model": case.answer_model.model_copy(update={"name": f"={HOSTILE}{i % 2}"}),
            }
        )
        for i, case in enumerate(made.cases)
    ]
    rationale = Rationale(steps={Step.DISTRIBUTION: HOSTILE}, reflection=HOSTILE, free_text=HOSTILE)
    decisions = {
        HOSTILE if router == "student" else router: [
            d.model_copy(update={"router": router, "rationale": rationale}) for d in some
        ]
        for router, some in made.decisions.items()
    }
    references = [
        Reference(question_id=case.question_id, level=f"{HOSTILE}{i % 2}", context_length=HOSTILE)
        for i, case in enumerate(cases)
    ]
    return material(Evaluation(decisions, made.labels, made.scores, cases), references=references)


def test_hostile_text_is_shown_and_never_obeyed(tmp_path: Path) -> None:
    plain, bad = written(tmp_path / "plain", material(usual())), written(tmp_path, hostile())
    scripts = [a for t, a in bad.elements if t == "script"]
    assert len(scripts) == 1
    assert not [t for t, _ in bad.elements if t in {"img", "style"}][1:]
    assert not [a for _, a in bad.elements if any(key.startswith("on") for key in a)]
    # No element of a kind that the page of tame texts doesn't have.
    kinds = {tag for tag, _ in plain.elements} | {"article", "h3", "dl", "div", "dt", "dd"}
    assert {tag for tag, _ in bad.elements} - kinds <= {"select", "option", "label", "q", "cite"}
    text = "".join(bad.text)
    assert "<script>fetch('//evil.test')</script><img src=x onerror=alert(1)>" in text
    assert "{{ 7*7 }}" in text
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert "\x1b" not in page
    assert "\u202e" not in page
    for path in (tmp_path / "report" / "data").iterdir():
        for row in csv.reader(path.open(newline="")):
            assert not [cell for cell in row if cell.startswith("=")]


def test_a_rationale_stands_with_its_case() -> None:
    cases = [p for p in sections_of(hostile())["regrets"].parts if p.kind == "cases"]
    assert [heading for heading, _ in cases[0].cases[0].grounds] == [
        "distribution",
        "reflection",
        "free text",
    ]
    first = cases[0].cases[0]
    assert (first.chosen, first.ideal, first.regret) == ("RAG", "LC", "0.6")
    assert first.scores == [("RAG", "0.2"), ("LC", "0.8")]


def test_long_texts_are_cut() -> None:
    made = usual()
    cases = [case.model_copy(update={"question": "x" * 50_000}) for case in made.cases]
    sections = sections_of(material(Evaluation(made.decisions, made.labels, made.scores, cases)))
    (part,) = [p for p in sections["regrets"].parts if p.kind == "cases"]
    assert part.cases[0].question == "x" * 1200 + "…"


def test_the_page_stays_under_5_mb_and_says_what_it_leaves_out(tmp_path: Path) -> None:
    made = usual(50)
    thought = Rationale(steps=dict.fromkeys(Step, "<&> " * 400), reflection="<&> " * 400)
    routers = [f"router_{number:02}" for number in range(15)]
    decisions = {
        name: [
            d.model_copy(update={"router": name, "rationale": thought, "route": other[d.case_id]})
            for d in made.decisions["student"]
        ]
        for other in [
            {e.case_id: Route.RAG if e.route is Route.LC else Route.LC for e in made.labels}
        ]
        for name in routers
    }
    big = material(Evaluation(decisions, made.labels, made.scores, made.cases), worst_cases=50)
    done = write_report(tmp_path / "report", big)
    page = (tmp_path / "report" / "index.html").read_text("utf-8")
    assert 1_000_000 < done.size < 5_000_000
    shown = Reader(page)
    assert re.search(r"router_14: \d+ cases, \d+ more in regrets\.csv", "".join(shown.text))
    rows = list(csv.DictReader((tmp_path / "report" / "data" / "regrets.csv").open(newline="")))
    assert len(rows) == 15 * 50
    assert 'href="data/regrets.csv"' in page


def test_rows_of_a_table_that_are_left_out_stand_in_its_file(tmp_path: Path) -> None:
    cells = [[text_cell(f"row {number}"), text_cell("x" * 900)] for number in range(8_000)]
    columns = [Column("Name", numeric=False), Column("Text", numeric=False)]
    long = Table("long", "Many rows", columns, cells)
    page = page_within("t", [Section("s", "S", [], [long])], {}).decode()
    assert len(page) < 5_000_000
    assert re.search(r"The first \d+ of 8000 rows: the file has all\.", page)
    assert 'href="data/long.csv"' in page
    short = Table("short", "Few rows", columns, cells[:5])
    assert "the file has all" not in page_within("t", [Section("s", "S", [], [short])], {}).decode()


SVG = f"<svg><title>{'x' * 6_000_000}</title></svg>"


@pytest.mark.parametrize(
    ("listing", "drawing", "kept"),
    [(6_000_000, "<svg></svg>", True), (6_000_000, SVG, False), (9_000, SVG, False)],
)
def test_large_listings_and_drawings_are_cut_last(listing: int, drawing: str, kept: bool) -> None:
    figure = Figure("plane", "Plane", "Each router as a point.", (1, 1), lambda _: None)
    section = Section("s", "S", [], [figure, Listing("Recipe", "y" * listing)])
    made = page_within("t", [section], {"plane": drawing}).decode()
    assert len(made) < 5_000_000
    assert ("<svg>" in made) is kept
    assert ("<p>Each router as a point.</p>" in made) is not kept
    assert 'href="figures/plane.svg"' in made
    assert ("The first 50000 of 6000000 characters" in made) is (listing > 50_000)
    assert "y" * min(listing, 50_000) in made


def test_a_page_whose_words_are_too_many_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = [Section("s", "S", ["x" * 300_000])]
    monkeypatch.setattr(report, "make_sections", lambda _: many)
    for module in (page, report):
        monkeypatch.setattr(module, "LARGEST_PAGE", 200_000)
    note = write_report(tmp_path / "report", material(usual())).note
    assert note is not None
    assert re.search(r"page has 3\d\d,\d+ bytes, over 200,000", note)


def test_the_report_before_stands_until_the_next_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "can_draw", lambda: False)
    write_report(tmp_path / "report", material(usual()))
    before = (tmp_path / "report" / "index.html").read_bytes()

    def stopped(*_: object) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(report, "page_within", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_report(tmp_path / "report", material(usual(8)))
    assert (tmp_path / "report" / "index.html").read_bytes() == before
    assert (tmp_path / "report" / "data" / "routing.csv").exists()
    monkeypatch.undo()
    monkeypatch.setattr(report, "can_draw", lambda: False)
    write_report(tmp_path / "report", material(usual(8)))
    assert [path.name for path in tmp_path.iterdir()] == ["report"]


def test_how_many_resamples_the_difference_tests_have_is_said() -> None:
    sections = sections_of(material(usual()))
    assert "10,000 resamples of documents" in sections["comparisons"].words[0]
    assert "from 100 resamples" in sections["making"].words[0]
    assert "difference tests from 10,000" in sections["making"].words[0]


def test_importances_are_shown_with_their_reasons() -> None:
    features = (Importance(feature="task_type", mean=0.2, sd=0.01),)
    found = [
        Importances(router="decision_tree", cases=40, repeats=5, auc=0.8, features=features),
        Importances(router="random_forest", cases=4, repeats=5, note="fewer than 30"),
    ]
    sections = sections_of(replace(material(usual()), importances=found))
    section = sections["importances"]
    assert column(table(section, "importances"), "Feature") == ["task_type"]
    assert column(table(section, "importances"), "Fall of the AUC") == ["0.200"]
    assert "random_forest: no importances, fewer than 30." in section.words
    (figure,) = [part for part in section.parts if part.kind == "figure"]
    assert "decision_tree task_type 0.200" in figure.alternative
    assert sections_of(material(usual()))["importances"].parts == ()


def test_no_label_at_all_is_said_in_words(tmp_path: Path) -> None:
    made = usual()
    page = written(tmp_path, material(Evaluation(made.decisions, [], made.scores, made.cases)))
    text = " ".join(page.text)
    assert "No case has a label: nothing to show." in text
    assert "40 further cases have no label" in text
    assert "no case has a label" in text
    assert "nan" not in text.lower().replace("financial", "")


def test_cases_without_a_label_are_in_no_section_that_needs_one(tmp_path: Path) -> None:
    made = usual()
    some = Evaluation(made.decisions, made.labels[3:], made.scores, made.cases)
    page = written(tmp_path, material(some))
    assert "3 further cases have no label" in " ".join(page.text)
    breakdowns = sections_of(material(some))["breakdowns"]
    assert sum(int(n) for n in column(table(breakdowns, "by-document-type"), "Cases")) > 0


@pytest.mark.parametrize("made", [usual(), usual(8)], ids=["many", "few"])
def test_a_column_of_numbers_holds_numbers(made: Evaluation) -> None:
    """A text among them would be sorted as though it were none."""
    found = material(made, answers=counted(made), prices={"m": 1.0})
    for section in make_sections(found):
        for part in section.parts:
            if not isinstance(part, Table):
                continue
            for place, each in enumerate(part.columns):
                values = [row[place].value for row in part.rows]
                kind = (int, float, type(None)) if each.numeric else (str, type(None))
                assert all(isinstance(value, kind) for value in values), (part.name, each.heading)


def test_few_cases_are_flagged() -> None:
    sections = sections_of(material(usual(8)))
    assert any("only 8 labelled cases" in words for words in sections["summary"].words)
    assert any("Only 8 cases" in words for words in sections["comparisons"].words)
    notes = table(sections["routing"], "routing").notes
    assert "so few cases say little about a router" in notes
    for name in ("plane-points", "plane-areas"):
        points = table(sections["plane"], name)
        assert set(column(points, "Cases")) == {"8"}
        assert "so few cases say little about a router" in points.notes


def test_one_document_only_has_no_interval() -> None:
    made = evaluation([(0, 1), (1, 0)] * 20, {"a": "RL" * 20, "b": "RR" * 20}, groups="x" * 40)
    routing = table(sections_of(material(made))["routing"], "routing")
    assert any("fewer than two documents" in note for note in routing.notes)


def test_one_class_only_has_reasons_and_no_numbers() -> None:
    made = evaluation([(1, 0)] * 40, {"always_rag": "R" * 40, "b": "RL" * 20})
    sections = sections_of(material(made))
    routing = table(sections["routing"], "routing")
    assert set(column(routing, "LC recall")) == {"n/a"}
    assert "no case has LC as its ideal route" in routing.notes


def test_where_lc_is_no_better_the_areas_say_so_in_words() -> None:
    made = evaluation([(1, 0), (0.5, 0.5)] * 20, {"a": "RL" * 20}, p_lc={"a": [0.1, 0.9] * 20})
    areas = table(sections_of(material(made))["plane"], "plane-areas")
    assert column(areas, "APGR") == ["n/a"]
    assert column(areas, "CPT(50%)") == column(areas, "CPT(80%)") == ["n/a"]
    assert areas.notes == [
        "n/a: LC is no better than RAG on these cases, so there is no gap to recover"
    ]


def test_an_answer_model_that_nobody_learnt_from_is_told() -> None:
    made = usual()
    cases = [
        case.model_copy(update={"answer_model": AnswerModel(name=f"m{i % 2}")})
        for i, case in enumerate(made.cases)
    ]
    found = material(Evaluation(made.decisions, made.labels, made.scores, cases))
    rows = [row.model_copy(update={"unseen": row.answer_model == "m1"}) for row in found.rows]
    routing = table(sections_of(replace(found, rows=rows))["routing"], "routing")
    told = {row[1].text: row[1].note for row in routing.rows}
    assert told == {
        "pooled": None,
        "m0": None,
        "m1": "no router learnt from cases of this answer model",
    }


def test_undecided_cases_and_a_collapse_are_told() -> None:
    made = evaluation(
        [(0, 1), (1, 0)] * 20, {"gone": "?" * 40, "stuck": "L" * 40, "always_rag": "R" * 40}
    )
    words = " ".join(sections_of(material(made))["summary"].words)
    assert "gone has no decision for 40 of 40 cases" in words
    assert "stuck sends every case it decides to LC: it has collapsed" in words
    assert "always_rag sends" not in words


def test_routers_over_other_cases_are_refused() -> None:
    made = usual()
    short = {**made.decisions, "student": made.decisions["student"][1:]}
    with pytest.raises(Exception, match="no decision for 1"):
        material(Evaluation(short, made.labels, made.scores, made.cases))


def test_a_router_with_p_lc_of_some_cases_has_no_curve_and_says_so() -> None:
    made = usual()
    first, *rest = made.decisions["student"]
    blank = first.model_copy(update={"p_lc": None})
    decisions = {**made.decisions, "student": [blank, *rest]}
    sections = sections_of(material(Evaluation(decisions, made.labels, made.scores, made.cases)))
    assert "student gives a p_lc for 39 of 40 cases only: no curve." in sections["plane"].words
    assert not [p for p in sections["plane"].parts if p.name == "plane-areas"]
    assert any("no p_lc for 1 of 40" in words for words in sections["calibration"].words)


def counted(made: Evaluation) -> dict[tuple[str, Route], Answer]:
    return {
        (case.case_id, route): Answer(
            case_id=case.case_id,
            route=route,
            text="x",
            prompt_tokens=100 if route is Route.RAG else 1000,
            completion_tokens=10,
            seconds=1.0,
        )
        for case in made.cases
        for route in (Route.RAG, Route.LC)
    }


def test_costs_are_those_of_the_answers_that_stand() -> None:
    made = usual()
    sections = sections_of(material(made, answers=counted(made), prices={"m": 1.0}))
    cost = table(sections["cost"], "cost")
    values = {row[0].text: row for row in cost.rows}
    usd = [c.heading for c in cost.columns].index("USD")
    assert values["always_rag"][usd].value == pytest.approx(110e-6)
    assert values["always_lc"][usd].value == pytest.approx(1010e-6)
    assert values["student"][usd].value == pytest.approx((30 * 110e-6 + 10 * 1010e-6) / 40)
    assert values["always_rag"][usd].text == "0.000110"
    points = table(sections["plane"], "plane-points")
    by_name = {row[0].text: row[4].value for row in points.rows}
    assert by_name["student"] == pytest.approx(values["student"][usd].value)
    assert by_name["always RAG (reference)"] == pytest.approx(110e-6)
    assert [p.name for p in sections["plane"].parts if p.kind == "figure"] == ["plane", "plane-usd"]


def test_an_answer_written_in_vain_is_on_the_plane() -> None:
    made = usual()
    decisions = {
        **made.decisions,
        "student": [d.model_copy(update={"wrote": Route.RAG}) for d in made.decisions["student"]],
    }
    made = Evaluation(decisions, made.labels, made.scores, made.cases)
    sections = sections_of(material(made, answers=counted(made), prices={"m": 1.0}))
    points = table(sections["plane"], "plane-points")
    found = next(row[4].value for row in points.rows if row[0].text == "student")
    assert found == pytest.approx((30 * 110e-6 + 10 * (1010e-6 + 110e-6)) / 40)


def test_without_prices_or_tokens_there_is_no_cost_and_a_reason() -> None:
    made = usual()
    sections = sections_of(material(made, answers=counted(made)))
    assert "the price table lacks a model" in " ".join(table(sections["cost"], "cost").notes)
    assert any("no price of m" in words for words in sections["cost"].words)
    unknown = sections_of(material(made, prices={"m": 1.0}))
    assert any("40 of 40 queries are in no figure" in w for w in unknown["cost"].words)
    assert [p.name for p in unknown["plane"].parts if p.kind == "figure"] == ["plane"]


def test_estimated_tokens_are_said_to_be() -> None:
    made = usual()
    cases = [
        case.model_copy(update={"document": DocumentProfile(document_id="d", tokens=9000)})
        for case in made.cases
    ]
    made = Evaluation(made.decisions, made.labels, made.scores, cases)
    sections = sections_of(material(made, prices={"m": 1.0}, assumed_output_tokens=50))
    assert any(
        words.startswith("Estimated, not counted: 40 of 40") and "50 tokens" in words
        for words in sections["cost"].words
    )


def test_every_router_is_compared_with_the_best_baseline_unless_pairs_are_named() -> None:
    found = table(sections_of(material(usual()))["comparisons"], "comparisons")
    assert column(found, "Against") == ["always_lc", "always_lc"]
    asked = material(usual(), compare=[["student", "always_rag"]])
    found = table(sections_of(asked)["comparisons"], "comparisons")
    assert (column(found, "Router"), column(found, "Against")) == (["student"], ["always_rag"])
    with pytest.raises(StageError, match="nobody against always_rag"):
        sections_of(material(usual(), compare=[["nobody", "always_rag"]]))


def test_whatever_is_no_student_may_be_what_others_are_compared_with() -> None:
    perfect = "RL" * 20
    routers = ("classifier", "student_decide_tuned", "theirs", "pre_route_check")
    made = evaluation(
        [(0.2, 0.8) if i % 2 else (0.6, 0.4) for i in range(40)],
        {"always_rag": "R" * 40, "nearest_neighbours": "L" + perfect[1:]}
        | dict.fromkeys(("student", *routers), perfect),
    )

    def against(left_out: str, checked: str = "student") -> tuple[set[str], str]:
        kept = {name: some for name, some in made.decisions.items() if name != left_out}
        found = material(Evaluation(kept, made.labels, made.scores, made.cases))
        route = RouteSection.model_validate(
            {
                "routers": ["always_rag"],
                "published": {"theirs": "x"},
                "checks": {"pre_route": checked},
            }
        )
        recipe = found.recipe.model_copy(update={"route": route})
        section = sections_of(replace(found, recipe=recipe))["comparisons"]
        return set(column(table(section, "comparisons"), "Against")), " ".join(section.words)

    names, words = against("nobody")
    assert names == {"classifier"}
    assert "no student (always_rag, nearest_neighbours, classifier)" in words
    assert against("classifier")[0] == {"nearest_neighbours"}
    # A check of the rules has no student in it.
    assert against("classifier", "guideline")[0] == {"pre_route_check"}


def of_two_models(made: Evaluation) -> Evaluation:
    cases = [
        case.model_copy(update={"answer_model": AnswerModel(name=f"m{i % 2}")})
        for i, case in enumerate(made.cases)
    ]
    return replace(made, cases=cases)


def by_the_student(made: Evaluation, **changes: object) -> Evaluation:
    """The student's decisions are calls of a model of its own."""
    called = {"model": "own", "calls": 1, "prompt_tokens": 50, "completion_tokens": 5} | changes
    some = [each.model_copy(update=called) for each in made.decisions["student"]]
    return replace(made, decisions={**made.decisions, "student": some})


@pytest.mark.parametrize(
    ("prices", "changes", "why"),
    [
        ({"m": 1.0}, {}, "the price table has no price of own (add it by `prices`)"),
        (
            {"m": 1.0, "own": 1.0},
            {"prompt_tokens": 0, "completion_tokens": 0},
            "the tokens of some decisions aren't known",
        ),
    ],
)
def test_one_router_without_a_cost_leaves_the_others_theirs(
    prices: dict[str, float], changes: dict[str, object], why: str
) -> None:
    made = by_the_student(usual(), **changes)
    section = sections_of(material(made, answers=counted(made), prices=prices))["plane"]
    assert f"Without USD: student, since {why}." in section.words
    usd = {row[0].text: row[4].value for row in table(section, "plane-points").rows}
    assert usd["student"] is None
    assert usd["always_rag"] == pytest.approx(110e-6)
    assert set(column(table(section, "plane-curves"), "USD")) == {"n/a"}
    by_share, by_usd = [part for part in section.parts if isinstance(part, Figure)]
    assert "student" in by_share.alternative
    assert "student" not in by_usd.alternative
    assert "always_lc 100.0% LC" in by_usd.alternative
    texts = {text.get_text() for axes in painted(by_usd).axes for text in axes.texts}
    legend = {t.get_text() for each in painted(by_usd).legends for t in each.get_texts()}
    assert "student" not in texts | legend


def painted(figure: Figure) -> Canvas:
    canvas = Canvas(figsize=figure.size)
    figure.paint(canvas)
    return canvas


def test_an_answer_model_without_a_price_has_no_plane_in_usd() -> None:
    made = of_two_models(usual())
    section = sections_of(material(made, answers=counted(made), prices={"m0": 1.0}))["plane"]
    (words,) = [each for each in section.words if each.startswith("Without USD")]
    assert "all points of pooled, all points of m1, since the price table has no price of m1" in (
        words
    )
    assert [p.name for p in section.parts if p.kind == "figure"] == ["plane", "plane-usd"]


def test_cases_that_one_route_alone_gets_right_are_counted_by_answer_model() -> None:
    scored = [(1, 1), (1, 1), (0, 1), (0, 0.5), (0, 1), (1, 0), (1, 1), (0, 0)]
    made = of_two_models(evaluation(scored, {"always_rag": "R" * 8}))
    right = table(sections_of(material(made))["routing"], "right")
    headings = ["Cases", "All routes right", "Only RAG right", "Only LC right", "None right"]
    assert [each.heading for each in right.columns[1:]] == headings
    assert {row[0].text: [cell.value for cell in row[1:]] for row in right.rows} == {
        "pooled": [8, 3, 1, 2, 2],
        "m0": [4, 2, 0, 2, 0],
        "m1": [4, 1, 1, 0, 2],
    }
    assert right.notes == ["so few cases say little about a router"]
    one = table(sections_of(material(usual()))["routing"], "right")
    assert column(one, "Answer model") == ["m"]


def test_what_the_probe_router_learnt_from_is_told_where_it_is_less() -> None:
    def words(learnt: int) -> str:
        report = {"training_pairs": 1_200, "probe_router_learnt_from": learnt}
        print_ = Fingerprint(stage="route", seed=1, sections={}, parents={}, inputs={})
        manifest = Manifest(fingerprint=print_, files={}, report=report, seconds=1.0)
        found = replace(material(usual()), manifests={"route": manifest})
        return " ".join(sections_of(found)["routing"].words)

    assert "probe_router learnt from 300 of the 1,200 labelled training cases" in words(300)
    assert "learnt from" not in words(1_200)


def test_bands_of_the_documents_tokens_are_said_to_be() -> None:
    made = usual()
    cases = [
        case.model_copy(
            update={"document": DocumentProfile(document_id="d", tokens=3_000 * (1 + i % 2))}
        )
        for i, case in enumerate(made.cases)
    ]
    banded = Evaluation(made.decisions, made.labels, made.scores, cases)

    def section(references: list[Reference]) -> Section:
        return sections_of(material(banded, references=references))["breakdowns"]

    own = section([])
    assert any("bands of the document's own tokens" in words for words in own.words)
    by_length = table(own, "by-context-length")
    assert set(column(by_length, "Context length")) == {"4k", "8k"}
    told = [
        Reference(question_id=case.question_id, context_length="32k" if i % 3 else "128k")
        for i, case in enumerate(cases)
    ]
    assert not any("own tokens" in words for words in section(told).words)
    lengths = column(table(section(told), "by-context-length"), "Context length")
    assert set(lengths) == {"32k", "128k"}


def test_few_errors_are_flagged_beside_what_else_is_said_of_them() -> None:
    # One document: there is no interval, and that is said as well.
    made = evaluation([(0, 1), (1, 0)] * 20, {"r": "LL" * 3 + "LR" * 17, "s": "LR" * 20}, "x" * 40)
    errors = table(sections_of(material(made))["errors"], "errors")
    notes = {row[0].text: row[-1].note or "" for row in errors.rows}
    assert "fewer than two documents" in notes["r"]
    assert "so few errors say little about their kinds" in notes["r"]
    assert notes["s"] == "n/a: no error"


def test_few_queries_are_flagged_in_the_costs() -> None:
    for n, few in ((8, True), (40, False)):
        made = usual(n)
        found = material(made, answers=counted(made), prices={"m": 1.0})
        cost = table(sections_of(found)["cost"], "cost")
        assert ("so few cases say little about a router" in cost.notes) is few


def test_entropy_against_error_is_told_of_each_answer_model() -> None:
    made = of_two_models(usual(80))
    # The higher the entropy the worse with m0, the better with m1.
    answers = {
        key: answer.model_copy(update={"entropies": (float(int(key[0][1:]) // 2 % 2),)})
        for key, answer in counted(made).items()
    }
    scores = [
        score.model_copy(
            update={"arms": {**score.arms, Route.RAG: ArmScore(score=float(i // 2 % 2 == i % 2))}}
        )
        for i, score in enumerate(made.scores)
    ]
    found = material(replace(made, scores=scores), answers=answers)
    rows = table(sections_of(found)["entropy"], "entropy").rows
    assert [row[0].text for row in rows] == ["pooled", "m0", "m1"]
    assert [row[1].value for row in rows] == pytest.approx([0.0, 1.0, -1.0])
    assert [row[2].value for row in rows] == [80, 40, 40]


def test_entropies_are_shown_where_answers_hold_them() -> None:
    made = usual()
    answers = {
        key: answer.model_copy(update={"entropies": (0.2, 0.4) if i % 4 else (1.0, 3.0)})
        for i, (key, answer) in enumerate(counted(made).items())
    }
    sections = sections_of(material(made, answers=answers))
    assert [part.name for part in sections["entropy"].parts] == [
        "entropy",
        "entropy",
        "entropy-bins",
        "entropy-answers",
    ]
    points = table(sections["entropy"], "entropy-answers")
    assert not points.shown
    assert column(points, "Case") == [case.case_id for case in made.cases]
    assert [row[2].value for row in points.rows[:3]] == pytest.approx([2.0, 0.3, 2.0])
    assert [row[3].value for row in points.rows[:2]] == pytest.approx([0.4, 0.8])
    assert sections_of(material(made))["entropy"].words == [
        "No scored RAG answer holds token entropies: nothing to show."
    ]


PROBES = "layer,target,prompt,model,accuracy,low,high\n"


def test_probe_curves_are_read_from_csv(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(f"{PROBES}0,label,guided,small,0.5,0.4,0.6\n1,label,guided,small,0.75,,\n")
    section = sections_of(material(usual(), probes=[str(path)]))["probes"]
    made = table(section, "probes")
    assert column(made, "Accuracy") == ["50.0%", "75.0%"]
    assert [cell.interval for cell in made.rows[0] if cell.interval] == ["[40.0, 60.0]"]


def test_a_distilled_model_has_a_line_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(
        f"row,distilled,{PROBES}a,False,3,label,guided,m,0.5,,\nb,True,3,label,guided,m,0.6,,\n"
    )
    section = sections_of(material(usual(), probes=[str(path)]))["probes"]
    assert column(table(section, "probes"), "Model") == ["m", "m (distilled)"]
    assert column(table(section, "probes"), "Row") == ["a", "b (distilled)"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("layer,target\n1,label\n", "has no column prompt, model, accuracy, low, high"),
        (f"{PROBES}x,label,g,m,0.5,,\n", "curve.csv:2: layer"),
        (f"{PROBES}1,label,g,m,nan,,\n", "curve.csv:2: accuracy"),
        (f"{PROBES}1,label,g,m,1.5,,\n", "curve.csv:2: accuracy"),
    ],
)
def test_a_bad_file_of_probes_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "curve.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=problem):
        sections_of(material(usual(), probes=[str(path)]))


def test_without_matplotlib_the_page_tells_it_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "can_draw", lambda: False)
    done = write_report(tmp_path / "report", material(usual()))
    assert done.figures == 0
    assert done.note is not None
    page = Reader((tmp_path / "report" / "index.html").read_text("utf-8"))
    text = " ".join(page.text)
    assert "pip install -e '.[report]'" in html.unescape(text)
    assert "Each router as a point." in text
    assert "svg" not in {tag for tag, _ in page.elements}
    assert list((tmp_path / "report" / "figures").iterdir()) == []
    # The figures to see first are numbers, and need no drawing.
    assert "Best router: " in text
    assert "Ideal routes" in text


def test_three_routes_are_told_apart() -> None:
    made = usual()
    scores = [
        score.model_copy(update={"arms": {**score.arms, Route.LONG_RAG: score.arms[Route.RAG]}})
        for score in made.scores
    ]
    decisions = {
        **made.decisions,
        "long": [
            Decision(case_id=c.case_id, router="long", route=Route.LONG_RAG) for c in made.cases
        ],
    }
    sections = sections_of(material(Evaluation(decisions, made.labels, scores, made.cases)))
    errors = table(sections["errors"], "errors")
    row = next(row for row in errors.rows if row[0].text == "long")
    # Chosen for all 40 and ideal for none: too dear where RAG is ideal, too cheap where LC is.
    assert [cell.text for cell in row[2:6]] == ["40", "0", "40", "20"]
    (part,) = [p for p in sections["regrets"].parts if p.kind == "cases" and p.router == "long"]
    assert part.cases[0].chosen == "LONG_RAG"
    assert [route for route, _ in part.cases[0].scores] == ["RAG", "LC", "LONG_RAG"]
