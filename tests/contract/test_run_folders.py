"""A run folder is never lost, never shared by two trainings, and says where its data were."""

import json
import os
from pathlib import Path

import pytest

import saccade
from saccade.checkpoint import RunFolder
from saccade.errors import SaccadeError, UsageError
from saccade.recipe import Recipe
from saccade.run_paths import is_run
from saccade.train.events import Finished, Prepared
from tests.support.cli import saccade_command
from tests.support.tiny import recipe, write_corpus


def tiny_recipe(*settings: str) -> Recipe:
    """Its data lie in train.src and so on, seen from wherever it is trained."""
    return recipe(Path(), "lstm", *(f"train.{each}" for each in settings))


def trained(folder: Path) -> bytes:
    write_corpus(folder / "data")
    saccade.train(tiny_recipe("updates=4"), folder / "run", base=folder / "data")
    return (folder / "run" / "model.safetensors").read_bytes()


@pytest.mark.parametrize("break_it", ["a line too few", "bad bytes far down", "tokens that cannot be tied"])
def test_a_replacement_that_cannot_begin_leaves_the_older_run_whole(tmp_path: Path, break_it: str) -> None:
    before = trained(tmp_path)
    target = tmp_path / "data" / "train.tgt"
    chosen = tiny_recipe("updates=4")
    match break_it:
        case "a line too few":
            target.write_bytes(target.read_bytes().removesuffix(b"\n").rpartition(b"\n")[0] + b"\n")
        case "bad bytes far down":
            target.write_bytes(target.read_bytes()[:-3] + b"\xff\xfe\n")
        case _:
            chosen = recipe(Path(), "lstm", "text.shared=false", "model.tie=all")
            target.write_bytes(b"".join(b"zz\n" for _ in target.read_bytes().splitlines()))
    with pytest.raises(UsageError):
        saccade.train(chosen, tmp_path / "run", overwrite=True, base=tmp_path / "data")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before
    assert {path.name for path in tmp_path.iterdir()} == {"data", "run"}


def test_a_run_that_cannot_begin_leaves_nothing_in_the_way(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data")
    target = tmp_path / "data" / "train.tgt"
    whole = target.read_bytes()
    target.write_bytes(whole + b"one more\n")
    with pytest.raises(UsageError, match="first without a partner"):
        saccade.train(tiny_recipe("updates=2"), tmp_path / "run", base=tmp_path / "data")
    target.write_bytes(whole)
    saccade.train(tiny_recipe("updates=2"), tmp_path / "run", base=tmp_path / "data")


def test_a_replacement_killed_before_it_began_is_undone_by_the_next(tmp_path: Path) -> None:
    before = trained(tmp_path)
    RunFolder.create(tmp_path / "run", overwrite=True)  # and then the process is killed
    assert not (tmp_path / "run" / "model.safetensors").exists()
    with pytest.raises(UsageError, match="is not empty"):
        saccade.train(tiny_recipe("updates=4"), tmp_path / "run", base=tmp_path / "data")
    assert (tmp_path / "run" / "model.safetensors").read_bytes() == before


def test_a_replacement_that_is_just_being_prepared_is_not_undone_by_another(tmp_path: Path) -> None:
    trained(tmp_path)
    preparing = RunFolder.create(tmp_path / "run", overwrite=True)
    (tmp_path / "run" / "train.yaml").write_text("on its way")
    with preparing.locked(), pytest.raises(UsageError, match="another process trains in it"):
        saccade.train(tiny_recipe("updates=4"), tmp_path / "run", overwrite=True, base=tmp_path / "data")
    assert (tmp_path / "run" / "train.yaml").read_text() == "on its way"


def test_an_error_in_training_is_not_taken_for_a_lock(tmp_path: Path) -> None:
    with pytest.raises(BlockingIOError), RunFolder(tmp_path).locked():
        raise BlockingIOError("a terminal that is not read")


def test_two_trainings_do_not_share_a_folder(tmp_path: Path) -> None:
    trained(tmp_path)
    more = tiny_recipe("updates=40")
    first = saccade.training(more, tmp_path / "run", resume=True, base=tmp_path / "data")
    assert isinstance(next(first), Prepared)
    with pytest.raises(UsageError, match="another process trains in it"):
        next(saccade.training(more, tmp_path / "run", resume=True, base=tmp_path / "data"))
    with pytest.raises(UsageError, match="another process trains in it"):
        next(saccade.training(more, tmp_path / "run", overwrite=True, base=tmp_path / "data"))
    first.close()  # type: ignore[attr-defined]
    assert isinstance(next(saccade.training(more, tmp_path / "run", resume=True)), Prepared)


def test_a_damaged_token_store_is_refused_by_name(tmp_path: Path) -> None:
    trained(tmp_path)
    path = tmp_path / "run" / "data" / "train" / "target.bin"
    content = bytearray(path.read_bytes())
    content[7] ^= 1
    path.write_bytes(content)
    with pytest.raises(SaccadeError, match=r"target\.bin: is not the file that was written"):
        saccade.train(tiny_recipe("updates=6"), tmp_path / "run", resume=True)
    (path.parent / "store.json").write_text('{"format": 1, "done": true}')
    with pytest.raises(SaccadeError, match=r"store\.json: is not as a store writes it"):
        saccade.train(tiny_recipe("updates=6"), tmp_path / "run", resume=True)


def test_a_run_resumed_from_elsewhere_finds_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trained(tmp_path)
    for path in (tmp_path / "run" / "data" / "train").iterdir():
        path.unlink()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    done = saccade_command("train", tmp_path / "run", "--resume", "--set", "train.updates=6")
    assert done.exit_code == 0, done.output


def test_the_mean_of_checkpoints_stays_the_best_when_a_run_goes_on(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data")
    rate = "optimizer={kind: adamw, rate: 0.2}"
    first = tiny_recipe("updates=60", "average=5", "save_every=2", "validate_every=10", rate)
    done = saccade.train(first, tmp_path / "run", base=tmp_path / "data").finished
    assert done.averaged == 5
    published = (tmp_path / "run" / "model.safetensors").read_bytes()
    again = saccade.train(first, tmp_path / "run", resume=True).finished
    assert (again.averaged, again.best) == (5, done.best)
    longer = tiny_recipe("updates=61", "average=5", "save_every=2", "validate_every=10", rate)
    later = saccade.train(longer, tmp_path / "run", resume=True).finished
    if later.best == done.best:
        assert (tmp_path / "run" / "model.safetensors").read_bytes() == published
        assert later.averaged == 5
    assert later.best["loss"] <= done.best["loss"]


def test_time_spent_is_noted_up_to_the_last_update(tmp_path: Path) -> None:
    write_corpus(tmp_path / "data")
    # A validation takes time too: one between the last update and the end would leave the former below the limit.
    chosen = tiny_recipe("updates=100000", "minutes=0.005", "log_every=1", "validate_every=100000")
    finished = saccade.train(chosen, tmp_path / "run", base=tmp_path / "data").finished
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if line["kind"] == "trained"][-1]
    assert isinstance(finished, Finished)
    assert last["update"] == finished.update
    assert last["seconds"] >= 0.3 - 1e-3


def test_a_recipe_called_train_yaml_does_not_make_a_run_folder(tmp_path: Path) -> None:
    assert saccade_command("init", "-o", tmp_path / "train.yaml").exit_code == 0
    assert not is_run(tmp_path)
    for arguments in (("info", tmp_path), ("translate", tmp_path, "x")):
        done = saccade_command(*arguments)
        assert done.exit_code == 2
        assert "is no run folder" in done.stderr


def test_without_out_a_run_goes_to_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = saccade.train(tiny_recipe("updates=1"))
    assert done.path == Path("runs/translate-lstm-lstm")


@pytest.mark.parametrize("kind", ["a file", "a folder of mine", "a run of mine"])
def test_the_demo_replaces_nothing_but_demos(tmp_path: Path, kind: str) -> None:
    out = tmp_path / "out"
    match kind:
        case "a file":
            out.write_text("mine")
        case "a folder of mine":
            out.mkdir()
            (out / "notes.txt").write_text("mine")
        case _:
            (out / "dates").mkdir(parents=True)
            (out / "dates" / "train.yaml").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    done = saccade_command("demo", "--out", out, "--seconds", "1")
    assert done.exit_code == 2
    assert os.fspath(out) in done.stderr
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("text", ["seed: 2001-99-99", "seed: " + "[" * 5000])
def test_odd_yaml_is_a_usage_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    done = saccade_command("train", tmp_path / "odd.yaml")
    assert done.exit_code == 2
    assert "not valid YAML" in done.stderr
