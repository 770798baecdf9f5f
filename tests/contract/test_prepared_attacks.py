"""Tokens that were made once, where something is not as it was: taken only with a word, or refused."""

import gzip
import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade import config, disk
from saccade.checkpoint import MADE_FROM
from saccade.config import Names
from saccade.data import cmudict
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import Recipe, parse_recipe
from saccade.recipes import shipped
from saccade.tasks import translate
from saccade.train import prepared as taking
from saccade.train.events import Prepared as PreparedEvent
from tests.support import blanks, tiny
from tests.support.cli import saccade_command
from tests.support.folders import same, weights

STORY = "1 Mary went to the {}.\n2 Where is Mary? \t{}\t1\n"
SIDE = {"kind": "gru", "width": 8}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return tiny.write_corpus(tmp_path / "corpus")


def remarks_of(recipe: Recipe, out: Path, made: Path) -> str:
    """What a run says that takes the tokens."""
    events: list[object] = []
    saccade.train(recipe, out, prepared=made, device="cpu", on_event=events.append)
    (opened,) = (event for event in events if isinstance(event, PreparedEvent))
    return "\n".join(opened.remarks)


def refused(recipe: Recipe, made: Path, out: Path) -> str:
    with pytest.raises(SaccadeError) as caught:
        saccade.train(recipe, out, prepared=made, device="cpu")
    assert not out.exists()
    return str(caught.value)


# ---- which content counts


@pytest.mark.parametrize("name", shipped())
def test_every_file_that_a_recipe_names_is_known_as_one(name: str) -> None:
    recipe = saccade.recipe(name)

    def strings(value: Any) -> list[str]:
        match value:
            case str():
                return [value]
            case dict():
                return [found for each in value.values() for found in strings(each)]
            case list():
                return [found for each in value for found in strings(each)]
            case _:
                return []

    endings = (".txt", ".src", ".tgt", ".en", ".de", ".tsv", ".jsonl", ".conll", ".conllu")
    paths = {
        each for each in strings(config.plain(recipe)) if each.startswith("$SACCADE_DATA/") or each.endswith(endings)
    }
    values = dict(taking._leaves(config.plain(recipe)))
    assert {values[name] for name, what in config.named(recipe) if what is not Names.PLACE} == paths


def test_a_setting_that_is_no_path_is_what_it_says(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where files are called so that have one content, and are read."""
    monkeypatch.chdir(corpus)
    for name in ("cut", "drop"):
        shutil.copy("train.src", name)
    Path("char").write_text("of no importance")

    def recipe(what: str) -> Recipe:
        train = f"data.train={{source: {what}, target: train.tgt}}"
        return tiny.recipe(corpus, "lstm", train, f"data.on_long={what}")

    saccade.prepare(recipe("drop"), tmp_path / "made")
    told = refused(recipe("cut"), tmp_path / "made", tmp_path / "run")
    assert told.splitlines()[1:-1] == ["  data.on_long: 'drop' there, 'cut' here"]
    Path("char").write_text("another content")
    remarks_of(recipe("drop"), tmp_path / "run", tmp_path / "made")


def stories(at: Path, where: str) -> Recipe:
    at.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        (at / f"qa1_single_{part}.txt").write_text(STORY.format(where, where) * 40)
    return parse_recipe(
        {
            "data": {"kind": "babi", "folder": str(at), "tasks": [1]},
            "text": {"kind": "char"},
            "model": {"encoder": SIDE, "decoder": SIDE},
            "train": {"updates": 2, "batch_tokens": 64, "validate_every": 2},
        }
    )


def test_of_a_folder_every_file_counts(tmp_path: Path) -> None:
    made = saccade.prepare(stories(tmp_path / "babi", "park"), tmp_path / "made").path
    moved = stories(tmp_path / "moved", "park")
    assert "tokens of" in remarks_of(moved, tmp_path / "run", made)
    assert "data.folder: " in refused(stories(tmp_path / "babi", "bath"), made, tmp_path / "other")


def test_a_folder_of_data_is_no_run_though_a_file_is_called_like_a_tokenizer(tmp_path: Path) -> None:
    park = stories(tmp_path / "babi", "park")
    (tmp_path / "babi" / "tokenizer.json").write_text("{}")
    made = saccade.prepare(park, tmp_path / "made").path
    assert "data.folder: " in refused(stories(tmp_path / "babi", "bath"), made, tmp_path / "run")


def test_of_a_run_that_tokenizers_are_taken_from_they_alone_count(corpus: Path, tmp_path: Path) -> None:
    """Its weights may be trained on."""
    blanks.write_text(corpus)
    first = saccade.train(blanks.recipe(corpus, "transformer"), tmp_path / "first", device="cpu").path
    begun = blanks.recipe(corpus, "transformer", f"init_from={first}")
    made = saccade.prepare(begun, tmp_path / "made").path
    saccade.train(blanks.recipe(corpus, "transformer", "train.updates=12"), first, resume=True, device="cpu")
    assert "tokens of" in remarks_of(begun, tmp_path / "run", made)


def test_where_something_is_kept_does_not_matter(tmp_path: Path) -> None:
    def recipe(**keep: str) -> Recipe:
        data = {"kind": "listops", "train": 40, "valid": 10, "test": 10, "shortest": 5, "longest": 60, **keep}
        model = {"kind": "sequence", "encoder": SIDE}
        train = {"updates": 2, "batch_tokens": 256, "validate_every": 2}
        text = {"kind": "word", "cut": "spaces"}
        tree = {"task": "classify", "data": data, "text": text, "model": model, "train": train}
        return parse_recipe(tree)

    made = saccade.prepare(recipe(), tmp_path / "made").path
    assert "tokens of" in remarks_of(recipe(keep=str(tmp_path / "kept")), tmp_path / "run", made)


def test_data_that_change_while_they_are_read(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training goes on, and nobody else takes its tokens; alone, they are not made."""
    learn = translate.TranslateTask.learn

    def changed(self: translate.TranslateTask, folder: Path) -> None:
        learn(self, folder)
        with (corpus / "train.tgt").open("a") as file:
            file.write(" \n")
        with (corpus / "train.src").open("a") as file:
            file.write(" \n")

    monkeypatch.setattr(translate.TranslateTask, "learn", changed)
    with pytest.raises(SaccadeError, match=r"made: is not made, since its data changed while they were read\. Prepare"):
        saccade.prepare(tiny.recipe(corpus), tmp_path / "made")
    assert [path.name for path in tmp_path.iterdir()] == ["corpus"]
    run = saccade.train(tiny.recipe(corpus), tmp_path / "run", device="cpu").path
    assert not (run / MADE_FROM).exists()


def test_the_dictionary_counts_as_well(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def recipe() -> Recipe:
        return parse_recipe(
            {
                "data": {"kind": "cmudict"},
                "text": {"kind": "char"},
                "model": {"encoder": SIDE, "decoder": SIDE},
                "train": {"updates": 2, "batch_tokens": 64, "validate_every": 2},
            }
        )

    words = [f"{a}{b}{c}" for a in "abcd" for b in "efgh" for c in "ijkl"]
    file = tmp_path / "cmudict.dict"
    file.write_text("".join(f"{word} AH0 B\n" for word in words))
    monkeypatch.setattr(cmudict, "_installed", lambda: file)
    made = saccade.prepare(recipe(), tmp_path / "made").path
    remarks_of(recipe(), tmp_path / "run", made)
    file.write_text("".join(f"{word} AH0 K\n" for word in words))
    told = refused(recipe(), made, tmp_path / "other")
    assert "the dictionary for train: cmudict (sha256 " in told
    monkeypatch.setattr(cmudict, "_installed", lambda: None)
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    named = remarks_of(recipe(), tmp_path / "named", made)
    assert "known by name alone: the dictionary for train, the dictionary for valid" in named
    (tmp_path / "cmudict").mkdir()
    for split in ("train", "valid"):
        (tmp_path / "cmudict" / f"{split}.tsv.gz").write_bytes(gzip.compress(file.read_bytes()))
    monkeypatch.setenv("SACCADE_DATA", str(tmp_path))
    made = saccade.prepare(recipe(), tmp_path / "from parts").path
    monkeypatch.delenv("SACCADE_DATA")
    assert "known by name alone: the dictionary" in remarks_of(recipe(), tmp_path / "without parts", made)


def test_what_was_compared_by_name_alone_is_told(corpus: Path, tmp_path: Path) -> None:
    recipe = tiny.recipe(corpus)
    made = saccade.prepare(recipe, tmp_path / "made").path
    assert "by name" not in remarks_of(recipe, tmp_path / "one", made)
    (corpus / "train.tgt").unlink()
    assert "not here, and known by name alone: data.train.target[0]" in remarks_of(recipe, tmp_path / "two", made)


def test_other_versions_are_told(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = tiny.recipe(corpus)
    made = saccade.prepare(recipe, tmp_path / "made").path
    assert "made by" not in remarks_of(recipe, tmp_path / "one", made)
    here = {"saccade": saccade.__version__, "code": "0a1b2c3d4e5f", "tokenizers": "99.1", "babel": None}
    monkeypatch.setattr(taking, "makers", lambda: here)
    told = remarks_of(recipe, tmp_path / "two", made)
    assert re.search(r"made by code [0-9a-f]{12} \(here 0a1b2c3d4e5f\), tokenizers .*\(here 99\.1\)", told)
    assert "saccade 0" not in told


# ---- folders of any kind


def test_what_may_only_be_read_can_be_taken_and_the_run_removed(corpus: Path, tmp_path: Path) -> None:
    """Modes are what is looked at: a superuser is refused nothing."""
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    inside = [made, *(path for path in made.rglob("*") if path.is_dir())]
    for path in inside:
        path.chmod(0o555)
    try:
        run = saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu").path
        assert all(path.stat().st_mode & 0o200 for path in run.rglob("*") if path.is_dir())
        saccade.train(recipe, run, overwrite=True, device="cpu")
        saccade.train(recipe, run, overwrite=True, prepared=made, device="cpu")
        shutil.rmtree(run)
    finally:
        for path in inside:
            path.chmod(0o755)


def test_links_inside_are_followed(corpus: Path, tmp_path: Path) -> None:
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    for number, file in enumerate((made / "data" / "train").glob("source.*")):
        elsewhere = tmp_path / "elsewhere" / f"{number}{file.suffix}"
        elsewhere.parent.mkdir(exist_ok=True)
        file.rename(elsewhere)
        file.symlink_to(os.path.relpath(elsewhere, file.parent))
    run = saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu").path
    shutil.rmtree(tmp_path / "elsewhere")
    assert not any(path.is_symlink() for path in run.rglob("*"))
    assert saccade.verify(run).ok


def test_a_run_cannot_be_replaced_by_what_takes_its_tokens(corpus: Path, tmp_path: Path) -> None:
    recipe, run = tiny.recipe(corpus), saccade.train(tiny.recipe(corpus), tmp_path / "run", device="cpu").path
    before = weights(run)
    for name in (run, run.parent / "." / run.name):
        with pytest.raises(UsageError, match=r"--prepared and --out are both .*run: name another folder"):
            saccade.train(recipe, run, prepared=name, overwrite=True, device="cpu")
    assert same(weights(run), before)


def test_what_cannot_be_read_is_told_by_name(corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    read = disk.checksum

    def refusing(path: Path) -> str:
        if path == made / "tokenizer.json":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(disk, "checksum", refusing)
    told = refused(recipe, made, tmp_path / "run")
    assert told.startswith(f"{made / 'tokenizer.json'}: cannot be read: Permission denied")


@pytest.mark.parametrize("missing", ["settings", "seed", "by", "files"])
def test_a_record_without_a_part_is_refused(missing: str, corpus: Path, tmp_path: Path) -> None:
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path
    record = disk.read_sealed_json(made / MADE_FROM)
    (made / MADE_FROM).write_text(disk.sealed_json({name: each for name, each in record.items() if name != missing}))
    assert "is not as it is written. Prepare the data again by" in refused(recipe, made, tmp_path / "run")


def test_a_plan_refuses_what_a_training_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.support.cli import write_corpus

    monkeypatch.chdir(tmp_path)
    recipe = write_corpus(tmp_path)
    assert saccade_command("data", "prepare", recipe, "--out", "made").exit_code == 0
    (tmp_path / "made" / "data" / "valid" / "manifest.json").unlink()
    planned = saccade_command("train", recipe, "--prepared", "made", "--dry-run")
    assert planned.exit_code == 2
    assert "lacks data/valid/manifest.json" in planned.stderr


def test_this_folder_itself_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, corpus: Path) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    with pytest.raises(UsageError, match=r"^\.: is there already\. Name another folder"):
        saccade.prepare(tiny.recipe(corpus), ".")


def test_two_that_make_the_same_folder(corpus: Path, tmp_path: Path) -> None:
    """One is there, whole, and the other is told so; nothing else is left."""

    def one(_: int) -> str:
        try:
            return str(saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path)
        except UsageError as error:
            return str(error)

    with ThreadPoolExecutor(4) as pool:
        told = sorted(pool.map(one, range(4)))
    assert told.count(str(tmp_path / "made")) == 1
    assert sum("is there already" in each for each in told) == 3
    assert {path.name for path in tmp_path.iterdir()} == {"corpus", "made"}
    assert "tokens of" in remarks_of(tiny.recipe(corpus), tmp_path / "run", tmp_path / "made")
