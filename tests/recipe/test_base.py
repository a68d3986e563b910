from __future__ import annotations

from pathlib import Path

import pytest

from prerouter.core.errors import CombinedError, InputError, RecipeError
from prerouter.recipe.base import Section, apply_overrides, parse_yaml, read_yaml, validate


class Inner(Section):
    learning_rate: float = 1e-4
    name: str


class Outer(Section):
    inner: Inner
    steps: int = 3


def test_exponents_without_a_point_are_numbers() -> None:
    assert parse_yaml("rate: 2e-5", "recipe") == {"rate": 2e-5}


@pytest.mark.parametrize("text", ["a: 1\na: 2", "outer:\n  a: 1\n  a: 2"])
def test_a_key_that_stands_twice_is_refused_with_its_line(text: str) -> None:
    with pytest.raises(RecipeError, match=r"recipe:\d: the key 'a' stands twice"):
        parse_yaml(text, "recipe")


def test_yaml_can_not_make_objects() -> None:
    with pytest.raises(RecipeError):
        parse_yaml("a: !!python/object/apply:os.system ['true']", "recipe")


def test_all_mistakes_are_told_at_once() -> None:
    data = {"inner": {"learning_rat": 1, "learning_rate": "fast"}, "steps": "many"}
    with pytest.raises(CombinedError) as caught:
        validate(Outer, data, "r.yaml")
    lines = caught.value.lines
    assert len(lines) == 4
    assert any("inner.learning_rat: unknown key" in line for line in lines)
    assert any("did you mean learning_rate?" in line for line in lines)
    assert any("inner.name: missing" in line for line in lines)
    assert any("steps" in line and "'many'" in line for line in lines)


def test_override_sets_a_nested_value_and_leaves_the_input_alone() -> None:
    data = {"inner": {"name": "x"}}
    changed = apply_overrides(data, ["inner.learning_rate=2e-5", "steps=7"])
    assert changed == {"inner": {"name": "x", "learning_rate": 2e-5}, "steps": 7}
    assert data == {"inner": {"name": "x"}}


@pytest.mark.parametrize("override", ["steps", "=3", "inner..name=x", "steps.more=1"])
def test_an_override_that_is_none_is_refused(override: str) -> None:
    with pytest.raises(RecipeError, match="--set"):
        apply_overrides({"steps": 1}, [override])


def test_a_missing_recipe_names_those_beside_it(tmp_path: Path) -> None:
    (tmp_path / "quickstart.yaml").write_text("name: x")
    with pytest.raises(InputError, match=r"quickstart\.yaml"):
        read_yaml(tmp_path / "quikstart.yaml")


def test_a_recipe_that_is_a_list_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text("- a\n- b\n")
    with pytest.raises(RecipeError, match="not a mapping"):
        read_yaml(path)


class Nested(Section):
    inner: Inner | None = None
    more: tuple[Inner, ...] | None = None
    outer: Outer | None = None


@pytest.mark.parametrize("written", ["inner:", "inner: null", "inner: ~"])
def test_a_blank_section_is_refused_by_its_name(written: str) -> None:
    with pytest.raises(CombinedError) as caught:
        validate(Nested, parse_yaml(f"{written}\nouter: {{inner: }}", "r.yaml"), "r.yaml")
    assert caught.value.lines == [
        f"r.yaml: {name}: is blank; fill it in, or write `inner: {{}}` for the defaults; "
        "leave the key out where it is not wanted"
        for name in ("inner", "outer.inner")
    ]


def test_a_blank_value_that_has_a_default_is_no_section() -> None:
    assert validate(Nested, parse_yaml("more:", "r.yaml"), "r.yaml") == Nested()


def test_a_section_is_taken_out_by_null_and_not_by_nothing() -> None:
    data = {"inner": {"name": "a"}, "outer": {"inner": {"name": "b"}}}
    assert apply_overrides(data, ["outer=null"]) == {"inner": {"name": "a"}}
    with pytest.raises(CombinedError, match="outer: is blank"):
        validate(Nested, apply_overrides(data, ["outer="]), "r.yaml")
