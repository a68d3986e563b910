"""Whether the source holds what the recipe's stages live on: told before the first of them runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prerouter.core.errors import PrerouterError, RecipeError
from prerouter.core.records import MissingReason, Reference, Route, Split, SplitAssignment
from prerouter.measures.qa import METRICS
from prerouter.recipe.recipe import Recipe
from prerouter.sources.loaded import Loaded


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
    ]


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
    answerable = _answerable(loaded)
    if answerable and not any(reference.evidence for reference in answerable):
        yield RecipeError(
            "answer.reader",
            "the evidence reader answers with a question's evidence, and no question has any",
            "a table with a column evidence",
            "add it, or leave out `answer` and bring answers or scores",
        )


def _scoring(recipe: Recipe, loaded: Loaded) -> Iterator[PrerouterError]:
    if recipe.score is None:
        return
    if recipe.answer is None:
        for route in Route:
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
            "score.metric",
            f"{metric} finds in no question what to compare an answer with",
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
    if recipe.evaluate:
        wanted["evaluate.split"] = recipe.evaluate.split
    for place, split in wanted.items():
        if split not in held:
            yield RecipeError(
                place,
                f"the {split.value} split holds no question of {len(assignments):,}",
                "one at least",
                "bring more questions, or set split.group_by: question",
            )
