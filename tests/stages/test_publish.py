"""What the card says of the router that lies in the folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import SilentProgress
from prerouter.core.records import Split
from prerouter.measures.routing import POOLED, Measure, RoutingRow, routing_table
from prerouter.measures.tuning import Calibrated, calibrate
from prerouter.recipe.calibrate import CalibrateSection
from prerouter.runs.manifest import FileEntry, Fingerprint, Manifest
from prerouter.runs.rows import write_rows
from prerouter.runs.stage import StageRun
from prerouter.stages.publish import make_card, own_calibration, published_row, router_config
from tests.measures.matched import evaluation
from tests.stages.test_router_reports import make_recipe, trained

TRAINED: dict[str, Any] = {
    "train_examples": 2,
    "validation_examples": 1,
    "steps": 2,
    "epochs": 1.0,
    "tokens_seen": 900,
    "eval_loss": None,
    "trainable_parameters": 10,
    "total_parameters": 20,
    "settings": {},
    "seconds": 1.0,
    "versions": {},
}


@pytest.mark.parametrize("calibrated", [None, "student_decide", "random_forest"])
def test_the_card_has_the_row_of_what_the_folder_decides_by(
    calibrated: str | None, tmp_path: Path
) -> None:
    made = evaluation(
        [(1, 0), (0, 1), (0, 1), (1, 0)],
        {"student_decide": "RRRR", "student_decide_tuned": "RLLR", "random_forest_tuned": "LLLL"},
    )
    rows = routing_table(made.decisions, made.labels, made.scores, made.cases, resamples=20)
    recipe = make_recipe(
        tmp_path,
        train={"model": "Qwen/Qwen3-1.7B", "mix": {"explain": 0, "decide": 1}},
        route={"routers": ["decision_tree", "random_forest", "student_decide"]},
        dataset={"license": "mit", "source_license": "as on the publisher's page"},
        **({"calibrate": {"routers": ["decision_tree", calibrated]}} if calibrated else {}),
    )
    tuned = calibrated == "student_decide"
    config = router_config(recipe, "guideline", {})
    if tuned:
        config = config.model_copy(update={"threshold_for": "ab" * 32})
    filtered = Manifest(
        fingerprint=Fingerprint(stage="filter", seed=1, sections={}, parents={}),
        files={"rows.jsonl": FileEntry(rows=3, sha256="0" * 64)},
        report={"yield": {"all": {"all": {"of": 4}}}},
        seconds=1.0,
    )
    manifests = {"filter": filtered, "train": trained(**TRAINED)}
    card = make_card(recipe, config, manifests, rows, made.cases)
    measured = {each.type: each.value for each in card.metrics}
    assert measured[Measure.ACCURACY.value] == (1.0 if tuned else 0.5)
    assert card.collapsed is not tuned
    assert card.calibrated_on is (Split.VALIDATION if tuned else None)
    assert card.data.license == "as on the publisher's page"


@pytest.mark.parametrize(
    ("calibrated", "modes"), [({}, ("decide", "explain")), (None, ("explain", "decide"))]
)
def test_the_mode_that_is_calibrated_is_the_usual_one(
    calibrated: dict[str, Any] | None, modes: tuple[str, ...], tmp_path: Path
) -> None:
    recipe = make_recipe(
        tmp_path,
        train={"model": "Qwen/Qwen3-1.7B", "mix": {"explain": 1, "decide": 1}},
        calibrate=calibrated,
    )
    assert router_config(recipe, "guideline", {}).modes == modes
    names = ("student", "student_decide_tuned")
    rows = [RoutingRow.model_construct(router=name, answer_model=POOLED) for name in names]
    assert published_row(recipe, rows).router == names[calibrated is not None]


def test_the_folder_takes_the_students_calibration_and_no_others(tmp_path: Path) -> None:
    made = evaluation(
        [(1, 0), (0, 1)] * 4,
        dict.fromkeys(("classifier", "student_decide"), "RL" * 4),
        p_lc={"classifier": [0.1, 0.9] * 4, "student_decide": [0.4, 0.6] * 4},
    )
    section = CalibrateSection(min_cases=2, routers=("classifier", "student_decide"))
    done = [
        calibrate(
            section,
            router,
            made.decisions[router],
            made.labels,
            made.scores,
            {Split.VALIDATION: made.cases},
        )
        for router in section.routers
    ]

    def published(routers: list[str], *rows: Calibrated) -> Calibrated | None:
        recipe = make_recipe(
            tmp_path,
            train={"model": "Qwen/Qwen3-1.7B", "mix": {"explain": 1, "decide": 1}},
            classify={"model": "Qwen/Qwen3-1.7B"},
            route={"routers": ["classifier", "student", "student_decide"]},
            calibrate={"routers": routers},
        )
        folder = recipe.run_dir / "calibrate"
        folder.mkdir(parents=True, exist_ok=True)
        write_rows(folder / "rows.jsonl", rows)
        return own_calibration(StageRun(recipe, folder, SilentProgress()))

    both = ["classifier", "student_decide"]
    assert published(both, *done) == done[1]
    assert published(["classifier"], done[0]) is None
    with pytest.raises(StageError, match="publish: student_decide was not calibrated"):
        published(both, done[0])
