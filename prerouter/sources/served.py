"""Whether the source holds what the recipe's stages live on: told before the first of them runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prerouter.core.errors import PrerouterError, RecipeError
from prerouter.core.records import ROUTES, MissingReason, Reference, Split, SplitAssignment
from prerouter.measures.qa import METRICS
from prerouter.recipe.recipe import Recipe
from prerouter.recipe.route import BY_ENTROPY, CLASSICAL, RouterName
from prerouter.recipe.scores import AnswerSection
from prerouter.sources.loaded import Loaded

FITTED: tuple[RouterName, ...] = (
    "task_majority",
    *CLASSICAL,
    "probe_router",
)
"""Routers that learn from the labels of the train split when they route."""


def unserved(
    recipe: Recipe, loaded: Loaded, assignments: Sequence[SplitAssignment]
) -> list[PrerouterError]:
    """An error for every stage that would find nothing at all to work on. Gaps in single cases are
    no matter of this: they are counted where they occur."""
    return [
        *_answering(recipe, loaded),
        *_scoring(recipe, loaded),
        *_labelling(recipe, loaded),
        *_splits(recipe, assignments),
        *_query_types(recipe, loaded, assignments),
        *_unseen(recipe, loaded),
    ]


def _unseen(recipe: Recipe, loaded: Loaded) -> Iterator[PrerouterError]:
    names = list(dict.fromkeys(case.answer_model.name for case in loaded.cases))
    unknown = [name for name in recipe.split.unseen_models if name not in names]
    if unknown:
        yield RecipeError(
            "split.unseen_models",
            f"names {unknown[0]!r}, which no case has",
            f"there are {', '.join(names)}",
        )
    elif recipe.split.unseen_models and set(names) <= set(recipe.split.unseen_models):
        yield RecipeError(
            "split.unseen_models", "names every answer model: nothing is left to learn from"
        )


def _answering(recipe: Recipe, loaded: Loaded) -> Iterator[PrerouterError]:
    if recipe.answer is None:
        return
    if not loaded.documents:
        yield RecipeError(
            "answer",
            "the cases bring no document to read",
            "a table with a column document_path",
            "add it, or leave out `answer` and bring answers or scores",
        )
    if recipe.answer.reader == "engine":
        yield from _engines(recipe.answer, loaded)
        return
    answerable = _answerable(loaded)
    if answerable and not any(reference.evidence for reference in answerable):
        yield RecipeError(
            "answer.reader",
            "the evidence reader answers with a question's evidence, and no question has any",
            "a table with a column evidence",
            "add it, or leave out `answer` and bring answers or scores",
        )


def _engines(section: AnswerSection, loaded: Loaded) -> Iterator[PrerouterError]:
    """Every answer model has its engine, and one engine doesn't answer in the name of two."""
    names = list(dict.fromkeys(case.answer_model.name for case in loaded.cases))
    listed = ", ".join(names)
    if section.engine is not None and len(names) > 1:
        yield RecipeError(
            "answer.engine",
            f"is one model, and the cases have {len(names)} answer models: {listed}",
            "`engines`, one by the name of each",
        )
    for key, named in (("engines", section.engines), ("tokenizers", section.tokenizers)):
        for name in named:
            if name not in names:
                yield RecipeError(
                    f"answer.{key}", f"names {name!r}, which no case has", f"there are {listed}"
                )
    windows = {(case.answer_model.name, case.answer_model.context_window) for case in loaded.cases}
    for name, window in sorted(windows, key=str):
        if window is not None and window <= section.max_tokens + section.reserved_tokens:
            yield RecipeError(
                "answer.max_tokens",
                f"the window of {window:,} tokens of {name}, less {section.max_tokens:,} for the "
                f"reply and {section.reserved_tokens:,} reserved, leaves nothing for a document",
                next_step="lower it, or answer.reserved_tokens",
            )
    for name in names:
        if section.engine_of(name) is None:
            yield RecipeError(
                "answer.engines", f"names no engine for the answer model {name}", next_step="add it"
            )


def _scoring(recipe: Recipe, loaded: Loaded) -> Iterator[PrerouterError]:
    if recipe.score is None:
        return
    if recipe.answer is None:
        for route in ROUTES:
            if all(answer.text is None for answer in loaded.answers if answer.route is route):
                yield RecipeError(
                    "score",
                    f"there are no {route.value} answers to score",
                    f"a table with a column {route.value.lower()}_answer, or an `answer` section",
                    "add one, or leave out `score` and bring scores",
                )
    metric, answerable = recipe.score.metric, _answerable(loaded)
    if answerable and not any(_can_score(metric, reference) for reference in answerable):
        gold = {
            "evidence_recall": "a table with a column evidence",
            "choice": "a column answer that holds a letter from A to D",
        }
        yield RecipeError(
            "score.judge" if recipe.score.judge else "score.metric",
            f"{recipe.score.measure} finds in no question what to compare an answer with",
            gold.get(metric, "a table with a column answer"),
            "add it, or take another metric",
        )


def _answerable(loaded: Loaded) -> list[Reference]:
    """The questions that need gold: of the others, an abstention is the right answer."""
    return [reference for reference in loaded.references if reference.answerable]


def _can_score(metric: str, reference: Reference) -> bool:
    """Whether the gold answer itself gets a score."""
    return not isinstance(METRICS[metric](reference.answer or "", reference), MissingReason)


def _labelling(recipe: Recipe, loaded: Loaded) -> Iterator[PrerouterError]:
    if recipe.score or not (recipe.filter or recipe.evaluate):
        return
    if not any(all(arm.score is not None for arm in pair.arms.values()) for pair in loaded.scores):
        yield RecipeError(
            "label",
            "no case has scores of both routes, so there is no ideal route to learn or to measure",
            "a `score` section, or a table with the columns rag_score and lc_score",
            "add one",
        )


def _splits(recipe: Recipe, assignments: Sequence[SplitAssignment]) -> Iterator[PrerouterError]:
    held = {assignment.split for assignment in assignments}
    wanted = {"train": Split.TRAIN} if recipe.train else {}
    fitted = [name for name in recipe.route.routers if name in FITTED] if recipe.route else []
    if fitted:
        wanted[f"route.routers {', '.join(fitted)}"] = Split.TRAIN
    named = set(recipe.route.routers) if recipe.route else set()
    if recipe.route and "edar" in named:
        wanted["route.routers edar"] = Split.TRAIN
    if recipe.route and recipe.route.checks.tau is None and not named.isdisjoint(BY_ENTROPY):
        wanted["route.checks.split"] = recipe.route.checks.split
    if recipe.evaluate:
        wanted["evaluate.split"] = recipe.evaluate.split
    for place, split in wanted.items():
        if split not in held:
            yield RecipeError(
                place,
                f"the {split.value} split holds no question of {len(assignments):,}",
                "one at least",
                "bring more questions, or set split.group_by: question"
                + (", or give route.checks.tau" if place == "route.checks.split" else ""),
            )


def _query_types(
    recipe: Recipe, loaded: Loaded, assignments: Sequence[SplitAssignment]
) -> Iterator[PrerouterError]:
    """EDAR's classifier learns synthesis queries from others, by the training questions' types."""
    # Inferred types aren't known before `profile` has run.
    if recipe.profile or recipe.route is None or "edar" not in recipe.route.routers:
        return
    synthesis = recipe.route.checks.query_types.synthesis
    levels = {reference.question_id: reference.level for reference in loaded.references}
    types = {c.question_id: c.task_type or levels.get(c.question_id) for c in loaded.cases}
    known = sorted({kind for kind in types.values() if kind is not None})
    train = {types.get(each.question_id) for each in assignments if each.split is Split.TRAIN}
    place, some = "route.checks.query_types.synthesis", f"some, not all, of {', '.join(known)}"
    others = "or take edar_unclassified or edar_prompted for edar"
    if not known:
        yield RecipeError(
            "route.routers edar",
            "learns from the questions' task types, and no case has one",
            "a source with task types: a table with a column task_type",
            f"add it, {others}",
        )
    elif not any(kind in known for kind in synthesis):
        what = f"names {', '.join(map(repr, synthesis))}, and no question is of such a type"
        yield RecipeError(place, what, some, f"mend it, {others}")
    elif train and len({kind in synthesis for kind in train - {None}}) < 2:
        what = "leaves one kind of query only among the training questions"
        yield RecipeError(place, what, some, f"name others, {others}")
