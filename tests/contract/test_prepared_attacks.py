"""Tokens that were made once, where something is not as it was: taken only with a word, or refused."""

import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade import config, disk
from saccade.checkpoint import MADE_FROM
from saccade.data import cmudict
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import Recipe, parse_recipe
from saccade.recipes import shipped
from saccade.train import prepared as taking
from saccade.train.events import Prepared as PreparedEvent
from saccade.train.prepared import Prepared
from tests.support import tiny
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
    assert set(config.named_files(recipe)) == paths


def test_a_setting_that_is_no_path_is_what_it_says(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where files are called so that have one content."""
    monkeypatch.chdir(corpus)
    for name in ("cut", "drop", "char"):
        Path(name).touch()
    saccade.prepare(tiny.recipe(corpus, "lstm", "data.on_long=drop"), tmp_path / "made")
    told = refused(tiny.recipe(corpus, "lstm", "data.on_long=cut"), tmp_path / "made", tmp_path / "run")
    assert "data.on_long: 'drop' there, 'cut' here" in told
    Path("char").write_text("another content")
    remarks_of(tiny.recipe(corpus, "lstm", "data.on_long=drop"), tmp_path / "run", tmp_path / "made")


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
    assert "the dictionary for train: cmudict.dict (sha256 " in told
    monkeypatch.setattr(cmudict, "_installed", lambda: None)
    monkeypatch.delenv("SACCADE_DATA", raising=False)
    named = remarks_of(recipe(), tmp_path / "named", made)
    assert "known by name alone: the dictionary for train, the dictionary for valid" in named


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
    here = {"saccade": saccade.__version__, "tokenizers": "99.1", "babel": None}
    monkeypatch.setattr(taking, "_makers", lambda: here)
    told = remarks_of(recipe, tmp_path / "two", made)
    assert "made by tokenizers " in told
    assert "(here 99.1)" in told
    assert "saccade 0" not in told


# ---- a run that was killed before it had begun


@pytest.mark.parametrize("at", ["before", "behind"])
def test_a_run_that_was_killed_goes_on_with_what_it_was_given(
    at: str, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens made with another seed, so that its own would be others; killed before it had them, or behind that."""
    monkeypatch.chdir(tmp_path)
    sampled = ("text={kind: bpe, size: 270, sample: 20}", "seed=7")
    saccade.prepare(tiny.recipe(corpus, "lstm", *sampled), "made")
    recipe = tiny.recipe(corpus, "lstm", *sampled[:1])
    give = Prepared.give

    def killed(self: Prepared, *given: Any) -> None:
        if at == "behind":
            give(self, *given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "give", killed)
        with pytest.raises(KeyboardInterrupt):
            saccade.train(recipe, "run", prepared="made", device="cpu")
    assert not Path("run", "config.json").exists()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = saccade.train(recipe, tmp_path / "run", resume=True, device="cpu").path
    monkeypatch.chdir(tmp_path)
    whole = saccade.train(recipe, "whole", prepared="made", device="cpu").path
    own = saccade.train(recipe, "own", device="cpu").path
    assert same(weights(resumed), weights(whole))
    assert (resumed / "tokenizer.json").read_bytes() != (own / "tokenizer.json").read_bytes()


def test_where_what_it_was_given_is_gone_it_says_so(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe, made = tiny.recipe(corpus), saccade.prepare(tiny.recipe(corpus), tmp_path / "made").path

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Prepared, "give", killed)
        with pytest.raises(KeyboardInterrupt):
            saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")
    shutil.rmtree(made)
    with pytest.raises(UsageError, match=r"run: was to begin with the tokens of .*made, which is not there any more"):
        saccade.train(recipe, tmp_path / "run", resume=True, device="cpu")
    assert saccade.train(recipe, tmp_path / "run", overwrite=True, device="cpu").finished.update == 10


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
    assert "is not as it is written. Prepare the data again" in refused(recipe, made, tmp_path / "run")


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
