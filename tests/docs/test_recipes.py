"""Every shipped recipe parses, says what it is, builds its model as it stands, and trains a few updates."""

import math
import os
from itertools import islice
from pathlib import Path

import pytest

import saccade
from saccade import config
from saccade.cli.plan import parameters, vocabularies
from saccade.data.dates import DatesData
from saccade.data.files import FilesData, Parallel, locate, raw_lines
from saccade.recipe import Recipe, load_recipe
from saccade.recipes import described, shipped, shipped_text
from tests.support.tiny import notes, write_corpus

LINES = {"train": 200, "valid": 12, "test": 12}
QUICK = ("train.updates=3", "train.batch_tokens=256", "train.validate_every=3", "train.log_every=1", "train.workers=0")
every_recipe = pytest.mark.parametrize("name", shipped())


def first_lines(split: Parallel, count: int, folder: Path, base: Path) -> dict[str, list[str]]:
    """The beginning of the split's own files, as plain files in the folder."""
    cut: dict[str, list[str]] = {}
    for side in ("source", "target"):
        for name in getattr(split, side):
            path = folder / Path(name).name.removesuffix(".gz")
            path.write_bytes(b"".join(islice(raw_lines(locate(name, base)), count)))
            cut.setdefault(side, []).append(str(path))
    return cut


def needs_data(recipe: Recipe) -> bool:
    return "$SACCADE_DATA" in str(recipe.data)


def on_stand_in(name: str, folder: Path) -> Recipe:
    """The recipe with little data and few updates; the model, the text and all else as shipped."""
    recipe, _ = load_recipe(name)
    match recipe.data:
        case DatesData():
            return saccade.recipe(name, "data.train=60", "data.valid=5", "data.test=5", *QUICK)
        case FilesData() if needs_data(recipe):
            if not os.environ.get("SACCADE_DATA"):
                pytest.skip(f"{name} needs its data: set SACCADE_DATA to the folder that holds them")
            there = {split: getattr(recipe.data, split) for split in LINES}
            cut = {split: first_lines(files, LINES[split], folder, folder) for split, files in there.items()}
            settings = [f"data.{split}={files}" for split, files in cut.items()]
            return saccade.recipe(name, *settings, *QUICK)
        case _:
            write_corpus(folder, train=60, valid=5)
            return saccade.recipe(name, *QUICK)


@every_recipe
def test_it_says_what_it_is_in_its_first_line(name: str) -> None:
    first = shipped_text(name).splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".")
    assert len(described(name)) > 20
    if needs_data(load_recipe(name)[0]):
        assert "SACCADE_DATA" in first


@every_recipe
def test_what_is_resolved_reads_back(name: str) -> None:
    recipe, _ = load_recipe(name)
    assert config.parse(Recipe, config.parse_yaml(config.to_yaml(config.plain(recipe)), name), name) == recipe


@every_recipe
def test_its_model_is_built_and_trained(name: str, tmp_path: Path) -> None:
    recipe = on_stand_in(name, tmp_path)
    assert recipe.model == load_recipe(name)[0].model
    run = saccade.train(recipe, tmp_path / "run", base=tmp_path, device="cpu")
    assert (run.finished.reason, run.finished.update) == ("updates", 3)
    trained = notes(run.path, "trained")
    assert [note["update"] for note in trained] == [1, 2, 3]
    assert all(math.isfinite(note["loss"]) for note in trained)
    assert recipe.train.metric in run.best


@pytest.mark.parametrize("name", [name for name in shipped() if name.startswith("dates")])
def test_the_plan_counts_the_parameters_that_are_trained(name: str, tmp_path: Path) -> None:
    recipe = on_stand_in(name, tmp_path)
    source, target, _ = vocabularies(recipe, tmp_path)
    model = saccade.train(recipe, tmp_path / "run", base=tmp_path, device="cpu").load("cpu")
    assert model.parameters == parameters(recipe, source, target)
