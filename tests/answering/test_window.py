"""The answering model's own tokenizer: what it counts is what the engine counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.answering.long_context import LongText, lc_prompt
from prerouter.answering.window import Window, load_tokens
from prerouter.core.errors import RecipeError
from prerouter.core.records import AnswerModel
from prerouter.prompts.answer import render_lc
from prerouter.recipe.engine import OpenAIEngine, TransformersEngine
from tests.tiny_model import make_tiny_model

from .scripted import make_case, shown, window
from .test_long_context import DOCUMENTS

SERVER = OpenAIEngine(kind="openai", model="a-name-of-its-own", base_url="http://127.0.0.1:1/v1")


@pytest.fixture(scope="module")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def section(folder: Path, **settings: int) -> TransformersEngine:
    return TransformersEngine(
        kind="transformers", model=str(folder), dtype="float32", batch_size=2, **settings
    )


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_prompt_is_as_long_for_the_engine_as_it_was_counted(tiny_model: Path, name: str) -> None:
    tokens = load_tokens(section(tiny_model), None)
    case = make_case(answer_model=AnswerModel(name="r", context_window=1800))
    prompted = lc_prompt(case, LongText(DOCUMENTS[name], tokens.starts), Window(tokens, 50, 128))
    assert prompted.document_cut
    assert prompted.request is not None
    assert len(shown(prompted.request)) == 2
    length = tokens.count_prompt(prompted.request.messages, False)
    assert 1800 - 50 - 128 - 60 <= length <= 1800 - 50


def test_the_engine_reads_what_was_made_to_fit(tiny_model: Path) -> None:
    from prerouter.core.protocols import Sampling
    from prerouter.engines.transformers import TransformersModel

    tokens = load_tokens(section(tiny_model), None)
    model = TransformersModel(str(tiny_model), dtype="float32", batch_size=2)
    prompted = lc_prompt(
        make_case(answer_model=AnswerModel(name="r")),
        LongText(DOCUMENTS["prose"], tokens.starts),
        Window(tokens, 4, 128),
    )
    assert prompted.document_cut
    assert prompted.request is not None
    ((_, completion),) = model.generate([prompted.request], Sampling(max_tokens=4))
    assert completion.error is None
    assert tokens.longest is not None
    counted = tokens.count_prompt(prompted.request.messages, False)
    assert completion.prompt_tokens == counted <= tokens.longest - 4


def test_the_recipe_can_shorten_what_the_engine_reads(tiny_model: Path) -> None:
    assert load_tokens(section(tiny_model, max_model_len=333), None).longest == 333


def test_a_server_needs_a_tokenizer_by_name(tiny_model: Path) -> None:
    tokens = load_tokens(SERVER, str(tiny_model))
    assert tokens.longest is None
    assert len(tokens.starts("The mill burned.")) > 3
    with pytest.raises(RecipeError, match=r"a-name-of-its-own: .*answer\.tokenizers"):
        load_tokens(SERVER, None)


def test_thinking_is_counted_as_the_template_writes_it(tiny_model: Path) -> None:
    tokens = load_tokens(section(tiny_model), None)
    prompt = render_lc(make_case(), ["text"])
    # This template closes the thinking that is turned off.
    assert tokens.count_prompt(prompt, False) > tokens.count_prompt(prompt, True)


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_real_vocabulary_keeps_to_the_window(qwen3_tokenizer_dir: Path, name: str) -> None:
    tokens = load_tokens(SERVER, str(qwen3_tokenizer_dir))
    case = make_case(answer_model=AnswerModel(name="r", context_window=1000, thinking=True))
    prompted = lc_prompt(case, LongText(DOCUMENTS[name], tokens.starts), Window(tokens, 100, 128))
    assert prompted.request is not None
    length = tokens.count_prompt(prompted.request.messages, True)
    assert length <= 900
    assert not prompted.document_cut or length >= 900 - 128 - 40


def test_room_is_the_same_for_ordinary_questions_and_less_for_long_ones() -> None:
    model = AnswerModel(name="r", context_window=1000)
    short, longer, longest = (
        window(reserved=256).room(model, render_lc(make_case("Why? " * times), ("", "")))
        for times in (1, 20, 200)
    )
    assert short == longer == 1000 - 20 - 256
    assert longest == 1000 - 20 - 3 * 256
