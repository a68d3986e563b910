"""`prerouter check`: all that can be known of a recipe without a GPU, a network or torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import util
from pathlib import Path

from prerouter.cli.console import TerminalProgress, plain
from prerouter.core.errors import CombinedError, PrerouterError, RecipeError
from prerouter.core.protocols import Progress
from prerouter.core.records import PairedScore, Reject, Route, RoutingCase, Split, SplitAssignment
from prerouter.recipe.cases import TableSource
from prerouter.recipe.recipe import Recipe, load_recipe
from prerouter.training.reporters import asked_by, lacking

BATCH = 256


@dataclass(frozen=True)
class Lengths:
    """Tokens of the student's prompts, and how many leave the completion too little room."""

    longest: int
    limit: int
    reply_limit: int
    over: int


def check_recipe(
    path: Path, overrides: Sequence[str], tokenizer: Path | None, *, skip_bad: bool = False
) -> None:
    """Validate the recipe and its files, and print what a run would do and cost in calls.

    With `skip_bad`, bad rows are counted and not errors, as in a run. Raises a CombinedError with
    all that is wrong with the files.
    """
    recipe = load_recipe(path, overrides)
    plain(f"{path}: every key is known and every value fits")
    with TerminalProgress() as progress:
        cases, assignments, scores, refused = _read_all(recipe, skip_bad, progress)
    side = {assignment.question_id: assignment.split for assignment in assignments}
    plain(f"cases: {len(cases):,} over {len(side):,} questions, {_by_split(cases, side)}")
    too_few = _too_few_to_calibrate(recipe, cases, side, scores)
    for line in [*refused, *_plan(recipe, cases, side), *too_few]:
        plain(line)
    if tokenizer is not None:
        with TerminalProgress() as progress:
            lengths = measure_lengths(recipe, cases, side, tokenizer, progress)
        plain(_describe(lengths))
    for line in _not_installed(recipe):
        plain(line)


def measure_lengths(
    recipe: Recipe,
    cases: Sequence[RoutingCase],
    side: dict[str, Split],
    tokenizer: Path,
    progress: Progress,
) -> Lengths:
    """Count every prompt that the student would be trained on. Raises RecipeError where even the
    longest prompt leaves no room at all."""
    from prerouter.prompts.render import render_student
    from prerouter.training.lengths import prompt_tokenizer

    section = recipe.train
    if section is None:
        raise RecipeError("--tokenizer", "there is nothing to measure", "a recipe with `train`")
    encode = prompt_tokenizer(tokenizer)
    learnt = [case for case in cases if side[case.question_id] is not Split.TEST]
    lengths: list[int] = []
    progress.start("check: counting tokens", len(learnt))
    for start in range(0, len(learnt), BATCH):
        batch = learnt[start : start + BATCH]
        prompts = [render_student(case, section.prompt, section.metadata) for case in batch]
        lengths += [len(ids) for ids in encode(prompts, section.thinking)]
        progress.advance(len(batch))
    reply = recipe.teach.max_tokens if recipe.teach else 0
    longest = max(lengths, default=0)
    if longest >= section.max_length:
        raise RecipeError(
            "train.max_length",
            f"the longest prompt alone has {longest:,} tokens",
            f"fewer than {section.max_length:,}",
            "raise it, shorten cases.head_characters, or take train.prompt: compact",
        )
    over = sum(length + reply > section.max_length for length in lengths)
    return Lengths(longest, section.max_length, reply, over)


def read_cases(
    recipe: Recipe, *, skip_bad: bool = False
) -> tuple[list[RoutingCase], list[SplitAssignment]]:
    """The cases and their splits as the `cases` stage would make them; nothing is written."""
    from prerouter.stages.cases import divide, load, missing_sources

    if missing := missing_sources(recipe):
        raise CombinedError(missing)
    divided = divide(recipe, load(recipe, skip_bad))
    return divided.cases, divided.assignments


def _read_all(
    recipe: Recipe, skip_bad: bool, progress: Progress
) -> tuple[list[RoutingCase], list[SplitAssignment], list[PairedScore], list[str]]:
    """The cases, their splits, the scores brought along, and a line for each file with refused
    rows. Raises a CombinedError with every mistake of every file."""
    from prerouter.cli.needs import unmet
    from prerouter.sources.served import unserved
    from prerouter.sources.traces import check_traces, missing_traces
    from prerouter.stages.cases import divide, load, missing_sources

    errors = unmet(recipe)
    refused: list[str] = []
    cases: list[RoutingCase] = []
    assignments: list[SplitAssignment] = []
    scores: list[PairedScore] = []
    if not missing_sources(recipe):
        try:
            progress.start("check: reading the cases", None)
            loaded = load(recipe, skip_bad)
            refused += _refused("cases", loaded.rejects)
            progress.start("check: comparing documents", None)
            divided = divide(recipe, loaded)
            cases, assignments, scores = divided.cases, divided.assignments, loaded.scores
            errors += unserved(recipe, loaded, assignments)
        except PrerouterError as error:
            errors.append(error)
    if not missing_traces(recipe.filter):
        try:
            progress.start("check: reading the traces", None)
            refused += _refused("filter.traces", check_traces(recipe.filter, skip_bad))
        except PrerouterError as error:
            errors.append(error)
    if errors:
        raise CombinedError(errors)
    return cases, assignments, scores, refused


def _refused(place: str, rejects: Sequence[Reject]) -> list[str]:
    counts = sorted(Counter(reject.reason for reject in rejects).items())
    reasons = ", ".join(f"{reason} {count:,}" for reason, count in counts)
    return [f"{place}: {len(rejects):,} refused ({reasons})"] if rejects else []


def _by_split(cases: Sequence[RoutingCase], side: dict[str, Split]) -> str:
    counts = dict.fromkeys(Split, 0)
    for case in cases:
        counts[side[case.question_id]] += 1
    return ", ".join(f"{split.value} {count:,}" for split, count in counts.items())


def _plan(recipe: Recipe, cases: Sequence[RoutingCase], side: dict[str, Split]) -> list[str]:
    from prerouter.stages.pipeline import stages_of

    lines = ["stages: " + ", ".join(stage.name for stage in stages_of(recipe))]
    lines += _look_again(recipe, cases, side)
    if recipe.profile:
        engine = recipe.profile.engine
        lines.append(f"profile: {len(side):,} calls of {engine.model} through {engine.kind}")
    if recipe.answer and recipe.answer.reader == "engine":
        for name, count in Counter(case.answer_model.name for case in cases).items():
            answering = recipe.answer.engine_of(name)
            if answering is not None:
                lines.append(
                    f"answer: {len(recipe.routes) * count:,} calls of {answering.model} through "
                    f"{answering.kind} for {name}"
                )
    if recipe.score and recipe.score.judge:
        judge = recipe.score.judge
        lines.append(
            f"judge: at most {len(recipe.routes) * len(cases) * judge.repeats:,} calls of "
            f"{judge.engine.model} through {judge.engine.kind} ({len(cases):,} cases, "
            f"{len(recipe.routes)} answers each, {judge.repeats} times)"
        )
    if recipe.score and recipe.score.faithfulness:
        engine = recipe.score.faithfulness.engine
        read = len(cases) * sum(route is not Route.LC for route in recipe.routes)
        lines.append(
            f"faithfulness: at most {2 * read:,} calls of {engine.model} through "
            f"{engine.kind}, two for each answer from retrieved passages"
        )
    if recipe.route:
        routed = [case for case in cases if side[case.question_id] in recipe.route.splits]
        if "self_route_verdict" in recipe.route.routers:
            splits = recipe.splits_of("self_route_verdict")
            verdicts = sum(side[case.question_id] in splits for case in cases)
            lines.append(f"route: {verdicts:,} verdicts of the answering models, one a case")
        sorting = recipe.route.checks.query_types.engine
        if sorting and "edar_prompted" in recipe.route.routers:
            asked = len({case.question_id for case in routed})
            lines.append(
                f"route: {asked:,} queries sorted by {sorting.model} through {sorting.kind}, one a "
                "question"
            )
    if recipe.teach:
        taught = sum(
            side[case.question_id] in recipe.teach.splits
            and case.answer_model.name not in recipe.split.unseen_models
            for case in cases
        )
        calls = taught * recipe.teach.samples
        if recipe.teach.engine is None:
            lines.append(f"teach: {calls:,} traces by the guideline rules, no call of a model")
        else:
            engine = recipe.teach.engine
            lines.append(
                f"teach: {calls:,} calls of {engine.model} through {engine.kind} "
                f"({taught:,} cases, {recipe.teach.samples} samples each)"
            )
    if recipe.train:
        section = recipe.train
        way = f"LoRA r={section.lora.r}" if section.lora else "full fine-tuning"
        lines.append(f"train: {section.model}, {way}, {section.prompt} prompt, {section.dtype}")
        if section.sft:
            shown = ", ".join(f"{key}={value}" for key, value in section.sft.items())
            lines.append(f"train.sft: {shown}")
    return lines


def _look_again(recipe: Recipe, cases: Sequence[RoutingCase], side: dict[str, Split]) -> list[str]:
    """What is allowed and seldom meant."""
    lines = []
    sides: dict[str, set[Split]] = {}
    for case in cases:
        sides.setdefault(case.document.document_id, set()).add(side[case.question_id])
    both = sum(len(found) > 1 for found in sides.values())
    if both:
        lines.append(
            f"split: {both:,} of {len(sides):,} documents have questions on two sides; "
            "split.group_by: document keeps them apart"
        )
    grouped = recipe.split.group_by
    alone = len({case.group_id for case in cases}) == len(side) > 1
    if alone and grouped != "question" and isinstance(recipe.cases, TableSource):
        lines.append(
            f"split.group_by: {grouped} keeps nothing apart: each of the {len(side):,} questions "
            "has its own document; if several share one, give document_id, document_path or title"
        )
    for name in dict.fromkeys(case.answer_model.name for case in cases):
        answering = recipe.answer.engine_of(name) if recipe.answer else None
        if recipe.answer and answering and name not in recipe.answer.tokenizers:
            model = answering.model
            named = "/" in model or model.startswith("embedded:") or Path(model).is_dir()
            if answering.kind == "openai" and not named:
                lines.append(
                    f"answer.tokenizers: the tokenizer of {name} is looked for on the Hub as "
                    f"{model}, which names no owner; if that is the server's own name, give the "
                    "model's Hub name or a folder by answer.tokenizers"
                )
    reads_passages = recipe.answer is not None and recipe.answer.reader == "evidence"
    if reads_passages and recipe.score and recipe.score.metric != "evidence_recall":
        lines.append(
            "score: the evidence reader answers with whole passages, which "
            f"{recipe.score.metric} takes for wordy; score.metric: evidence_recall measures them"
        )
    return lines


def _too_few_to_calibrate(
    recipe: Recipe,
    cases: Sequence[RoutingCase],
    side: dict[str, Split],
    scores: Sequence[PairedScore],
) -> list[str]:
    """A line where `calibrate` would refuse to fit on so few labels: after hours of training."""
    section = recipe.calibrate
    if section is None:
        return []
    # Without `score`, only a pair that was brought along whole gets a label.
    whole = {
        pair.case_id for pair in scores if all(arm.score is not None for arm in pair.arms.values())
    }
    expected = sum(
        side[case.question_id] is section.split
        and recipe.learning_side(case, section.split) is section.split
        and (recipe.score is not None or case.case_id in whole)
        for case in cases
    )
    if expected >= section.min_cases:
        return []
    return [
        f"calibrate: will refuse: at most {expected:,} of the cases in {section.split.value} get a "
        f"label, and it takes {section.min_cases:,}; bring more questions, give that split a "
        "larger share, or leave calibrate out"
    ]


def _describe(lengths: Lengths) -> str:
    whole = lengths.longest + lengths.reply_limit
    line = (
        f"examples: the longest prompt has {lengths.longest:,} tokens; with a reply of "
        f"teach.max_tokens ({lengths.reply_limit:,}) {whole:,} of {lengths.limit:,}"
    )
    if lengths.over:
        return f"{line}; {lengths.over:,} prompts could pass the limit and would be refused"
    return f"{line}: fits"


def _not_installed(recipe: Recipe) -> list[str]:
    """What the recipe would need here that isn't there: told, since a check runs elsewhere too."""
    needed = {"torch": "train", "transformers": "train", "trl": "train"} if recipe.train else {}
    engines = [recipe.teach.engine] if recipe.teach else []
    if recipe.route and "edar_prompted" in recipe.route.routers:
        engines.append(recipe.route.checks.query_types.engine)
    if recipe.answer and recipe.answer.reader == "engine":
        needed |= {"sentence_transformers": "retrieval", "transformers": "train"}
        needed |= {"pymilvus": "milvus"} if recipe.retrieval and recipe.retrieval.milvus else {}
        engines += [recipe.answer.engine, *recipe.answer.engines.values()]
    if recipe.score:
        judges = (recipe.score.judge, recipe.score.faithfulness)
        engines += [judge.engine for judge in judges if judge is not None]
        if recipe.score.faithfulness and recipe.score.faithfulness.by == "ragas":
            needed["ragas"] = "ragas"
    kinds = {engine.kind for engine in engines if engine is not None}
    needed |= {kind: kind for kind in ("vllm", "ray") if kind in kinds}
    told = [
        f"not installed here: {package} (in prerouter's clone: pip install -e '.[{extra}]')"
        for package, extra in needed.items()
        if util.find_spec(package) is None
    ]
    absent = {name for key, asked in asked_by(recipe).items() for name in lacking(asked, key)}
    return told + [f"not installed here: {name} (pip install {name})" for name in sorted(absent)]
