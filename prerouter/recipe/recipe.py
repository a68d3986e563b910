"""The whole recipe: one YAML file is one experiment, complete and readable alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import Field, model_validator

from prerouter.core.records import (
    ROUTES,
    MetadataSetting,
    RagConfig,
    Route,
    RoutingCase,
    Split,
    StudentMode,
)
from prerouter.recipe.base import Section, apply_overrides, read_yaml, validate
from prerouter.recipe.calibrate import GIVES_P_LC, CalibrateSection
from prerouter.recipe.cases import CasesSection, LongBenchV2Source, SplitSection, TableSource
from prerouter.recipe.checks import AskBy
from prerouter.recipe.classify import ClassifySection
from prerouter.recipe.hub import is_repo_id
from prerouter.recipe.profile import ProfileSection
from prerouter.recipe.retrieval import RetrievalSection
from prerouter.recipe.route import (
    BASELINES,
    BY_ENTROPY,
    CHECKED,
    EvaluateSection,
    PublishSection,
    RouterName,
    RouteSection,
)
from prerouter.recipe.scores import AnswerSection, LabelSection, ScoreSection
from prerouter.recipe.teach import DatasetSection, FilterSection, TeachSection
from prerouter.recipe.train import TrainSection

STUDENTS: dict[RouterName, StudentMode] = {
    "student": StudentMode.EXPLAIN,
    "student_decide": StudentMode.DECIDE,
}


class Recipe(Section):
    """One experiment. A section that is absent is a stage that does not run: whoever brings paired
    scores leaves out `answer` and `score`, whoever brings traces leaves out `teach`."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
    seed: Annotated[int, Field(ge=0, lt=2**32)] = 13
    runs_dir: Path = Path("runs")
    prices: Annotated[
        Path | None, Field(description="own price table; the one that ships where absent")
    ] = None
    cases: CasesSection
    rag: RagConfig = RagConfig()
    split: SplitSection = SplitSection()
    profile: ProfileSection | None = None
    retrieval: RetrievalSection | None = None
    answer: AnswerSection | None = None
    score: ScoreSection | None = None
    label: LabelSection = LabelSection()
    teach: TeachSection | None = None
    filter: FilterSection | None = None
    dataset: DatasetSection | None = None
    train: TrainSection | None = None
    classify: ClassifySection | None = None
    route: RouteSection | None = None
    calibrate: CalibrateSection | None = None
    evaluate: EvaluateSection | None = None
    publish: PublishSection | None = None

    @model_validator(mode="before")
    @classmethod
    def _usual_routers(cls, data: Any) -> Any:
        """Where `route` names no router: all baselines, and the student in the modes it learns."""
        route = data.get("route") if isinstance(data, dict) else None
        if not isinstance(route, dict) or "routers" in route:
            return data
        train = data.get("train")
        mix = train.get("mix") or {} if isinstance(train, dict) else None
        routers: list[RouterName] = [*BASELINES]
        if isinstance(mix, dict):
            routers += ["student_before", "student"] if mix.get("explain", 1) else []
            routers += ["student_decide"] if mix.get("decide", 0) else []
        return {**data, "route": {**route, "routers": routers}}

    @model_validator(mode="after")
    def _stages_have_what_they_read(self) -> Self:
        mistakes = []
        if self.answer and self.answer.reader == "engine" and not self.retrieval:
            mistakes.append("answer.reader engine needs `retrieval`: what RAG reads")
        if self.score and self.score.faithfulness and not self.answer:
            mistakes.append(
                "score.faithfulness needs `answer`: answers brought along name no passages"
            )
        unanswered = [route.value for route in self.label.routes if route not in self.routes]
        if unanswered:
            mistakes.append(f"label.routes {', '.join(unanswered)}: name them in answer.routes")
        if self.label.routes != ROUTES:
            if self.filter:
                mistakes.append(
                    "traces end in RAG or LC: label.routes compares these two for `filter`"
                )
            if self.classify or (self.route and "probe_router" in self.route.routers):
                mistakes.append("heads have two outputs: label.routes compares RAG and LC for them")
        if self.filter and not (self.teach or self.filter.traces):
            mistakes.append("filter needs `teach`, or own traces by `filter.traces`")
        if self.filter and self.teach and self.filter.traces:
            mistakes.append("filter reads either `teach` or `filter.traces`, not both")
        if self.train and not self.filter:
            mistakes.append("train needs `filter`")
        if self.train and self.teach and Split.TRAIN not in self.teach.splits:
            mistakes.append("train learns from the train split: teach.splits has to name it")
        if self.route and not self.train:
            students = [name for name in self.route.routers if name.startswith("student")]
            if students:
                mistakes.append(f"route.routers {', '.join(students)} need `train`")
        if self.route:
            mistakes += self._checked(self.route)
        probing = self.route is not None and "probe_router" in self.route.routers
        if probing and not self.train and self.route and self.route.probe.model is None:
            mistakes.append(
                "route.routers probe_router needs `train`, or a model by route.probe.model"
            )
        if self.classify and self.label.routes != ROUTES:
            mistakes.append("classify chooses between RAG and LC: label.routes compares these two")
        if self.route and "classifier" in self.route.routers and not self.classify:
            mistakes.append("route.routers classifier needs `classify`")
        if self.calibrate:
            mistakes += self._calibrated(self.calibrate)
        if self.evaluate and not self.route:
            mistakes.append("evaluate needs `route`")
        if self.evaluate and self.route:
            tuned = tuple(self.calibrate.tuned.values()) if self.calibrate else ()
            mistakes += self.evaluate.mistakes(self.route, tuned)
        if self.evaluate and self.evaluate.fallback not in self.routes:
            mistakes.append(f"evaluate.fallback {self.evaluate.fallback} is not in answer.routes")
        if self.publish and self.publish.fallback not in ROUTES:
            mistakes.append(f"publish.fallback is one of {', '.join(ROUTES)}")
        if self.publish and not self.train:
            mistakes.append("publish needs `train`")
        for name, mode in STUDENTS.items():
            routed = self.route is not None and name in self.route.routers
            if routed and self.train and mode not in self.train.mix.modes:
                mistakes.append(f"route.routers {name} needs train.mix.{mode}: 1 or more")
        if self.publish and self.route and self.student not in self.route.routers:
            mistakes.append(f"publish needs `{self.student}` among route.routers")
        if self.dataset and not self.filter:
            mistakes.append("dataset needs `filter`")
        if self.dataset and self.train and self.dataset.prompt not in (None, self.train.prompt):
            mistakes.append(
                "dataset.prompt is train.prompt where a student is trained: leave it out"
            )
        if self.teach and self.dataset and self.teach.prompt.paradigm != "guided":
            mistakes.append("dataset holds six-step traces: teach.prompt.paradigm has to be guided")
        if self.teach and self.train and self.teach.prompt.paradigm != "guided":
            mistakes.append("train learns six-step traces: teach.prompt.paradigm has to be guided")
        if self.publish and not self.evaluate:
            mistakes.append("publish needs `evaluate`: the card shows the measured table")
        if self.publish and self.publish.adapter and self.train and not self.train.lora:
            mistakes.append("publish.adapter needs train.lora: all weights are trained without it")
        if self.publish and self.publish.adapter and self.train and not self.base_on_hub:
            mistakes.append(
                "publish.adapter needs publish.base_model: what an adapter goes on top of is named "
                "by its Hub name"
            )
        mistakes += self._metadata_mistakes()
        if mistakes:
            raise ValueError("; ".join(mistakes))
        return self

    def _metadata_mistakes(self) -> list[str]:
        shown: dict[str, MetadataSetting] = {}
        if self.teach and self.teach.engine:
            shown["teach.prompt.metadata"] = self.teach.prompt.metadata
        if self.train:
            shown["train.metadata"] = self.train.metadata
        if self.classify:
            shown["classify.metadata"] = self.classify.metadata
        generated = [key for key, it in shown.items() if it is MetadataSetting.GENERATED]
        full = [key for key, it in shown.items() if it is MetadataSetting.FULL]
        if generated and not self.profile:
            return [f"{' and '.join(generated)}: generated needs `profile`, which infers them"]
        if self.profile and not generated:
            return ["profile infers metadata that nothing shows: set train.metadata: generated"]
        if self.profile and full:
            # The cases hold the inferred texts then, and nothing of the source's own.
            return [f"{' and '.join(full)}: full can't stand beside `profile`: take generated"]
        return []

    def _calibrated(self, section: CalibrateSection) -> list[str]:
        if not self.route:
            return ["calibrate needs `route`"]
        mistakes = []
        written = self.route.checks.verdict_by is AskBy.REPLY
        for router, tuned in section.tuned.items():
            place = f"calibrate.routers {router}"
            if router not in self.route.routers:
                mistakes.append(f"{place} is not among route.routers")
            if router not in GIVES_P_LC:
                mistakes.append(f"{place} gives no p_lc: take some of {', '.join(GIVES_P_LC)}")
            elif router == "self_route_verdict" and written:
                mistakes.append(f"{place} needs verdict_by: probability")
            if tuned in self.route.published:
                mistakes.append(f"route.published {tuned} is the calibrated router's name")
        if self.label.routes != ROUTES:
            mistakes.append("calibrate sets a threshold between two: label.routes RAG and LC")
        if self.evaluate and self.evaluate.split is section.split:
            mistakes.append("calibrate.split is evaluate.split: fit on one, measure on another")
        return mistakes

    def _checked(self, route: RouteSection) -> list[str]:
        """What the routers lack that decide after retrieval."""
        named = set(route.routers)
        by_entropy = sorted(named & set(BY_ENTROPY))
        long_rag = sorted(named & {"always_long_rag", "long_rag_self_route"})
        mistakes = []
        if by_entropy and not (self.answer and self.answer.entropy_tokens):
            mistakes.append(
                f"route.routers {', '.join(by_entropy)} need answer.entropy_tokens: 30 or another"
            )
        if long_rag and Route.LONG_RAG not in self.routes:
            mistakes.append(f"route.routers {', '.join(long_rag)} need LONG_RAG in answer.routes")
        if "self_route_verdict" in named and not (self.answer and self.answer.reader == "engine"):
            mistakes.append("route.routers self_route_verdict asks the model of answer.engine")
        if "edar_prompted" in named and route.checks.query_types.engine is None:
            mistakes.append("route.routers edar_prompted needs route.checks.query_types.engine")
        answering = [self.answer.engine, *self.answer.engines.values()] if self.answer else []
        mistakes += route.checks.unscored(named, answering)
        evaluated = self.evaluate.split if self.evaluate else None
        if by_entropy and route.checks.tau is None and evaluated is route.checks.split:
            mistakes.append(
                "route.checks.split is evaluate.split: choose tau on one, measure on another"
            )
        if "pre_route_check" in named and self.checked_router in BY_ENTROPY:
            mistakes.append(f"route.checks.pre_route {self.checked_router} is a check itself")
        if "pre_route_check" in named and self.checked_router not in (
            *route.routers,
            *route.published,
        ):
            mistakes.append(
                f"route.checks.pre_route {self.checked_router} is not among route.routers"
            )
        return mistakes

    def learning_side(self, case: RoutingCase, side: Split) -> Split:
        """The side of a case, of a question on `side`, for all that learns or is tuned: the cases
        of an unseen answer model are never learnt from."""
        return Split.TEST if case.answer_model.name in self.split.unseen_models else side

    @property
    def unseen(self) -> dict[str, object]:
        """What a stage that learns depends on beside its own section, where a recipe has it."""
        names = list(self.split.unseen_models)
        return {"split.unseen_models": names} if names else {}

    @property
    def checked_after_retrieval(self) -> bool:
        """Whether a router reads what was answered."""
        return self.route is not None and not set(self.route.routers).isdisjoint(CHECKED)

    @property
    def checked_router(self) -> str:
        """The router whose decisions `pre_route_check` checks."""
        chosen = self.route.checks.pre_route if self.route else None
        return chosen or next(iter(self._learnt), "guideline")

    def splits_of(self, router: str) -> set[Split]:
        """The splits that a router decides: those of `route`, and what it is calibrated on."""
        assert self.route is not None
        calibrated = self.calibrate
        also = {calibrated.split} if calibrated and router in calibrated.routers else set()
        return {*self.route.splits, *also}

    @property
    def student(self) -> RouterName:
        """The row of the routing table that a published router stands for: the student in the mode
        that is calibrated, else in the first that it learns."""
        calibrated = self.calibrate.routers if self.calibrate else ()
        learnt = sorted(self._learnt, key=lambda name: name not in calibrated)
        return next(iter(learnt), "student")

    @property
    def _learnt(self) -> list[RouterName]:
        trained = self.train.mix.modes if self.train else ()
        return [name for name, mode in STUDENTS.items() if mode in trained]

    @property
    def base_on_hub(self) -> str | None:
        """What the student was made from, by its name on the Hub where that is known."""
        if self.publish and self.publish.base_model:
            return self.publish.base_model
        model = self.train.model if self.train else ""
        # A folder of this machine may have two parts as well.
        return model if is_repo_id(model) and not Path(model).is_dir() else None

    @property
    def run_dir(self) -> Path:
        return self.runs_dir / self.name

    @property
    def document_root(self) -> Path:
        """The folder that document paths are relative to."""
        if isinstance(self.cases, TableSource):
            return self.cases.documents or self.cases.path.parent
        if isinstance(self.cases, LongBenchV2Source):
            return self.run_dir / "cases"
        return self.cases.path

    @property
    def cases_file(self) -> str:
        """Where the cases stand that teachers and routers see: as the source gives them, or with
        the metadata that `profile` inferred."""
        return "profile/rows.jsonl" if self.profile else "cases/rows.jsonl"

    @property
    def routes(self) -> tuple[Route, ...]:
        """The routes that have an answer, from cheap to dear."""
        return self.answer.routes if self.answer else ROUTES

    @property
    def answers_file(self) -> str:
        """Where the answers stand: written by `answer`, or brought along with the cases."""
        return "answer/rows.jsonl" if self.answer else "cases/answers.jsonl"

    @property
    def scores_file(self) -> str:
        """Where the paired scores stand: measured by `score`, or brought along with the cases."""
        return "score/rows.jsonl" if self.score else "cases/scores.jsonl"

    @property
    def dataset_dir(self) -> Path:
        """Where `dataset` puts the data set's folder."""
        return self.run_dir / "dataset" / "hub"

    @property
    def published_dir(self) -> Path:
        """Where `publish` puts the router."""
        chosen = self.publish.folder if self.publish else None
        return chosen or self.run_dir / "publish" / "router"


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read and validate a recipe. Raises a CombinedError that names every mistake."""
    return validate(Recipe, apply_overrides(read_yaml(path), overrides), str(path))
