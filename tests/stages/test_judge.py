"""The judge: blind, paid once, and never taken for more than it said."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.protocols import Completion, SilentProgress
from prerouter.core.records import ROUTES, Label, MissingReason, PairedScore, Route
from prerouter.prompts.judge import Judgement
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.made_of import MADE_OF
from prerouter.runs.manifest import Manifest, read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import cases, judge, label, score
from tests.e2e.runner import prerouter
from tests.e2e.test_pipeline import KILL_AFTER_ROWS

from .judged import Judge, Rule, by_answer, reply, shown_in, write_recipe

Pairs = Sequence[tuple[str | None, str | None]]


def run_judge(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    answers: Pairs,
    rule: Rule = by_answer,
    **section: Any,
) -> tuple[Recipe, Judge]:
    recipe = load_recipe(write_recipe(folder, answers, **section))
    engine = Judge(rule)
    monkeypatch.setattr("prerouter.stages.judge.start_engine", lambda section: engine)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(judge.STAGE, recipe, SilentProgress())
    return recipe, engine


def scored(recipe: Recipe) -> list[PairedScore]:
    execute(score.STAGE, recipe, SilentProgress())
    return list(read_rows(recipe.run_dir / "score" / "rows.jsonl", PairedScore))


def arms(pair: PairedScore) -> list[float | str]:
    found = []
    for route in ROUTES:
        arm = pair.arms[route]
        found.append(arm.missing.value if arm.missing else arm.score)
    return found


def manifest(recipe: Recipe, stage: str) -> Manifest:
    found = read_manifest(recipe.run_dir / stage)
    assert found is not None
    return found


def test_grades_become_scores_and_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [("it is 3", "it is 4"), ("sure 2", "sure 2"), ("so 4", "so 0")]
    recipe, engine = run_judge(tmp_path, monkeypatch, answers)
    pairs = scored(recipe)
    assert [arms(pair) for pair in pairs] == [[3, 4], [2, 2], [4, 0]]
    assert {(pair.low, pair.high, pair.judge) for pair in pairs} == {
        (0, 4, "big-judge on a rubric of 0 to 4")
    }
    execute(label.STAGE, recipe, SilentProgress())
    labels = read_rows(recipe.run_dir / "label" / "rows.jsonl", Label)
    assert [found.route for found in labels] == [Route.LC, Route.RAG, Route.RAG]
    assert engine.sampling is not None
    assert engine.sampling.temperature == 0
    assert engine.sampling.schema is not None


def test_what_fails_is_missing_with_its_reason_and_never_a_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [("good prose", "so 4"), ("it was cut", "so 1"), (None, "so 2"), ("  ", "down")]
    recipe, _ = run_judge(tmp_path, monkeypatch, answers, judge={"max_failed_share": 1.0})
    pairs = scored(recipe)
    assert [arms(pair) for pair in pairs] == [
        ["not_judged", 4],
        ["not_judged", 1],
        ["not_given", 2],
        ["empty", "not_judged"],
    ]
    assert manifest(recipe, "judge").rejects == {"call_failed": 1, "cut_off": 1, "no_json": 1}
    assert manifest(recipe, "score").rejects == {"empty": 1, "not_given": 1, "not_judged": 3}


@pytest.mark.parametrize(
    "text",
    [
        "The answer is not correct.",
        "correct",
        "4",
        "[4]",
        '{"grade": 4}',
        '{"grade": 4, "reason": "The order is wrong."}',
        '{"reason": "Not correct.", "grade": "4"}',
        '{"reason": "Not correct.", "grade": 4.0}',
        '{"reason": "Not correct.", "grade": true}',
        '{"reason": "Not correct.", "grade": 5}',
        '{"reason": "Not correct.", "grade": -1}',
        '{"reason": "Not correct.", "grade": null}',
        '{"reason": "", "grade": 4}',
        '{"reason": "Twice.", "grade": 0, "grade": 4}',
        '{"reason": "Not correct.", "grade": 0} {"reason": "x", "grade": 4}',
        '{"reason": "Not correct.", "grade": 0, "correct": true}',
        '<think>{"reason": "I think it is right.", "grade": 4}',
        '<think>{"reason": "Right.", "grade": 4}</think>',
        "",
    ],
)
def test_no_grade_is_read_out_of_anything_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    def rule(shown: dict[str, Any]) -> Completion:
        return Completion(text, "stop", 9, 9)

    recipe, _ = run_judge(
        tmp_path, monkeypatch, [("a", "b")], rule, judge={"max_failed_share": 1.0}
    )
    assert arms(scored(recipe)[0]) == ["not_judged", "not_judged"]


def test_a_thinking_judge_is_read_behind_its_last_closing_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(shown: dict[str, Any]) -> Completion:
        thought = f"<think>{reply(4)} </think> not yet: {reply(3)}</think>"
        return Completion(f"{thought}\n```json\n{reply(1)}\n```", "stop", 9, 9)

    recipe, engine = run_judge(tmp_path, monkeypatch, [("a", "b")], rule, judge={"thinking": True})
    assert arms(scored(recipe)[0]) == [1, 1]
    assert engine.sampling is not None
    assert engine.sampling.thinking


def in_turn(*grades: int | None) -> Rule:
    """The repeats of every answer get `grades` in turn, None for a reply in prose."""
    met: Counter[str] = Counter()

    def rule(shown: dict[str, Any]) -> Completion:
        grade = grades[met[shown["answer"]]]
        met[shown["answer"]] += 1
        return Completion("no idea" if grade is None else reply(grade), "stop", 9, 9)

    return rule


@pytest.mark.parametrize(
    ("grades", "expected"),
    [
        ((4, 4, 0), 4.0),
        ((0, 3, 4, 4), 3.5),
        ((1, None, None, 4), 2.5),
        ((1, None, None), "not_judged"),
        ((None, None), "not_judged"),
    ],
)
def test_the_median_of_what_could_be_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    grades: tuple[int | None, ...],
    expected: float | str,
) -> None:
    section = {"repeats": len(grades), "temperature": 0.7, "max_failed_share": 1.0}
    recipe, engine = run_judge(
        tmp_path, monkeypatch, [("one", "two")], in_turn(*grades), judge=section
    )
    assert arms(scored(recipe)[0]) == [expected, expected]
    # Every judgement has a seed of its own.
    assert len({request.seed for request in engine.requests}) == 2 * len(grades)
    judged = [
        json.loads(line)
        for line in (recipe.run_dir / "score" / "judged.jsonl").read_text().splitlines()
    ]
    read = [grade for grade in grades if grade is not None]
    for arm in judged:
        assert sorted(arm["grades"]) == sorted(read)
        assert arm["spread"] == max(read) - min(read)
        assert arm["unread"] == len(grades) - len(read)


def test_agreement_of_repeats_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    section = {"repeats": 2, "temperature": 1.0}
    recipe, _ = run_judge(
        tmp_path, monkeypatch, [(f"a{n}", f"b{n}") for n in range(4)], in_turn(3, 4), judge=section
    )
    found = manifest(recipe, "judge").report["repeat_agreement"]
    assert (found["n"], found["n_groups"]) == (8, 2)
    assert found["exact"]["value"] == 0
    assert found["within_one"]["value"] == 1
    assert found["mean_absolute_difference"]["value"] == 1
    # Half of all pairs by chance 1 apart, and here all of them.
    assert found["quadratic_kappa"]["value"] == pytest.approx(-1)


def test_the_judge_is_blind_to_the_route(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [(f"rag side {n} 2", f"lc side {n} 2") for n in range(40)]
    _, engine = run_judge(tmp_path, monkeypatch, answers)
    shown = [shown_in(request.messages[-1].content) for request in engine.requests]
    for request, each in zip(engine.requests, shown, strict=True):
        assert list(each) == ["question", "reference_answer", "answer"]
        text = " ".join(message.content for message in request.messages)
        for word in ("RAG", "LC", "long context", "retriev", "reader", "q1"):
            assert word not in text
    pairs = list(zip(shown[::2], shown[1::2], strict=True))
    assert all(one["question"] == other["question"] for one, other in pairs)
    first = sum("rag" in one["answer"] for one, _ in pairs)
    # Drawn for each case: neither route is always the first.
    assert 8 <= first <= 32
    again = tmp_path / "again"
    again.mkdir()
    _, other = run_judge(again, monkeypatch, answers)
    assert other.requests == engine.requests


def test_one_answer_by_both_routes_is_judged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = iter([1, 4, 2])

    def rule(shown: dict[str, Any]) -> Completion:
        return Completion(reply(next(noise)), "stop", 9, 9)

    recipe, engine = run_judge(
        tmp_path, monkeypatch, [("the same", "the same"), ("one", "other")], rule
    )
    assert len(engine.requests) == 3
    first, _ = scored(recipe)
    assert first.arms[Route.RAG] == first.arms[Route.LC]


def test_answers_that_give_their_route_away_are_counted_and_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [
        ("The provided chunks do not mention it 1", "The novel does not mention it 2"),
        ("A secret passage: 1", "so 2"),
        (None, "so 2"),
    ]
    recipe, engine = run_judge(tmp_path, monkeypatch, answers)
    assert any("chunks" in shown["answer"] for shown in engine.shown)
    assert manifest(recipe, "judge").report["giveaways"] == {
        "RAG": {"answers": 2, "telling": 2, "telling_when_judged": 2},
        "LC": {"answers": 3, "telling": 0, "telling_when_judged": 0},
    }
    clean = tmp_path / "clean"
    clean.mkdir()
    recipe, engine = run_judge(clean, monkeypatch, answers, judge={"clean": True})
    seen = {shown["answer"] for shown in engine.shown}
    assert "The document does not mention it 1" in seen
    assert "A secret passage: 1" in seen
    assert manifest(recipe, "judge").report["giveaways"]["RAG"] == {
        "answers": 2,
        "telling": 2,
        "telling_when_judged": 1,
    }


def test_more_failures_than_allowed_are_an_error_and_raising_the_limit_pays_nothing_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [("good prose", "so 4"), ("so 1", "so 2")]
    with pytest.raises(StageError, match=r"1 of 4 were refused.*score.judge.max_failed_share"):
        run_judge(tmp_path, monkeypatch, answers)
    changed = load_recipe(tmp_path / "recipe.yaml", ["score.judge.max_failed_share=0.5"])
    engine = Judge()
    monkeypatch.setattr("prerouter.stages.judge.start_engine", lambda section: engine)
    execute(judge.STAGE, changed, SilentProgress())
    assert engine.requests == []
    assert manifest(changed, "judge").report["judgements_read"] == 3


@pytest.mark.parametrize(("before", "after", "calls"), [(2, 4, 4), (4, 2, 0)])
def test_other_repeats_go_on_from_those_that_stand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int, after: int, calls: int
) -> None:
    section = {"repeats": before, "temperature": 0.5}
    recipe, _ = run_judge(tmp_path, monkeypatch, [("so 1", "so 2")], judge=section)
    scored(recipe)
    changed = load_recipe(tmp_path / "recipe.yaml", [f"score.judge.repeats={after}"])
    engine = Judge()
    monkeypatch.setattr("prerouter.stages.judge.start_engine", lambda section: engine)
    execute(judge.STAGE, changed, SilentProgress())
    assert len(engine.shown) == calls
    assert arms(scored(changed)[0]) == [1, 2]
    rows = list(read_rows(recipe.run_dir / "judge" / "rows.jsonl", Judgement))
    assert sorted(found.repeat for found in rows) == sorted(list(range(after)) * 2)


def test_other_answers_cost_their_own_grades_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [("so 1", "so 2"), ("all prose", "so 3"), ("one 3", "one 3")]
    allowed = {"max_failed_share": 0.5}
    recipe, _ = run_judge(tmp_path, monkeypatch, [*kept, ("so 4", "so 0")], judge=dict(allowed))
    # RAG says otherwise; a grade stays unread; a text is no longer shared; a case is gone.
    changed = [("but 3", "so 2"), ("all prose", "so 3"), ("one 3", "one 2")]
    recipe, engine = run_judge(tmp_path, monkeypatch, changed, judge=dict(allowed))
    assert sorted(shown["answer"] for shown in engine.shown) == ["but 3", "one 2", "one 3"]
    assert [arms(pair) for pair in scored(recipe)] == [[3, 2], ["not_judged", 3], [3, 2]]
    assert manifest(recipe, "judge").rejects == {"no_json": 1}


def test_grades_that_tell_not_what_they_were_made_of_are_of_their_own_answers_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, _ = run_judge(tmp_path, monkeypatch, [("so 1", "so 2")])
    (recipe.run_dir / "judge" / MADE_OF).unlink()
    recipe, engine = run_judge(tmp_path, monkeypatch, [("but 3", "so 2")])
    assert len(engine.shown) == 2
    assert [arms(pair) for pair in scored(recipe)] == [[3, 2]]


def test_a_failed_call_is_made_again_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StageError, match="1 of 4"):
        run_judge(tmp_path, monkeypatch, [("is down", "so 4"), ("so 1", "so 2")])
    recipe = load_recipe(tmp_path / "recipe.yaml")
    healed = Judge(lambda shown: Completion(reply(2), "stop", 9, 9))
    monkeypatch.setattr("prerouter.stages.judge.start_engine", lambda section: healed)
    execute(judge.STAGE, recipe, SilentProgress())
    assert [shown["answer"] for shown in healed.shown] == ["is down"]
    assert [arms(pair) for pair in scored(recipe)] == [[2, 4], [1, 2]]
    assert manifest(recipe, "judge").rejects == {}


@pytest.mark.parametrize("count", [1, 10])
def test_killed_in_the_middle_no_judgement_is_paid_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    answers = [(f"a{n} {n % 5}", f"b{n} {(n + 2) % 5}") for n in range(5)]
    answers[2] = ("in prose", "so 1")
    section = {"repeats": 2, "temperature": 0.5, "max_failed_share": 0.5}
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    killed.mkdir()
    undisturbed, _ = run_judge(whole, monkeypatch, answers, judge=dict(section))
    recipe = write_recipe(killed, answers, judge=dict(section))
    engine = f"""
from pathlib import Path
from prerouter.stages import judge
from tests.stages.judged import Judge
judge.start_engine = lambda section: Judge(asked=Path({str(killed / "asked.txt")!r}))
"""
    assert prerouter("cases", str(recipe)).returncode == 0
    died = prerouter("judge", str(recipe), code=KILL_AFTER_ROWS.format(count=count) + engine)
    assert died.returncode == -9
    assert not (killed / "runs" / "judged" / "judge" / "manifest.json").exists()
    done = prerouter("judge", str(recipe), code=engine)
    assert done.returncode == 0, done.stderr
    for file in ("rows.jsonl", "rejects.jsonl"):
        again = killed / "runs" / "judged" / "judge" / file
        assert again.read_bytes() == (undisturbed.run_dir / "judge" / file).read_bytes(), file
    assert len((killed / "asked.txt").read_text().splitlines()) == 20
    judgements = read_rows(killed / "runs" / "judged" / "judge" / "rows.jsonl", Judgement)
    assert Counter(found.judge for found in judgements) == {"big-judge": 18}


def with_people(folder: Path, text: str, name: str = "people.csv") -> dict[str, Any]:
    (folder / name).write_text(text)
    return {"path": str(folder / name)}


def test_the_judge_is_measured_against_people(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = [(f"a{n} {n % 5}", f"b{n} {(n + 2) % 5}") for n in range(10)]
    answers[9] = ("in prose", None)
    recipe, engine = run_judge(tmp_path, monkeypatch, answers, judge={"max_failed_share": 0.5})
    pairs = scored(recipe)
    # People agree with every grade but the first, and scored two answers that nobody judged.
    rows = [f"{pair.case_id},rag,{arms(pair)[0]}" for pair in pairs[:9]]
    rows[0] = f"{pairs[0].case_id},RAG,2"
    rows += [f"{pairs[9].case_id},RAG,3", f"{pairs[9].case_id},LC,0"]
    text = "\n".join(["case_id,route,score", *rows]) + "\n"
    path = write_recipe(
        tmp_path, answers, judge={"max_failed_share": 0.5}, human=with_people(tmp_path, text)
    )
    recipe = load_recipe(path)
    calls = len(engine.requests)
    outcome = execute(judge.STAGE, recipe, SilentProgress())
    assert outcome.action == "passed over"
    assert scored(recipe) == pairs
    assert len(engine.requests) == calls
    found = manifest(recipe, "score").report["human"]
    assert (found["human_scores"], found["n"], found["n_groups"]) == (11, 9, 5)
    assert found["without_a_score"] == {"not_given": 1, "not_judged": 1}
    assert found["exact"]["value"] == pytest.approx(8 / 9)
    assert found["exact"]["interval"]["n_groups"] == 5
    assert 0 < found["kappa"]["value"] < 1


def test_a_human_score_of_no_case_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = with_people(tmp_path, "case_id,route,score\nnobody,RAG,3\n")
    recipe, _ = run_judge(tmp_path, monkeypatch, [("so 1", "so 2")], human=people)
    with pytest.raises(CombinedError, match=r"people.csv:2: tells of 'nobody'"):
        execute(score.STAGE, recipe, SilentProgress())


def test_a_reference_is_needed_where_there_is_an_answer_and_only_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path, [("so 1", "so 2"), ("so 3", "so 4"), ("so 0", "so 1")])
    rows = [json.loads(line) for line in (tmp_path / "rows.jsonl").read_text().splitlines()]
    rows[0]["answer"] = None
    rows[1]["answer"] = "zqx"
    rows[1]["answerable"] = False
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe, engine = load_recipe(path), Judge()
    monkeypatch.setattr("prerouter.stages.judge.start_engine", lambda section: engine)
    execute(cases.STAGE, recipe, SilentProgress())
    execute(judge.STAGE, recipe, SilentProgress())
    assert [arms(pair) for pair in scored(recipe)] == [
        [MissingReason.NO_REFERENCE.value] * 2,
        [3, 4],
        [0, 1],
    ]
    for request in engine.requests[:2]:
        assert list(shown_in(request.messages[-1].content)) == ["question", "answer"]
        assert "the document does not tell" in request.messages[0].content
    for request in engine.requests[2:]:
        assert shown_in(request.messages[-1].content)["reference_answer"] == "gold 2"


def test_check_looks_for_the_human_scores(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, [("so 1", "so 2")], human={"path": str(tmp_path / "no.csv")})
    told = prerouter("check", str(path))
    assert told.returncode == 1
    assert "no.csv: no such file" in told.stderr
    assert "score.human.path" in told.stderr


def test_check_tells_the_number_of_calls(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, [("so 1", "so 2")] * 3, judge={"repeats": 4, "temperature": 0.6})
    told = prerouter("check", str(path))
    assert told.returncode == 0, told.stderr
    assert "judge: at most 24 calls of big-judge through openai" in told.stdout


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"judge": {"repeats": 3}}, "greedy judgements repeat themselves"),
        ({"metric": "token_f1"}, "metric: the `judge` scores here"),
        ({"grades": 4}, "grades: the `judge` scores here"),
        ({"faithfulness": {"engine": {"kind": "transformers", "model": "m"}}}, "needs `answer`"),
    ],
)
def test_a_recipe_that_contradicts_itself_is_refused(
    tmp_path: Path, section: dict[str, Any], message: str
) -> None:
    with pytest.raises(CombinedError, match=message):
        load_recipe(write_recipe(tmp_path, [("so 1", "so 2")], **section))


def test_people_are_compared_with_whole_grades_only(tmp_path: Path) -> None:
    path = write_recipe(tmp_path, [("so 1", "so 2")], human={"path": "people.csv"})
    with pytest.raises(CombinedError, match="human compares whole grades"):
        load_recipe(path, ["score.judge=null"])
