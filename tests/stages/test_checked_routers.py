"""Routers after retrieval over a run's own answers: one threshold, chosen on the validation split,
and a table with what every decision took."""

from __future__ import annotations

import dataclasses
import json
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from prerouter.core.errors import CombinedError, StageError
from prerouter.core.protocols import ChoiceScores, Completion, GenerationRequest, SilentProgress
from prerouter.core.records import Decision, Route, Split, SplitAssignment
from prerouter.prompts.checks import QUERY_TYPES, VERDICTS
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.runs.manifest import read_manifest
from prerouter.runs.rows import read_rows
from prerouter.runs.stage import execute
from prerouter.stages import answer, cases, evaluate, label, route, score

from ..answering.scripted import ScriptedModel, make_case, question_of, window

COUNT = 48
# Every third answer from passages is wrong, and its writer is uncertain.
CERTAIN, UNCERTAIN = (0.6, 0.8), (1.9, 2.1)


def question(number: int) -> str:
    if number % 4 == 1:
        return f"How do all years before {number} differ from the later ones?"
    return f"What was the name of keeper {number}?"


NUMBERS = {question(number): number for number in range(COUNT)}


def reply(request: GenerationRequest) -> Completion:
    number = NUMBERS[question_of(request)]
    whole = "<document>" in request.messages[1].content
    right = whole or number % 3 != 0
    return Completion(
        f"Keeper {number}" if right else "Nobody",
        "stop",
        500 if whole else 100,
        5,
        entropies=CERTAIN if right else UNCERTAIN,
        seconds=0.5,
    )


class Judging(ScriptedModel):
    """Says "unanswerable" of what it would answer wrongly."""

    def score_choices(
        self, requests: Sequence[GenerationRequest], choices: Sequence[str]
    ) -> list[ChoiceScores]:
        if tuple(choices) == QUERY_TYPES:
            return [ChoiceScores((-0.1, -2.0), 30) for _ in requests]
        assert tuple(choices) == VERDICTS
        wrong = [NUMBERS[question_of(request)] % 3 == 0 for request in requests]
        return [ChoiceScores((-2.0, -0.1) if bad else (-0.1, -2.0), 90) for bad in wrong]


ROUTERS = [
    "always_rag",
    "always_lc",
    "guideline",
    "self_route",
    "self_route_verdict",
    "edar",
    "edar_unclassified",
    "pre_route_check",
]


def write_recipe(folder: Path, **checks: Any) -> Path:
    body = " ".join(f"The keeper of year {number} was Keeper {number}." for number in range(COUNT))
    rows = []
    for number in range(COUNT):
        (folder / f"d{number % 8}.txt").write_text(body)
        kind = "comparison" if number % 4 == 1 else "location"
        rows.append(
            {
                "question": question(number),
                "question_id": f"q{number:02}",
                "answer": f"Keeper {number}",
                "document_path": f"d{number % 8}.txt",
                "task_type": kind,
            }
        )
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "name": "checked",
        "runs_dir": str(folder / "runs"),
        "cases": {
            "source": "table",
            "path": str(folder / "rows.jsonl"),
            "answer_models": [{"name": "reader", "context_window": 8000}],
        },
        "rag": {"chunk_tokens": 40, "overlap_tokens": 5, "top_k": 2},
        "split": {"train": 0.4, "validation": 0.3, "test": 0.3},
        "retrieval": {"vector_ratio": 0},
        "answer": {
            "reader": "engine",
            "engine": {
                "kind": "openai",
                "model": "m",
                "base_url": "http://127.0.0.1:1/v1",
                "entropies": "lower_bound",
            },
            "entropy_tokens": 2,
        },
        "score": {"metric": "exact_match"},
        "route": {"routers": ROUTERS, "checks": checks},
        "evaluate": {"resamples": 100},
    }
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(recipe))
    return path


def run(
    path: Path,
    monkeypatch: pytest.MonkeyPatch,
    model: Callable[[GenerationRequest], Completion] = reply,
    *changes: str,
) -> Recipe:
    recipe = load_recipe(path, changes)
    monkeypatch.setattr("prerouter.stages.answer.start_engine", lambda section: Judging(model))
    monkeypatch.setattr("prerouter.stages.answer.load_tokens", lambda *given: window().tokens)
    monkeypatch.setattr(
        "prerouter.stages.checked_routers.start_engine", lambda section: Judging(model)
    )
    for stage in (cases, answer, score, label, route, evaluate):
        execute(stage.STAGE, recipe, SilentProgress())
    return recipe


def by_router(recipe: Recipe) -> dict[str, dict[int, Decision]]:
    found: dict[str, dict[int, Decision]] = {}
    for decision in read_rows(recipe.run_dir / "route" / "rows.jsonl", Decision):
        found.setdefault(decision.router, {})[int(decision.case_id[1:3])] = decision
    return found


def report_of(recipe: Recipe) -> dict[str, Any]:
    manifest = read_manifest(recipe.run_dir / "route")
    assert manifest is not None
    return manifest.report


def test_the_threshold_is_chosen_on_validation_and_parts_right_from_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run(write_recipe(tmp_path), monkeypatch)
    told = report_of(recipe)
    assert 0.7 <= told["tau"]["point"]["tau"] < 2.0
    sides = read_rows(recipe.run_dir / "cases/split.jsonl", SplitAssignment)
    held_out = sum(each.split is Split.VALIDATION for each in sides)
    assert told["tau_cases"] == {"of": held_out, "measured": held_out}
    assert told["query_types"]["right"] == told["query_types"]["test_questions"]
    found = by_router(recipe)
    for number, decision in found["edar_unclassified"].items():
        assert decision.route is (Route.LC if number % 3 == 0 else Route.RAG)
        assert decision.wrote is Route.RAG
    for number, decision in found["edar"].items():
        straight = number % 4 == 1
        assert decision.route is (Route.LC if straight or number % 3 == 0 else Route.RAG)
        assert decision.wrote is (None if straight else Route.RAG)
    for number, decision in found["self_route_verdict"].items():
        assert decision.route is (Route.LC if number % 3 == 0 else Route.RAG)
        assert (decision.calls, decision.model) == (1, "reader")
    # "Nobody" is an answer, and no refusal.
    assert {decision.route for decision in found["self_route"].values()} == {Route.RAG}


def test_the_report_tells_what_the_checks_were_worth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run(write_recipe(tmp_path), monkeypatch)
    data = recipe.run_dir / "evaluate" / "report" / "data"
    lines = (data / "escalation.csv").read_text("utf-8").splitlines()
    cells = {row[0]: dict(zip(lines[0].split(","), row, strict=False)) for row in _split(lines[1:])}
    assert {"self_route", "edar", "edar_unclassified", "pre_route_check"} <= cells.keys()
    assert float(cells["edar_unclassified"]["P_route"]) == 1.0
    costs = _split((data / "cost.csv").read_text("utf-8").splitlines()[1:])
    calls = {row[0]: float(row[2]) for row in costs}
    escalated = sum(number % 3 == 0 for number in by_router(recipe)["edar_unclassified"])
    every = len(by_router(recipe)["edar_unclassified"])
    assert calls["edar_unclassified"] == pytest.approx(1 + escalated / every)
    assert calls["always_rag"] == 1.0


def test_verdicts_are_held_against_what_people_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The model finds every third passage wanting; people find all of even number answerable.
    path = tmp_path / "people.csv"
    rows = [f"q{n:02}/reader,RAG,{'no' if n % 2 else 'yes'}" for n in range(COUNT)]
    path.write_text("\n".join(["case_id,route,answerable", *rows, ""]), "utf-8")
    recipe = run(write_recipe(tmp_path), monkeypatch, reply, f"evaluate.triples={{path: {path}}}")
    lines = (recipe.run_dir / "evaluate/report/data/escalation.csv").read_text("utf-8").splitlines()
    header, *table = _split(lines)
    found = {row[0]: dict(zip(header, row, strict=True)) for row in table}
    numbers = list(by_router(recipe)["self_route_verdict"])
    row = found["self_route_verdict"]
    odd = [number for number in numbers if number % 2]
    assert int(row["Not answerable"]) == len(odd)
    assert int(row["Answerable"]) == len(numbers) - len(odd)
    kept = sum(number % 3 != 0 for number in odd)
    assert float(row["Under-triggered"]) == pytest.approx(kept / len(odd))

    path.write_text("case_id,route,answerable\nelsewhere,RAG,yes\n", "utf-8")
    with pytest.raises(CombinedError, match="'elsewhere', of which there is no case"):
        execute(evaluate.STAGE, recipe, SilentProgress())


def test_an_answer_model_costs_what_the_model_behind_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    price = {"input": 1.0, "output": 2.0, "source": "a test", "date": "2026-01-01"}
    (tmp_path / "prices.yaml").write_text(yaml.safe_dump({"models": {"m": price}}))
    changes = f"prices={tmp_path / 'prices.yaml'}"
    recipe = run(write_recipe(tmp_path), monkeypatch, reply, changes)
    costs = recipe.run_dir / "evaluate" / "report" / "data" / "cost.csv"
    heading, *rows = _split(costs.read_text("utf-8").splitlines())
    usd = {row[0]: row[heading.index("USD")] for row in rows}
    assert float(usd["always_rag"]) == pytest.approx((100 * 1 + 5 * 2) / 1e6)
    assert float(usd["always_lc"]) == pytest.approx((500 * 1 + 5 * 2) / 1e6)
    # The verdict is a call of the same model, priced alike: 90 tokens in, one word out.
    assert float(usd["self_route_verdict"]) > float(usd["always_rag"]) + 90 / 1e6 - 1e-12


def _split(lines: Sequence[str]) -> list[list[str]]:
    import csv

    return list(csv.reader(lines))


def test_without_answers_those_that_were_asked_for_are_named(tmp_path: Path) -> None:
    from types import SimpleNamespace

    from prerouter.stages.checked_routers import CheckedRouters

    found = load_recipe(write_recipe(tmp_path), ["route.routers=[always_rag, edar, self_route]"])
    run: Any = SimpleNamespace(recipe=found, read=lambda file, model: iter(()))
    router = CheckedRouters(run, [], {}).makers()["self_route"]()
    with pytest.raises(StageError, match=r"route\.routers self_route, edar: read answers"):
        list(router.route([make_case()]))


def test_a_given_threshold_needs_no_development_split(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = run(write_recipe(tmp_path, tau=3.0), monkeypatch)
    assert "tau" not in report_of(recipe)
    assert {d.route for d in by_router(recipe)["edar_unclassified"].values()} == {Route.RAG}


def test_answers_without_entropies_choose_no_threshold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(request: GenerationRequest) -> Completion:
        return dataclasses.replace(reply(request), entropies=())

    with pytest.raises(StageError, match=r"none of the .* cases .* set route.checks.tau"):
        run(write_recipe(tmp_path), monkeypatch, silent)


def test_least_cost_takes_the_cheapest_that_is_good_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path, tau_rule="least_cost", min_share=0.5)
    recipe = run(path, monkeypatch)
    # Two thirds of Always-LC's QA are there without any escalation.
    assert {d.route for d in by_router(recipe)["edar_unclassified"].values()} == {Route.RAG}
    assert report_of(recipe)["tau"]["rule"] == "least_cost"


def test_an_engine_is_gone_before_the_next_router_starts_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_recipe(tmp_path)
    run(path, monkeypatch, reply, "route.routers=[always_rag]")
    alive: weakref.WeakSet[Judging] = weakref.WeakSet()
    started = []

    def start(section: Any) -> Judging:
        assert not alive
        engine = Judging(reply)
        alive.add(engine)
        started.append(section.model)
        return engine

    monkeypatch.setattr("prerouter.stages.checked_routers.start_engine", start)
    small = "{kind: transformers, model: small}"
    routers = "route.routers=[self_route_verdict, edar_prompted]"
    checks = f"route.checks={{tau: 1.2, query_types: {{engine: {small}}}}}"
    execute(route.STAGE, load_recipe(path, [routers, checks]), SilentProgress())
    assert started == ["small", "m"]


def test_one_engine_serves_all_names_and_routers_that_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, started = write_recipe(tmp_path), []
    shared, other = ({"kind": "transformers", "model": model} for model in ("shared", "other"))
    recipe = yaml.safe_load(path.read_text())
    recipe["cases"]["answer_models"] = [{"name": name} for name in "abcd"]
    del recipe["answer"]["engine"]
    recipe["answer"]["engines"] = {"a": other, "b": shared, "c": other, "d": shared}
    recipe["route"]["checks"] = {"tau": 1.2, "query_types": {"engine": shared}}
    path.write_text(yaml.safe_dump(recipe))
    routers = ["pre_route_check", "self_route_verdict", "guideline", "edar_prompted"]
    run(path, monkeypatch, reply, "route.routers=[always_rag]")

    def start(section: Any) -> Judging:
        started.append(section.model)
        return Judging(reply)

    monkeypatch.setattr("prerouter.stages.checked_routers.start_engine", start)
    changed = load_recipe(path, [f"route.routers=[{', '.join(routers)}]"])
    execute(route.STAGE, changed, SilentProgress())
    assert started == ["shared", "other"]
    # The rows stand in the recipe's order.
    assert list(by_router(changed)) == routers
