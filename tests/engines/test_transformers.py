from __future__ import annotations

import json
import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from prerouter.core.errors import RecipeError
from prerouter.core.protocols import Completion, Engine, GenerationRequest, Sampling
from prerouter.core.records import Message
from prerouter.engines.transformers import (
    NO_TOKENS,
    PROMPT_TOO_LONG,
    TransformersModel,
    _split,
    _stop_tokens,
)
from prerouter.prompts.trace import TraceError, TraceReason, parse_trace

from ..tiny_model import CHAT_TEMPLATE, END_OF_TURN, PAD

TEXTS = ("a", "Which of the two was first? " * 6, "Who?", "tokens: 90254 " * 30, "Why so?", "b")


def request(text: str, seed: int | None = None) -> GenerationRequest:
    return GenerationRequest((Message(role="user", content=text),), seed=seed)


def run(
    engine: TransformersModel, requests: list[GenerationRequest], sampling: Sampling
) -> list[Completion]:
    done = dict(engine.generate(requests, sampling))
    return [done[index] for index in range(len(requests))]


@pytest.fixture(scope="module")
def engine(tiny_model: Path) -> TransformersModel:
    return TransformersModel(str(tiny_model), dtype="float32", batch_size=4)


@pytest.fixture(scope="module")
def reference(tiny_model: Path) -> tuple[Any, Any]:
    """The same model and tokenizer, plainly loaded."""
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    return model.eval(), AutoTokenizer.from_pretrained(tiny_model)


def prompt_ids(tokenizer: Any, text: str) -> torch.Tensor:
    chat = [{"role": "user", "content": text}]
    return tokenizer.apply_chat_template(  # type: ignore[no-any-return]
        chat, add_generation_prompt=True, enable_thinking=False, return_tensors="pt"
    )["input_ids"]


def test_it_is_an_engine(engine: TransformersModel, tiny_model: Path) -> None:
    as_engine: Engine = engine
    assert (as_engine.info.kind, as_engine.info.model) == ("transformers", str(tiny_model))
    assert set(as_engine.info.versions) == {"torch", "transformers"}


def test_it_tells_that_nothing_holds_a_reply_to_a_schema(engine: TransformersModel) -> None:
    assert engine.honours_schema() is False
    assert engine.cached_share is None


def test_every_request_is_answered_once(engine: TransformersModel) -> None:
    indexes = [index for index, _ in engine.generate([request(t) for t in TEXTS], Sampling(5))]
    assert sorted(indexes) == list(range(len(TEXTS)))


def test_completions_come_batch_by_batch(engine: TransformersModel) -> None:
    stream = engine.generate([request(text) for text in TEXTS], Sampling(5))
    first = next(stream)
    assert first[0] == TEXTS.index(max(TEXTS, key=len))


def test_greedy_text_is_that_of_transformers_own_generate(
    engine: TransformersModel, reference: tuple[Any, Any]
) -> None:
    model, tokenizer = reference
    for text, completion in zip(
        TEXTS, run(engine, [request(t) for t in TEXTS], Sampling(24)), strict=True
    ):
        ids = prompt_ids(tokenizer, text)
        expected = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False
        )[0, ids.shape[1] :]
        assert completion.text == tokenizer.decode(expected)
        assert completion.prompt_tokens == ids.shape[1]
        assert completion.completion_tokens == 24
        assert completion.finish_reason == "length"
        assert completion.seconds > 0


def test_entropies_are_those_of_a_plain_forward_pass(
    engine: TransformersModel, reference: tuple[Any, Any]
) -> None:
    model, tokenizer = reference
    sampling = Sampling(8, temperature=0.7, top_p=0.5, entropy_tokens=5)
    requests = [request(text, seed=7) for text in TEXTS[:3]]
    for text, completion in zip(TEXTS, run(engine, requests, sampling), strict=False):
        assert len(completion.entropies) == 5
        prompt = prompt_ids(tokenizer, text)
        with torch.inference_mode():
            p = model(prompt).logits[0, -1].double().softmax(-1)
        bits = -(p * p.log()).sum().item() / math.log(2)
        assert completion.entropies[0] == pytest.approx(bits, abs=1e-4)
        assert (
            0 < min(completion.entropies) <= max(completion.entropies) <= math.log2(len(tokenizer))
        )


def test_entropies_are_not_kept_unasked(engine: TransformersModel) -> None:
    assert run(engine, [request("a")], Sampling(3))[0].entropies == ()


def test_a_model_whose_numbers_overflow_is_an_error_and_no_certain_answer(
    tiny_model: Path,
) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32")
    engine._model.model.norm.weight.data.fill_(math.nan)
    (done,) = run(engine, [request("a")], Sampling(3, entropy_tokens=2))
    assert "not finite" in (done.error or "")
    assert (done.text, done.entropies, done.passing) == ("", (), False)


def test_choices_score_as_in_a_plain_forward_pass(
    engine: TransformersModel, reference: tuple[Any, Any]
) -> None:
    model, tokenizer = reference
    choices = ["RAG", "LC", "the whole document", "L", '"decision": "RAG"']
    scores = engine.score_choices([request(text) for text in TEXTS], choices)
    assert [len(row.log_probabilities) for row in scores] == [len(choices)] * len(TEXTS)
    for text, row in zip(TEXTS, scores, strict=True):
        prompt = prompt_ids(tokenizer, text)
        for choice, score in zip(choices, row.log_probabilities, strict=True):
            ending = tokenizer(choice, add_special_tokens=False, return_tensors="pt").input_ids
            with torch.inference_mode():
                logits = model(torch.cat([prompt, ending], dim=1)).logits[0]
            log_p = logits[prompt.shape[1] - 1 : -1].log_softmax(-1)
            expected = log_p.gather(-1, ending[0][:, None]).sum().item()
            assert score == pytest.approx(expected, abs=1e-3)


WHOLE = ["RAG document", "LC"]


def test_choices_that_begin_differently_are_told_apart_in_one_pass_a_batch(
    tiny_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", batch_size=4)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    ids = [tokenizer(choice, add_special_tokens=False).input_ids for choice in WHOLE]
    assert max(map(len, ids)) > 1
    begun = [tokenizer.decode(each[:1]) for each in ids]
    start = "Both of these begin with the same sentence, which is long enough to share. "
    asked = [request(start + text) for text in TEXTS]
    expected = engine.score_choices(asked, begun)

    passes = []
    plain = engine._model.forward

    def counted(**inputs: Any) -> Any:
        passes.append(tuple(inputs["input_ids"].shape))
        return plain(**inputs)

    monkeypatch.setattr(engine._model, "forward", counted)
    assert [row.log_probabilities for row in engine.score_choices(asked, begun)] == [
        row.log_probabilities for row in expected
    ]
    passes.clear()
    found = engine.score_choices(asked, WHOLE, first_tokens=True)
    # What the prompts share was read before; six prompts are two batches of four at most.
    assert len(passes) == 2
    for row, one in zip(found, expected, strict=True):
        assert row.log_probabilities == pytest.approx(one.log_probabilities, abs=1e-5)
    passes.clear()
    engine.score_choices(asked, WHOLE)
    assert len(passes) > 2


def test_choices_that_begin_alike_are_read_whole(engine: TransformersModel) -> None:
    asked = [request(text) for text in TEXTS[:2]]
    alike = ["LC document", "LC model"]
    whole = engine.score_choices(asked, alike)
    assert [
        row.log_probabilities for row in engine.score_choices(asked, alike, first_tokens=True)
    ] == [row.log_probabilities for row in whole]
    first, second = whole[0].log_probabilities
    assert first != second


def test_a_first_token_tells_as_much_as_the_word_to_a_model_that_writes_either(
    tiny_model: Path,
) -> None:
    """Taught both words over a handful of steps, the model writes the rest of a word it began."""
    engine = TransformersModel(str(tiny_model), dtype="float32")
    model, tokenizer = engine._model, engine._tokenizer
    rows = []
    for number, text in enumerate(TEXTS):
        word = tokenizer(WHOLE[number % 2], add_special_tokens=False).input_ids
        prompt = prompt_ids(tokenizer, text)[0].tolist()
        rows.append((torch.tensor([prompt + word]), len(prompt)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    with torch.enable_grad():
        for _ in range(25):
            losses = [
                torch.nn.functional.cross_entropy(
                    model(ids).logits[0, start - 1 : -1], ids[0, start:]
                )
                for ids, start in rows
            ]
            optimizer.zero_grad()
            torch.stack(losses).mean().backward()
            optimizer.step()
    asked = [request(text) for text in TEXTS]
    taught = TransformersModel.of(model, tokenizer)
    for whole, first in zip(
        taught.score_choices(asked, WHOLE),
        taught.score_choices(asked, WHOLE, first_tokens=True),
        strict=True,
    ):
        p_whole, p_first = (
            1 / (1 + math.exp(row.log_probabilities[0] - row.log_probabilities[1]))
            for row in (whole, first)
        )
        assert p_first == pytest.approx(p_whole, abs=0.02)


def test_choices_follow_the_thinking_switch(engine: TransformersModel) -> None:
    asked = [request("Who?")]
    plain, thinking = (engine.score_choices(asked, ["R", "L"], on)[0] for on in (False, True))
    assert plain.prompt_tokens != thinking.prompt_tokens
    assert plain.log_probabilities != thinking.log_probabilities


def test_log_odds_of_a_bfloat16_model_are_not_rounded_to_its_logits(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="bfloat16", batch_size=4)
    # Logits as large as a trained model's, where bfloat16 has steps of a sixteenth.
    engine._model.lm_head.weight.data.mul_(100)
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    first, second = (tokenizer(c, add_special_tokens=False).input_ids[0] for c in ("R", "L"))
    scores = engine.score_choices([request(text) for text in TEXTS], ["R", "L"])
    weights = engine._model.lm_head.weight[[first, second]].float()
    odds = []
    for text, row in zip(TEXTS, scores, strict=True):
        with torch.inference_mode():
            state = engine._model.model(prompt_ids(tokenizer, text)).last_hidden_state[0, -1]
        expected = (weights[0] - weights[1]) @ state.float()
        found = row.log_probabilities[0] - row.log_probabilities[1]
        # The state itself is read in bfloat16, in a padded batch here and alone there.
        assert found == pytest.approx(expected.item(), rel=0.05, abs=0.3)
        odds.append(found)
    assert any(abs(16 * each - round(16 * each)) > 0.05 for each in odds)


def test_a_choice_without_tokens_is_refused(engine: TransformersModel) -> None:
    with pytest.raises(ValueError, match="no tokens"):
        engine.score_choices([request("a")], ["RAG", ""])


def test_one_seed_is_one_text_and_two_are_two(engine: TransformersModel) -> None:
    sampling = Sampling(20, temperature=1.0)
    requests = [request("Who?", seed=seed) for seed in (1, 2, 3, 1)]
    texts = [completion.text for completion in run(engine, requests, sampling)]
    assert texts == [completion.text for completion in run(engine, requests, sampling)]
    assert texts[0] == texts[3]
    assert len(set(texts)) == 3


def test_a_seeded_text_does_not_depend_on_its_batch(engine: TransformersModel) -> None:
    sampling = Sampling(20, temperature=1.0, top_p=0.9)
    together = run(engine, [request(t, seed=n) for n, t in enumerate(TEXTS)], sampling)
    alone = [run(engine, [request(t, seed=n)], sampling)[0] for n, t in enumerate(TEXTS)]
    assert [c.text for c in together] == [c.text for c in alone]


def test_samples_without_a_seed_differ(engine: TransformersModel) -> None:
    samples = run(engine, [request("Who?")] * 4, Sampling(20, temperature=1.0))
    assert len({completion.text for completion in samples}) == 4


def test_rows_that_end_leave_their_batch_and_the_others_go_on(
    engine: TransformersModel, tiny_model: Path, tmp_path: Path
) -> None:
    stops = list(range(3, 20))
    folder = altered(tiny_model, tmp_path, "generation_config.json", eos_token_id=stops)
    stopping = TransformersModel(str(folder), dtype="float32", batch_size=8)
    requests = [request(f"Case {n}", seed=n) for n in range(8)]
    sampling = Sampling(20, temperature=1.0)
    whole = run(engine, requests, sampling)
    cut = run(stopping, requests, sampling)
    assert {completion.finish_reason for completion in cut} == {"stop", "length"}
    assert len({completion.completion_tokens for completion in cut}) > 3
    for uncut, completion in zip(whole, cut, strict=True):
        assert uncut.text.startswith(completion.text.rstrip("\ufffd"))
        if completion.finish_reason == "length":
            assert completion.text == uncut.text


def altered(tiny_model: Path, folder: Path, name: str, **changes: Any) -> Path:
    shutil.copytree(tiny_model, folder, dirs_exist_ok=True)
    data = json.loads((folder / name).read_text("utf-8"))
    (folder / name).write_text(json.dumps({**data, **changes}), "utf-8")
    return folder


def test_the_generation_configs_eos_stops(
    engine: TransformersModel, reference: tuple[Any, Any], tiny_model: Path, tmp_path: Path
) -> None:
    _, tokenizer = reference
    text = run(engine, [request("Who?")], Sampling(24))[0].text
    third = tokenizer(text, add_special_tokens=False).input_ids[2]
    stopping = altered(tiny_model, tmp_path, "generation_config.json", eos_token_id=[third])
    completion = run(
        TransformersModel(str(stopping), dtype="float32"), [request("Who?")], Sampling(24)
    )[0]
    assert completion.finish_reason == "stop"
    assert completion.completion_tokens <= 3
    assert text.startswith(completion.text)


def test_the_end_of_turn_of_the_template_stops_even_where_no_configuration_names_it(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = altered(tiny_model, tmp_path, "tokenizer_config.json", eos_token=PAD)
    model = AutoModelForCausalLM.from_pretrained(folder)
    model.generation_config.eos_token_id = None
    tokenizer = AutoTokenizer.from_pretrained(
        folder, additional_special_tokens=["<|im_start|>", END_OF_TURN]
    )
    expected = {tokenizer.convert_tokens_to_ids(token) for token in (PAD, END_OF_TURN)}
    assert set(_stop_tokens(model, tokenizer)) == expected


def test_a_prompt_that_is_too_long_costs_itself_only(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", max_model_len=64)
    long, short = run(engine, [request("word " * 100), request("a")], Sampling(4))
    assert long.finish_reason == "error"
    assert long.error is not None
    assert long.error.startswith(PROMPT_TOO_LONG)
    assert short.finish_reason == "length"
    assert short.error is None

    asked = [request("word " * 100), request("a"), request("\ud800")]
    long_row, row, half = engine.score_choices(asked, ["RAG", "LC"])
    assert long_row.error is not None
    assert long_row.error.startswith(PROMPT_TOO_LONG)
    assert long_row.prompt_tokens > 64
    assert half.error is not None
    assert row.error is None
    assert len(row.log_probabilities) == 2


def test_half_a_character_costs_itself_only(engine: TransformersModel) -> None:
    texts = ["One?", "What is \ud800 here?", "Two?"]
    done = dict(engine.generate([request(text) for text in texts], Sampling(5)))
    assert (done[1].finish_reason, done[1].error, done[1].passing) == ("error", NO_TOKENS, False)
    assert done[0].error is None
    assert done[2].error is None


def test_a_reply_ends_where_the_models_length_ends(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="float32", max_model_len=64)
    completion = run(engine, [request("a")], Sampling(1000))[0]
    assert completion.prompt_tokens + completion.completion_tokens == 64
    assert completion.finish_reason == "length"


def test_the_thinking_switch_goes_through_the_template(engine: TransformersModel) -> None:
    off = run(engine, [request("a")], Sampling(1))[0]
    on = run(engine, [request("a")], Sampling(1, thinking=True))[0]
    assert on.prompt_tokens < off.prompt_tokens
    assert engine.count_tokens(request("a").messages) == off.prompt_tokens


@pytest.mark.parametrize(
    ("text", "opened", "thinking", "expected"),
    [
        ("<think>why</think>\n\nLC", False, True, ("why", "LC")),
        ("why</think>LC", True, True, ("why", "LC")),
        ("why</think>LC", True, False, ("why", "LC")),
        ("LC", False, True, (None, "LC")),
        ("<think>why</think>LC", False, False, (None, "<think>why</think>LC")),
        ("<think>why", False, True, (None, "<think>why")),
        ("why", True, True, (None, "<think>why")),
    ],
)
def test_thinking_text_apart(
    text: str, opened: bool, thinking: bool, expected: tuple[str | None, str]
) -> None:
    assert _split(text, opened, thinking) == expected


def test_where_the_template_opens_the_thinking_nothing_unclosed_passes_for_a_reply(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "opens"
    shutil.copytree(tiny_model, folder)
    opening = CHAT_TEMPLATE.replace(
        "assistant\\n' }}\n{%- if enable", "assistant\\n<think>\\n' }}\n{%- if enable"
    )
    assert opening != CHAT_TEMPLATE
    (folder / "chat_template.jinja").write_text(opening, "utf-8")
    engine = TransformersModel(str(folder), dtype="float32")
    completion = run(engine, [request("a")], Sampling(4, thinking=True))[0]
    assert completion.reasoning is None
    with pytest.raises(TraceError) as caught:
        parse_trace(completion.text, "stop")
    assert caught.value.reason is TraceReason.UNCLOSED_THINKING


def test_a_reply_that_can_not_become_an_object_is_not_written_to_its_end(
    engine: TransformersModel,
) -> None:
    requests = [request("one"), request("another")]
    free = dict(engine.generate(requests, Sampling(max_tokens=40)))
    held = dict(engine.generate(requests, Sampling(max_tokens=40, schema={"type": "object"})))
    assert {completion.completion_tokens for completion in free.values()} == {40}
    for index, completion in held.items():
        assert not free[index].text.lstrip().startswith(("{", "`"))
        assert free[index].text.startswith(completion.text)
        assert (completion.completion_tokens, completion.finish_reason) == (8, "stop")


def test_a_model_without_a_chat_template_is_refused(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("chat_template.jinja"))
    with pytest.raises(RecipeError, match="has no chat template"):
        TransformersModel(str(folder))


def test_weights_that_are_no_safetensors_are_not_read(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "pickled"
    shutil.copytree(tiny_model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    torch.save(model.state_dict(), folder / "pytorch_model.bin")
    with pytest.raises(RecipeError, match="can't be loaded"):
        TransformersModel(str(folder))


def test_code_that_a_model_brings_is_not_run(tiny_model: Path, tmp_path: Path) -> None:
    folder = altered(
        tiny_model,
        tmp_path / "coded",
        "config.json",
        model_type="own",
        auto_map={"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"},
    )
    witness = tmp_path / "ran"
    (folder / "own.py").write_text(f"open({str(witness)!r}, 'w').close()\n", "utf-8")
    with pytest.raises(RecipeError, match="can't be loaded"):
        TransformersModel(str(folder))
    assert not witness.exists()


def test_bfloat16_is_loaded_as_such(tiny_model: Path) -> None:
    engine = TransformersModel(str(tiny_model), dtype="bfloat16")
    assert engine._model.dtype is torch.bfloat16
    assert run(engine, [request("a")], Sampling(2))[0].completion_tokens == 2


def test_importing_engines_and_routers_loads_no_heavy_library() -> None:
    code = (
        "import prerouter.engines.transformers, prerouter.engines.embedded,"
        " prerouter.routers.learned, sys;"
        " print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    shown = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert shown.stdout.strip() == "[]"
