"""Tokenizers and tokens that were made once: what is trained on them is what it would be without, or it is refused."""

import hashlib
import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import pytest

import saccade
from saccade import disk
from saccade.checkpoint import MADE_FROM
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import Recipe
from saccade.tasks import translate
from saccade.train.events import Prepared as PreparedEvent
from saccade.train.ready import made_of
from tests.support import blanks, labels, language, tagging, tiny
from tests.support.cli import saccade_command
from tests.support.cli import write_corpus as write_with_recipe
from tests.support.folders import same, weights

Make = Callable[..., Recipe]
VECTORS = "".join(f"{word} {' '.join(['0.5'] * 8)}\n" for word in ("the", "is", "red", "a"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data of all tasks in files."""
    at = tmp_path_factory.mktemp("data")
    tiny.write_corpus(at)
    tagging.write_tagged(at)
    labels.write_labelled_corpus(at)
    labels.write_labelled_corpus(at / "pairs", paired=True)
    blanks.write_text(at)
    (at / "vectors.txt").write_text(VECTORS)
    return at


def of_task(task: str, at: Path) -> dict[str, Recipe]:
    """Recipes on the same data that differ in their models, and in text where a model needs it."""
    match task:
        case "translate":
            return {name: tiny.recipe(at, name) for name in tiny.MODELS}
        case "tag":
            return {name: tagging.tag_recipe(at, name) for name in tagging.MODELS}
        case "classify":
            paired = {f"{name}, pairs": labels.recipe(at / "pairs", name, paired=True) for name in labels.PAIRED}
            first = labels.recipe(at, "transformer", "model.pooling=first")
            return {name: labels.recipe(at, name) for name in labels.MODELS} | paired | {"first": first}
        case "language-model":
            return {name: language.recipe(name) for name in language.DECODERS}
        case _:
            return {name: blanks.recipe(at, name) for name in blanks.MODELS}


def alike(task: str, at: Path) -> list[list[Recipe]]:
    """The recipes of a task by what tokenizers and tokens would be made of; most of the same first."""
    found: dict[str, list[Recipe]] = defaultdict(list)
    for recipe in of_task(task, at).values():
        found[repr(made_of(recipe.job(Path.cwd())))].append(recipe)
    return sorted(found.values(), key=len, reverse=True)


every_task = pytest.mark.parametrize("task", ["translate", "tag", "classify", "language-model", "masked"])


def content(at: Path) -> dict[str, str]:
    """Checksums of all that was made, but for what tells of the recipe and the machine."""
    told = {"train.yaml", "environment.json", "made-from.json"}
    files = (path for path in at.rglob("*") if path.is_file() and path.name not in told)
    return {str(path.relative_to(at)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@every_task
def test_what_is_made_from_the_same_is_the_same(task: str, folder: Path, tmp_path: Path) -> None:
    """Every setting that changes tokenizers or tokens is among those that are compared."""
    groups = alike(task, folder)
    assert len(groups[0]) > 1
    for number, recipes in enumerate(groups):
        made = [saccade.prepare(each, tmp_path / f"{number}-{k}").path for k, each in enumerate(recipes)]
        assert all(content(each) == content(made[0]) for each in made)


@every_task
def test_a_training_on_them_is_the_same_training(task: str, folder: Path, tmp_path: Path) -> None:
    one, other, *_ = alike(task, folder)[0]
    made = saccade.prepare(one, tmp_path / "made")
    without = saccade.train(one, tmp_path / "without", device="cpu")
    events: list[object] = []
    given = saccade.train(one, tmp_path / "given", prepared=made.path, device="cpu", on_event=events.append)
    assert same(weights(given.path), weights(without.path))
    assert given.best == without.best
    assert content(given.path / "data") == content(without.path / "data")
    assert saccade.verify(given.path).ok
    (opened,) = (event for event in events if isinstance(event, PreparedEvent))
    assert f"tokenizers and tokens of {made.path}" in opened.remarks
    assert (opened.examples, opened.unit, opened.vocabularies) == (made.examples, made.unit, made.vocabularies)
    further = saccade.train(other, tmp_path / "further", prepared=given.path, device="cpu")  # a run is as good
    assert content(further.path / "data") == content(given.path / "data")


def test_the_data_need_not_be_there_any_more(tmp_path: Path) -> None:
    """What was made outlives the files, their names and what it was taken from."""
    at = tiny.write_corpus(tmp_path / "data")
    recipe = tiny.recipe(at)
    without = saccade.train(recipe, tmp_path / "without", device="cpu")
    saccade.prepare(recipe, tmp_path / "made")
    at.rename(tmp_path / "moved")
    gone = saccade.train(recipe, tmp_path / "gone", prepared=tmp_path / "made", device="cpu")
    moved = saccade.train(tiny.recipe(tmp_path / "moved"), tmp_path / "run", prepared=tmp_path / "made", device="cpu")
    shutil.rmtree(tmp_path / "made")
    assert same(weights(gone.path), weights(without.path))
    assert same(weights(moved.path), weights(without.path))
    longer = tiny.recipe(at, "lstm", "train.updates=12")
    assert saccade.train(longer, gone.path, resume=True, device="cpu").finished.update == 12


def test_another_seed_is_told_and_another_test_set_does_not_matter(folder: Path, tmp_path: Path) -> None:
    saccade.prepare(tiny.recipe(folder), tmp_path / "made")
    tests = f"data.test={{source: {folder / 'valid.src'}, target: {folder / 'valid.tgt'}}}"
    other = tiny.recipe(folder, "transformer", "seed=7", tests, "decode.beam=2")
    events: list[object] = []
    saccade.train(other, tmp_path / "run", prepared=tmp_path / "made", device="cpu", on_event=events.append)
    (opened,) = (event for event in events if isinstance(event, PreparedEvent))
    assert f"tokenizers and tokens of {tmp_path / 'made'}, learnt with seed 1" in opened.remarks


def test_a_run_that_begins_with_another_takes_them_as_well(folder: Path, tmp_path: Path) -> None:
    saccade.train(blanks.recipe(folder, "transformer"), tmp_path / "first", device="cpu")
    begun = blanks.recipe(folder, "transformer", f"init_from={tmp_path / 'first'}")
    without = saccade.train(begun, tmp_path / "without", device="cpu")
    given = saccade.train(begun, tmp_path / "given", prepared=without.path, device="cpu")
    assert same(weights(given.path), weights(without.path))
    with pytest.raises(UsageError, match=r"init_from: nothing there, .*first \(sha256 "):
        saccade.train(begun, tmp_path / "no", prepared=tmp_path / "first", device="cpu")


def refused(recipe: Recipe, made: Path, out: Path) -> str:
    with pytest.raises(UsageError) as caught:
        saccade.train(recipe, out, prepared=made, device="cpu")
    assert not out.exists()
    assert "--prepared" in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("task", "before", "after", "named"),
    [
        ("translate", (), ("text.kind=byte",), "text.kind: 'char' there, 'byte' here"),
        ("translate", (), ("text.shared=false",), "text.shared: True there, False here"),
        ("translate", (), ("data.max_length=5",), "data.max_length"),
        ("translate", (), ("text={kind: bpe, size: 270, dropout: 0.1}",), "text.dropout: nothing there, 0.1 here"),
        ("translate", ("text.kind=word",), ("text.kind=word", "vectors"), "model.vectors"),
        ("tag", (), ("model.characters={kind: cnn, filters: 4}",), "characters are read: False there, True here"),
        ("tag", (), ("model.scheme=iob2",), "model.scheme: 'bioes' there, 'iob2' here"),
        ("tag", (), ("vectors", "model.vectors.more_words=2"), "model.vectors.more_words: nothing there, 2 here"),
        ("classify", (), ("han",), "reads a text as: 'sequence' there, 'document' here"),
        ("classify", (), ("transformer", "model.pooling=first"), "START first: False there, True here"),
        ("language-model", (), ("data.seed=2",), "data.seed: 1 there, 2 here"),
        ("masked", (), ("model.next_sentence=true",), "reads at most: 512 there, 256 here"),
    ],
)
def test_what_was_made_from_something_else_is_refused(
    task: str, before: tuple[str, ...], after: tuple[str, ...], named: str, folder: Path, tmp_path: Path
) -> None:
    makes: dict[str, tuple[Make, str]] = {
        "translate": (lambda *more: tiny.recipe(folder, *more), "lstm"),
        "tag": (lambda *more: tagging.tag_recipe(folder, *more), "lstm"),
        "classify": (lambda *more: labels.recipe(folder, *more), "gru"),
        "language-model": (lambda *more: language.recipe(more[0], "char", *more[1:]), "lstm"),
        "masked": (lambda *more: blanks.recipe(folder, *more), "transformer"),
    }
    make, model = makes[task]

    def recipe(settings: tuple[str, ...]) -> Recipe:
        named_model = settings[0] if settings and settings[0] in labels.MODELS else model
        given = [each for each in settings if each != named_model]
        wanted = [f"model.vectors={{path: {folder / 'vectors.txt'}}}" if each == "vectors" else each for each in given]
        sized = ["model.encoder.embedding=8"] if "vectors" in settings else []
        return make(named_model, *wanted, *sized)

    saccade.prepare(recipe(before), tmp_path / "made")
    assert named in refused(recipe(after), tmp_path / "made", tmp_path / "run")


def test_of_files_the_content_counts(tmp_path: Path) -> None:
    at = tiny.write_corpus(tmp_path / "data")
    saccade.prepare(tiny.recipe(at), tmp_path / "made")
    with (at / "train.tgt").open("a") as file:
        file.write(" \n")
    told = refused(tiny.recipe(at), tmp_path / "made", tmp_path / "run")
    assert "data.train.target[0]: " in told
    assert "data.train.source" not in told


def test_damage_is_refused_by_name(folder: Path, tmp_path: Path) -> None:
    recipe = tiny.recipe(folder)
    saccade.prepare(recipe, tmp_path / "made")
    for name in (
        "tokenizer.json",
        MADE_FROM,
        "data/train/store.json",
        "data/train/source.bin",
        "data/valid/target.idx",
    ):
        shutil.copytree(tmp_path / "made", tmp_path / "damaged")
        damaged = tmp_path / "damaged" / name
        changed = bytearray(damaged.read_bytes())
        changed[len(changed) // 2] ^= 1
        damaged.write_bytes(changed)
        with pytest.raises(SaccadeError, match=rf"damaged/{name}: .*") as caught:
            saccade.train(recipe, tmp_path / "run", prepared=tmp_path / "damaged", device="cpu")
        assert "resume" not in str(caught.value)
        assert not (tmp_path / "run").exists()
        shutil.rmtree(tmp_path / "damaged")


def test_what_is_missing_is_not_made_again_unasked(folder: Path, tmp_path: Path) -> None:
    recipe = tiny.recipe(folder)
    for name, removed in (("data/valid/store.json", "data/valid"), ("data/train/manifest.json",) * 2):
        made = saccade.prepare(recipe, tmp_path / removed.replace("/", "-")).path
        shutil.rmtree(made / removed) if (made / removed).is_dir() else (made / removed).unlink()
        assert f"lacks {name}. Prepare the data again by `saccade data prepare`, or" in refused(
            recipe, made, tmp_path / "run"
        )


def test_a_folder_that_does_not_tell_is_refused(folder: Path, tmp_path: Path) -> None:
    """One that is no such folder; a run whose tokens were made again, of data that may have changed since."""
    recipe = tiny.recipe(folder)
    assert "made-from.json is missing" in refused(recipe, tmp_path / "none", tmp_path / "run")
    again = saccade.train(recipe, tmp_path / "again", device="cpu").path
    shutil.rmtree(again / "data")
    saccade.train(tiny.recipe(folder, "lstm", "train.updates=12"), again, resume=True, device="cpu")
    assert "made-from.json is missing" in refused(recipe, again, tmp_path / "run")
    made = saccade.prepare(recipe, tmp_path / "made").path
    (made / MADE_FROM).write_text(disk.sealed_json({"settings": []}))
    with pytest.raises(UsageError, match="is not as it is written"):
        saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")
    for damaged in ("{", "{}"):
        (made / MADE_FROM).write_text(damaged)
        with pytest.raises(SaccadeError, match=r"made-from\.json: .* Prepare the data again by `saccade data prepare`"):
            saccade.train(recipe, tmp_path / "run", prepared=made, device="cpu")


def test_what_is_not_whole_is_not_there(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(translate, "write_store", broken)
        with pytest.raises(KeyboardInterrupt):
            saccade.prepare(tiny.recipe(folder), tmp_path / "made")
    assert list(tmp_path.iterdir()) == []
    saccade.prepare(tiny.recipe(folder), tmp_path / "made")
    before = content(tmp_path / "made")
    with pytest.raises(UsageError, match="is there already"):
        saccade.prepare(tiny.recipe(folder), tmp_path / "made")
    assert content(tmp_path / "made") == before
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SaccadeError, match="cannot be written"):
        saccade.prepare(tiny.recipe(folder), tmp_path / "file" / "made")
    (tmp_path / "empty").mkdir()
    assert saccade.prepare(tiny.recipe(folder), tmp_path / "empty").path == tmp_path / "empty"


def test_they_are_copied_where_there_are_no_links(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: object) -> None:
        raise PermissionError

    saccade.prepare(tiny.recipe(folder), tmp_path / "made")
    linked = saccade.train(tiny.recipe(folder), tmp_path / "linked", prepared=tmp_path / "made", device="cpu").path
    monkeypatch.setattr("os.link", refuses)
    copied = saccade.train(tiny.recipe(folder), tmp_path / "copied", prepared=tmp_path / "made", device="cpu").path
    store = Path("data", "train", "source.bin")
    assert (linked / store).samefile(tmp_path / "made" / store)
    assert not (copied / store).samefile(tmp_path / "made" / store)
    assert content(copied / "data") == content(linked / "data")


def test_by_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepared; trained as the last line says; planned; and without the data."""
    recipe, made = write_with_recipe(tmp_path), tmp_path / "made"
    monkeypatch.chdir(tmp_path)
    done = saccade_command("data", "prepare", recipe, "--out", made, "--set", "text.size=300")
    assert done.exit_code == 0, done.stderr
    assert f"· saved {made}" in done.stdout
    assert "100 rows read, 100 pairs kept" in done.stderr
    hint = done.stdout.splitlines()[-1].removeprefix("next: saccade ").split()
    planned = saccade_command(*hint, "--dry-run")
    assert planned.exit_code == 0, planned.stderr
    assert "about" not in planned.stderr
    for name in ("train.src", "train.tgt", "valid.src", "valid.tgt"):
        (tmp_path / name).unlink()
    trained = saccade_command(*hint, "--device", "cpu")
    assert trained.exit_code == 0, trained.stderr
    assert f"tokenizers and tokens of {made}" in trained.stderr
    again = saccade_command("train", "runs/train", "--resume", "--prepared", made)
    assert again.exit_code == 2
    assert "leave out --prepared" in again.stderr
    with pytest.raises(UsageError, match="leave out --prepared"):
        saccade.train(recipe, "runs/train", resume=True, prepared=made, device="cpu")
    for more in ([], ["--dry-run"]):
        other = saccade_command("train", recipe, "--prepared", made, "--out", "runs/other", *more)
        assert other.exit_code == 2
        assert "text.size: 300 there, 1000 here" in other.stderr
    assert not Path("runs/other").exists()
