"""A mistake in a recipe is told by its name, its place and the nearest name that would have been right."""

from functools import reduce
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, model_validator

from saccade.config import Section, difference, flatten, override, parse, parse_yaml, plain, read, to_yaml
from saccade.errors import UsageError
from saccade.models.transformer_config import TransformerConfig
from saccade.models.translator import TranslatorConfig

YAML = """
model:
  encoder: {kind: lstm, width: 6}
  decoder: {kind: lstm, width: 6, attention: {score: additive}}
rate: 1e-3
"""


class Step(Section):
    kind: Literal["step"] = "step"
    every: int = Field(100, ge=1)


class Cosine(Section):
    kind: Literal["cosine", "sine"] = "cosine"
    end: float

    @model_validator(mode="after")
    def _falls(self) -> "Cosine":
        if self.end < 0:
            raise ValueError(f"end is {self.end}; a rate cannot be negative")
        return self


class Recipe(Section):
    model: TranslatorConfig
    rate: float = 1e-4
    schedules: list[Annotated[Step | Cosine, Field(discriminator="kind")]] = Field(default_factory=list)
    both: bool = False


def with_set(*overrides: str) -> dict[str, Any]:
    return reduce(override, overrides, parse_yaml(YAML, "translate.yaml"))


def complaint(*overrides: str) -> str:
    with pytest.raises(UsageError) as caught:
        parse(Recipe, with_set(*overrides), "translate.yaml")
    assert caught.value.exit_code == 2
    return str(caught.value)


# ---- names


def test_an_unknown_name_is_told_with_its_place_and_the_nearest() -> None:
    assert complaint("model.decoder.attention.scroe=dot") == (
        "translate.yaml: model.decoder.attention.scroe is not a setting of attention. Did you mean `score`?\n"
        "  settings of attention: score, scope, query, readout, readout_width, width, rank, places, temperature, "
        "window, renormalise, gate, doubly_stochastic, coverage, coverage_after, pointer, hard"
    )


def test_an_unknown_name_at_the_top() -> None:
    assert complaint("modle=3") == (
        "translate.yaml: modle is not a setting of the recipe. Did you mean `model`?\n"
        "  settings of the recipe: model, rate, schedules, both"
    )


def test_a_name_like_no_other_has_no_nearest() -> None:
    assert complaint("zzz=3").startswith("translate.yaml: zzz is not a setting of the recipe.\n")


def test_the_settings_listed_are_those_of_the_chosen_kind() -> None:
    told = complaint("model.encoder.kind=transformer", "model.encoder.bidirectional=true")
    assert told == (
        "translate.yaml: model.encoder.bidirectional is not a setting of encoder.\n  settings of encoder: "
        + ", ".join(TransformerConfig.model_fields)
    )
    assert "reverse" in complaint("model.encoder.revers=true")


def test_a_place_in_a_list_is_named_by_its_number() -> None:
    assert complaint("schedules=[{kind: step}, {kind: cosine, end: 0, ends: 3}]") == (
        "translate.yaml: schedules.1.ends is not a setting of schedules. Did you mean `end`?\n"
        "  settings of schedules: kind, end"
    )


def test_every_mistake_is_told_at_once() -> None:
    told = complaint("model.encoder.widht=3", "rate=fast", "model.tie=both")
    assert [line.split(" ")[1] for line in told.splitlines() if line.startswith("translate.yaml")] == [
        "model.encoder.widht",
        "model.tie",
        "rate",
    ]


# ---- values


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("rate=fast", "rate is 'fast': input should be a valid number"),
        ("model.encoder.width=many", "model.encoder.width is 'many': input should be a valid integer"),
        ("model.encoder.width=2.5", "model.encoder.width is 2.5: input should be a valid integer"),
        ("model.encoder.layers=0", "model.encoder.layers is 0: input should be greater than or equal to 1."),
        ("model.encoder.dropout=1.0", "model.encoder.dropout is 1.0: input should be less than 1."),
        ("both=perhaps", "both is 'perhaps': input should be a valid boolean"),
        ("model=3", "model is 3; it must be a section, with settings under its name."),
        ("model.encoder=lstm", "model.encoder is 'lstm'; it must be a section, with settings under its name."),
        ("model.decoder.attention=dot", "model.decoder.attention is 'dot'; it must be a section"),
        (
            "model.decoder.attention=none",
            "model.decoder.attention is 'none'; it must be a section, with settings under its name. "
            "Where there shall be none, write null.",
        ),
        ("model.tie=outputs", "model.tie is 'outputs'; it must be one of none, output, all. Did you mean `output`?"),
        ("model.tie=3", "model.tie is 3; it must be one of none, output, all."),
        ("schedules=[{kind: step, every: x}]", "schedules.0.every is 'x': input should be a valid integer"),
    ],
)
def test_a_wrong_value_is_told_with_what_would_be_right(setting: str, told: str) -> None:
    assert complaint(setting).startswith(f"translate.yaml: {told}")


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        (
            "model.encoder.kind=lstmm",
            "model.encoder.kind is 'lstmm'; it must be one of elman, lstm, gru, lstmn, transformer. "
            "Did you mean `lstm`?",
        ),
        ("model.encoder.kind=3", "model.encoder.kind is '3'; it must be one of elman, lstm, gru, lstmn, transformer."),
        ("model.encoder={width: 6}", "model.encoder.kind is missing."),
        ("schedules=[{kind: cosine}]", "schedules.0.end is missing."),
    ],
)
def test_a_wrong_kind_and_a_missing_setting(setting: str, told: str) -> None:
    assert complaint(setting) == f"translate.yaml: {told}"


class Either(Section):
    reach: Annotated[float, Field(gt=0.0)] | Literal["width", "depth"] | None = None
    small: bool | Literal["unseen"] = False
    mode: Literal["a", "b"] = "a"
    warmth: Literal["learned"] | Annotated[float, Field(gt=0.0)] = 1.0


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"reach": -1}, ["reach is -1: input should be greater than 0; or it must be width, depth."]),
        ({"warmth": 0}, ["warmth is 0: input should be greater than 0; or it must be learned."]),
        ({"small": 3, "mode": "c"}, ["small is 3: input should be a valid boolean", "mode is 'c'; it must be one of"]),
        (
            {"small": "some"},
            ["small is 'some': input should be a valid boolean, unable to interpret input; or it must"],
        ),
    ],
)
def test_what_is_neither_a_number_nor_a_word_is_told_once(tree: dict[str, Any], told: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        parse(Either, tree, "x.yaml")
    lines = str(caught.value).splitlines()
    assert len(lines) == len(told)
    assert all(line.startswith(f"x.yaml: {start}") for line, start in zip(lines, told, strict=True))


def test_a_missing_section() -> None:
    with pytest.raises(UsageError, match=r"^x.yaml: model is missing\.$"):
        parse(Recipe, {}, "x.yaml")


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (
            ["model.decoder.attention=null", "model.decoder.feed_input=true"],
            "model: decoder.feed_input is on, but there",
        ),
        (["model.encoder.width=5"], "model.encoder: width is 5; a bidirectional encoder gives each direction half"),
        (["schedules=[{kind: sine, end: -1}]"], "schedules.0: end is -1.0; a rate cannot be negative"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_the_reason(overrides: list[str], told: str) -> None:
    assert complaint(*overrides).startswith(f"translate.yaml: {told}")


def test_a_section_cannot_be_changed_behind_ones_back() -> None:
    recipe = parse(Recipe, with_set())
    with pytest.raises(ValueError, match="frozen"):
        recipe.rate = 3.0  # type: ignore[misc]


# ---- YAML as people write it


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), ("1E5", 1e5), ("-2e+3", -2000.0), ("1.5e-2", 0.015), ("3e-4", 3e-4), ("1_000e-3", 1.0)],
)
def test_numbers_with_an_exponent_are_numbers(text: str, value: float) -> None:
    assert parse_yaml(f"rate: {text}", "x") == {"rate": value}


@pytest.mark.parametrize("text", ["12e", "e3", "1e-3x", "1e"])
def test_what_only_looks_like_a_number_is_text(text: str) -> None:
    assert parse_yaml(f"rate: {text}", "x") == {"rate": text}


def test_a_name_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^x.yaml: line 3: 'b' is given twice in one section. Keep one of them.$"):
        parse_yaml("a:\n  b: 1\n  b: 2\n", "x.yaml")
    assert parse_yaml("a: {b: 1}\nc: {b: 2}", "x.yaml") == {"a": {"b": 1}, "c": {"b": 2}}


def test_who_reads_a_text_again_has_a_tree_of_its_own() -> None:
    text = "a: &one {b: [1, {c: 2}]}\nd: *one"
    first = parse_yaml(text, "x.yaml")
    first["a"]["b"][1]["c"] = 3
    first["a"]["b"].append(4)
    assert parse_yaml(text, "x.yaml") == {"a": {"b": [1, {"c": 2}]}, "d": {"b": [1, {"c": 2}]}}
    assert first["d"] == {"b": [1, {"c": 2}]}


def test_a_section_within_itself_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^x.yaml:1: not valid YAML: found unconstructable recursive node"):
        parse_yaml("a: &one [*one]", "x.yaml")


def test_sections_can_be_written_once_and_reused() -> None:
    text = "one: &base {width: 6, layers: 2}\ntwo:\n  <<: *base\n  layers: 3\n"
    assert parse_yaml(text, "x") == {"one": {"width": 6, "layers": 2}, "two": {"width": 6, "layers": 3}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: [1", "x.yaml:1: not valid YAML: "),
        ("a: 1\nb: }", "x.yaml:2: not valid YAML: "),
        ("{[1]: 2}", "x.yaml:1: not valid YAML: found unhashable key"),
        ("a: !!python/object/apply:os.getcwd []", "x.yaml:1: not valid YAML: could not determine a constructor"),
    ],
)
def test_what_is_not_yaml_is_told_with_its_line(text: str, told: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_yaml(text, "x.yaml")
    assert str(caught.value).startswith(told)


def test_reading_a_file(tmp_path: Path) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text(YAML, encoding="utf-8")
    assert read(path) == parse_yaml(YAML, "")
    path.write_text("- a list\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"recipe.yaml: a recipe is a mapping of sections .* this file holds a list\."):
        read(path)
    path.write_text("", encoding="utf-8")
    with pytest.raises(UsageError, match="this file holds nothing"):
        read(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        read(path)
    with pytest.raises(UsageError, match="cannot be read: No such file or directory"):
        read(tmp_path / "nowhere.yaml")


# ---- overriding


def test_an_override_is_read_as_yaml_and_creates_what_is_missing() -> None:
    assert override({}, "train.optimizer.rate=1e-3") == {"train": {"optimizer": {"rate": 1e-3}}}
    assert override({"a": None}, "a.b=[1, 2]") == {"a": {"b": [1, 2]}}
    assert override({}, "a=x=y") == {"a": "x=y"}
    assert override({"a": 1}, "a=") == {"a": None}


def test_an_override_leaves_the_tree_it_was_given_alone() -> None:
    tree = {"a": {"b": 1, "c": 2}, "d": 3}
    assert override(tree, "a.b=9") == {"a": {"b": 9, "c": 2}, "d": 3}
    assert tree == {"a": {"b": 1, "c": 2}, "d": 3}


def test_another_kind_starts_its_section_afresh() -> None:
    tree = {"encoder": {"kind": "lstm", "bidirectional": True, "width": 6}}
    assert override(tree, "encoder.kind=transformer") == {"encoder": {"kind": "transformer"}}
    assert override(tree, "encoder.kind=lstm") == tree
    assert override({"encoder": {"width": 6}}, "encoder.kind=gru") == {"encoder": {"width": 6, "kind": "gru"}}


@pytest.mark.parametrize("setting", ["train.updates", "=3", "a..b=3", ".a=3", ""])
def test_an_override_without_name_or_value_is_refused(setting: str) -> None:
    with pytest.raises(UsageError, match=r"write it as name=value, for example --set train.updates=500"):
        override({}, setting)


def test_an_override_below_a_plain_value_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--set task.kind: task holds 'translate', which has no setting 'kind'"):
        override({"task": "translate"}, "task.kind=3")
    with pytest.raises(UsageError, match="--set a:1: not valid YAML"):
        override({}, "a=[1")


# ---- saving and comparing


def test_the_resolved_recipe_reads_back_as_itself() -> None:
    recipe = parse(Recipe, with_set("schedules=[{kind: cosine, end: 1e-5}, {kind: step}]"))
    tree = parse_yaml(to_yaml(plain(recipe)), "saved")
    assert parse(Recipe, tree) == recipe
    assert tree["model"]["decoder"]["bridge"] == "linear"  # defaults included


names = st.text("abc", min_size=1, max_size=3)
leaves = st.one_of(st.integers(), st.booleans(), st.floats(allow_nan=False, allow_infinity=False), names)
trees = st.dictionaries(
    names, st.recursive(leaves, lambda below: st.dictionaries(names, below, min_size=1), max_leaves=8)
)


@settings(max_examples=30)
@given(trees)
def test_flattening_and_overriding_undo_each_other(tree: dict[str, Any]) -> None:
    rebuilt: dict[str, Any] = {}
    for name, value in flatten(tree).items():
        rebuilt = override(rebuilt, f"{name}={to_yaml({'x': value}).removeprefix('x: ')}")
    assert rebuilt == tree


@settings(max_examples=30)
@given(trees)
def test_what_is_saved_is_what_is_read(tree: dict[str, Any]) -> None:
    assert parse_yaml(to_yaml(tree), "x") == tree


def test_the_difference_of_two_recipes() -> None:
    one = {"model": {"width": 6, "layers": 2}, "task": "translate", "only": 1}
    other = {"model": {"width": 8, "layers": 2}, "task": "translate", "new": {"deep": True}}
    assert difference(one, other) == {"model.width": (6, 8), "only": (1, None), "new.deep": (None, True)}
    assert difference(one, one) == {}


def test_flat_names() -> None:
    assert flatten({"a": {"b": {"c": 1}, "d": [2]}, "e": 3}) == {"a.b.c": 1, "a.d": [2], "e": 3}
