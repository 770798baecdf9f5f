"""A recipe begins with its preset: what comes before what, and what is refused."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import saccade
from saccade import config, presets
from saccade.errors import UsageError
from saccade.recipe import load_recipe, parse_recipe
from saccade.tasks.translate import TranslateRecipe

DATES = "data={kind: dates}"


def written(folder: Path, text: str) -> str:
    (folder / "mine.yaml").write_text(f"data: {{kind: dates}}\n{text}", encoding="utf-8")
    return str(folder / "mine.yaml")


# ---- merging


names = st.sampled_from(["a", "b", "kind"])
trees = st.dictionaries(
    names, st.recursive(st.integers(0, 2), lambda below: st.dictionaries(names, below, max_size=3), max_leaves=8)
)


def expected(under: Any, over: Any) -> Any:
    """Said once more, key by key."""
    if not (isinstance(under, dict) and isinstance(over, dict)):
        return over
    if "kind" in under and "kind" in over and under["kind"] != over["kind"]:
        return over
    keys = [*under, *(key for key in over if key not in under)]
    return {
        key: expected(under[key], over[key]) if key in under and key in over else under.get(key, over.get(key))
        for key in keys
    }


@given(trees, trees)
def test_merging_fills_in_and_overrides(under: dict[str, Any], over: dict[str, Any]) -> None:
    both = config.merged(under, over)
    assert both == expected(under, over)
    assert config.merged(under, both) == both  # what is resolved stays what it is
    assert config.merged({}, over) == over
    assert config.merged(under, {}) == under


def test_merging_by_hand() -> None:
    under = {"optimizer": {"kind": "adam", "rate": 1.0, "betas": [0.9, 0.98]}, "clip": 5, "schedule": {"kind": "noam"}}
    over = {"optimizer": {"betas": [0.9, 0.99]}, "clip": None, "schedule": {"kind": "step", "every": 3}}
    assert config.merged(under, over) == {
        "optimizer": {"kind": "adam", "rate": 1.0, "betas": [0.9, 0.99]},
        "clip": None,
        "schedule": {"kind": "step", "every": 3},
    }
    assert under["clip"] == 5  # neither is changed


# ---- what comes before what


def test_the_preset_comes_first_then_the_recipe_then_the_settings(tmp_path: Path) -> None:
    plain = saccade.recipe(written(tmp_path, "preset: luong-2015\n"))
    assert (plain.model.encoder.width, plain.train.optimizer.rate, plain.train.clip) == (1000, 25.0, 0.2)
    path = written(
        tmp_path, "preset: luong-2015\nmodel: {encoder: {layers: 3}, decoder: {layers: 3}}\ntrain: {clip: 7}"
    )
    own = saccade.recipe(path)
    assert (own.model.encoder.layers, own.model.encoder.width, own.train.clip) == (3, 1000, 7.0)
    assert own.train.optimizer == plain.train.optimizer
    other = saccade.recipe(path, "train.clip=null", "model.encoder.layers=2", "model.decoder.layers=2")
    assert (other.model.encoder.layers, other.train.clip) == (2, None)


def test_a_setting_may_name_the_preset_wherever_it_stands(tmp_path: Path) -> None:
    path = written(tmp_path, "preset: luong-2015\ntrain: {smoothing: 0.3}\n")
    for settings in (("preset=transformer-big", "train.updates=5"), ("train.updates=5", "preset=transformer-big")):
        changed = saccade.recipe(path, *settings)
        assert changed.model.encoder.width == 1024
        assert (changed.train.updates, changed.train.smoothing) == (5, 0.3)  # the recipe's own stays
    assert saccade.recipe(path, "preset=luong-2015", "preset = iwslt-small").model.tie == "output"  # the last one
    with pytest.raises(UsageError, match="text is missing"):
        saccade.recipe(path, "preset=null")


def test_another_kind_starts_a_section_afresh(tmp_path: Path) -> None:
    path = written(tmp_path, "preset: transformer-base\ntrain: {schedule: {kind: cosine}}\n")
    recipe = saccade.recipe(
        path, "train.optimizer.kind=sgd", "text.kind=char", "model.encoder.kind=gru", "model.tie=none"
    )
    assert config.plain(recipe.train.schedule) == {"kind": "cosine", "warmup": 0, "floor": 0.0}
    assert recipe.train.optimizer.rate == 1.0
    assert (recipe.text.kind, recipe.text.shared) == ("char", True)
    assert recipe.model.encoder.kind == "gru"
    assert recipe.model.decoder.kind == "transformer"


def test_every_way_to_a_recipe_knows_presets(tmp_path: Path) -> None:
    tree = {"preset": "iwslt-small", "data": {"kind": "dates"}, "train": {"updates": 3}}
    by_name = saccade.recipe("iwslt-small", DATES, "train.updates=3")
    assert parse_recipe(tree) == by_name
    assert TranslateRecipe.model_validate(tree) == by_name
    assert saccade.recipe(written(tmp_path, "preset: iwslt-small\ntrain: {updates: 3}")) == by_name
    assert tree["preset"] == "iwslt-small"  # what was given is left alone


def test_what_is_resolved_stands_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = saccade.recipe("bahdanau-2015", DATES)
    saved = config.plain(recipe)
    assert "preset" not in saved
    monkeypatch.setattr(presets, "text_of", lambda name: pytest.fail("a preset was read"))
    assert parse_recipe(config.parse_yaml(config.to_yaml(saved), "saved")) == recipe


# ---- what is refused


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("transformer_base", "transformer-base"),
        ("luong", "luong-2015"),
        ("bert", "bert-base"),
        ("x", None),
        ("3", None),
    ],
)
def test_an_unknown_preset_is_told_with_the_nearest(name: str, near: str | None, tmp_path: Path) -> None:
    path = written(tmp_path, f"preset: {name}\n")
    with pytest.raises(UsageError) as refused:
        load_recipe(path)
    told = str(refused.value)
    assert told.startswith(f"{path}: preset is ")
    assert f"it must be one of {', '.join(presets.trainable())}." in told
    assert told.endswith(f"Did you mean `{near}`?") if near else "Did you mean" not in told
    with pytest.raises(UsageError) as directly:
        parse_recipe(config.read(Path(path)), path)
    assert str(directly.value) == told


@pytest.mark.parametrize("value", ["[luong-2015]", "{kind: luong-2015}", "true", "''"])
def test_what_is_no_name_is_refused(value: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"preset is .*; it must be one of awd-lstm, bahdanau-2015, "):
        load_recipe(written(tmp_path, f"preset: {value}\n"))


def test_a_recipe_with_a_model_of_its_own_hides_no_preset_silently(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^dates: preset is 'transformer-base', but the recipe has .* of its own"):
        saccade.recipe("dates", "preset=transformer-base")
    luong = saccade.recipe("luong-2015", DATES)
    whole = tmp_path / "train.yaml"
    whole.write_text(config.to_yaml(config.plain(luong)), encoding="utf-8")
    assert saccade.recipe(whole) == luong
    with pytest.raises(UsageError, match="nothing of that would be left"):  # as when a run is resumed
        saccade.recipe(whole, "preset=luong-2015")
    half = written(tmp_path, "preset: transformer-base\nmodel: {encoder: {kind: lstm, width: 512}}\n")
    assert saccade.recipe(half).model.decoder.kind == "transformer"


def test_a_preset_by_its_name_alone_lacks_data() -> None:
    with pytest.raises(UsageError, match="transformer-base: a preset has no data"):
        saccade.recipe("transformer-base")
    with pytest.raises(UsageError, match=r"neither a file nor a recipe .* nor a preset \(awd-lstm, bahdanau-2015, "):
        saccade.recipe("transformer-basis")


def test_a_preset_changes_no_recipe_that_names_none() -> None:
    assert presets.resolved({"task": "translate", "preset": None}) == {"task": "translate"}
    assert presets.resolved({"model": 3}) == {"model": 3}


def test_a_section_that_is_no_section_is_told_as_ever(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="model is 3; it must be a section"):
        load_recipe(written(tmp_path, "preset: luong-2015\nmodel: 3\n"))
    with pytest.raises(UsageError, match=r"model.encoder is 3"):
        load_recipe(written(tmp_path, "preset: luong-2015\nmodel: {encoder: 3}\n"))
