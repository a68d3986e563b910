from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from prerouter.core.errors import StageError
from prerouter.core.protocols import Progress, SilentProgress
from prerouter.core.records import Decision, DecisionFailure, Route, Split
from prerouter.recipe.train import TrainSection
from prerouter.training.report import TrainReport
from prerouter.training.watch import Watch, check_watch, measure, sample_by_stratum

from .conftest import example, section

IDEAL = {"a": Route.LC, "b": Route.RAG, "c": Route.RAG, "d": Route.LC}


def decisions(*routes: Route | None) -> list[Decision]:
    return [
        Decision(
            case_id=case,
            router="student",
            route=route,
            failure=None if route else DecisionFailure.UNPARSABLE,
        )
        for case, route in zip(IDEAL, routes, strict=True)
    ]


def test_a_reply_that_is_no_decision_is_a_wrong_one() -> None:
    found = measure(decisions(Route.LC, Route.LC, None, Route.LC), IDEAL)
    assert found == {"route_accuracy": 0.5, "lc_rate": 0.75, "parse_rate": 0.75}


@pytest.mark.parametrize("count", [1, 7, 10, 99])
def test_a_sample_holds_each_stratum_by_its_share(count: int) -> None:
    items = [f"{stratum}{n}" for n in range(30) for stratum in "aab"][:80]
    sample = sample_by_stratum(items, lambda item: item[0], count, seed=3)
    assert len(sample) == min(count, len(items))
    assert sample == sorted(sample, key=items.index)
    share = Counter(item[0] for item in sample)["b"] / len(sample)
    assert share == pytest.approx(Counter(item[0] for item in items)["b"] / 80, abs=1 / len(sample))


def test_a_sample_follows_its_seed() -> None:
    items = [f"a{n}" for n in range(50)]
    samples = [sample_by_stratum(items, lambda item: item[0], 5, seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]


def run(
    model: Path,
    folder: Path,
    looks: list[list[Decision]],
    patience: int | None = None,
    dtype: str = "float32",
    progress: Progress | None = None,
    **sft: Any,
) -> tuple[TrainReport, list[Any]]:
    """A run with these decisions at its looks, and what the live model gave at each of them."""
    from prerouter.training.sft import train_student

    seen: list[Any] = []

    def decide(live: Any, tokenizer: Any) -> list[Decision]:
        assert not live.training
        seen.append(live(tokenizer("question", return_tensors="pt").input_ids).logits.detach())
        return looks[len(seen) - 1]

    plain = section(dtype=dtype, sft={"lr_scheduler_type": "constant", **sft}).model_dump()
    if looks:
        del plain["sft"]["save_strategy"]
        plain["watch"] = {"every": 2, "patience": patience}
    report = train_student(
        [example(n) for n in range(4)],
        [example(6, Split.VALIDATION), example(7, Split.VALIDATION)],
        TrainSection.model_validate(plain),
        str(model),
        folder,
        13,
        "test",
        progress or SilentProgress(),
        watch=Watch(decide, IDEAL, patience) if looks else None,
    )
    return report, seen


GOOD = decisions(*IDEAL.values())
FAIR = decisions(Route.LC, Route.LC, Route.LC, Route.LC)


def test_the_weights_that_route_best_are_exported_and_patience_ends_training(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    looks = [FAIR, GOOD, FAIR, GOOD]
    report, seen = run(tiny_model_dir, tmp_path / "watched", looks, 2, max_steps=40)
    assert report.steps == 8  # looks at 2, 4, 6 and 8: none better after 4
    assert [point.route_accuracy for point in report.watched] == [0.5, 1.0, 0.5, 1.0]
    assert [point.step for point in report.watched] == [2, 4, 6, 8]
    assert report.eval_loss is not None
    # As good at 8 as at 4, and likelier by then.
    assert report.exported_step == 8
    assert (seen[0] - seen[1]).abs().max() > 0  # the live weights were looked at


def test_looking_changes_nothing_and_what_came_after_the_best_is_dropped(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    report, _ = run(tiny_model_dir, tmp_path / "watched", [FAIR, GOOD, FAIR], max_steps=6)
    assert (report.steps, report.exported_step) == (6, 4)
    run(tiny_model_dir, tmp_path / "plain", [], max_steps=4)
    models = [tmp_path / name / "model" / "model.safetensors" for name in ("watched", "plain")]
    assert models[0].read_bytes() == models[1].read_bytes()


def test_a_look_under_fsdp_is_refused_before_the_first_step(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from prerouter.training import sft

    def shard(trainer: Any) -> None:
        trainer.is_fsdp_enabled = True

    monkeypatch.setattr(sft, "check_trainer", shard)
    with pytest.raises(StageError, match=r"train\.watch: .* under FSDP"):
        run(tiny_model_dir, tmp_path, [GOOD], max_steps=2)
    assert not (tmp_path / "checkpoints" / "fingerprint").exists()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_look_computes_in_the_precision_of_training(
    dtype: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    import torch

    _, seen = run(tiny_model_dir, tmp_path, [GOOD], dtype=dtype, max_steps=2)
    rounded = torch.equal(seen[0], seen[0].to(torch.bfloat16).to(seen[0].dtype))
    assert rounded == (dtype == "bfloat16")


def test_nothing_to_look_at_is_an_error() -> None:
    with pytest.raises(StageError, match=r"train\.watch: 0 labelled validation cases"):
        check_watch(Watch(lambda model, tokenizer: [], {}), 3)


def test_a_look_is_told_in_one_line(tiny_model_dir: Path, tmp_path: Path) -> None:
    notes: list[str] = []

    class Noting(SilentProgress):
        def note(self, message: str) -> None:
            notes.append(message)

    report, _ = run(tiny_model_dir, tmp_path, [FAIR, GOOD], max_steps=4, progress=Noting())
    loss = f"{report.eval_loss:.3g}"
    assert len(notes) == 2
    told = "step 2: route accuracy 50%, LC 100%, parsed 100%, validation loss "
    assert notes[0].startswith(f"train, {told}")
    assert notes[1].endswith(f"route accuracy 100%, LC 50%, parsed 100%, validation loss {loss}")
