"""Trainings that go astray, run out of disk, or go on: what is told, what is kept, and what may change."""

import math
import shutil
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

import saccade
from saccade.checkpoint import MODEL, RunFolder, read_tensors
from saccade.errors import SaccadeError, UsageError
from saccade.loss import Loss
from saccade.models.translator import Translator
from saccade.recipe import Recipe
from saccade.tasks import translate
from saccade.train.events import Event, Finished, Validated
from saccade.types import Batch
from tests.support.faults import full_disk_from
from tests.support.killing import trace
from tests.support.tiny import notes, recipe, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


def train(chosen: Recipe, out: Path, *, resume: bool = False) -> list[Event]:
    return list(saccade.training(chosen, out, resume=resume, device="cpu"))


# Trainings that go astray


def test_one_loss_that_is_no_number_is_skipped_and_never_reaches_what_is_saved(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, calls = Translator.loss, count(1)

    def broken(self: Translator, batch: Batch, smoothing: float = 0.0) -> Loss:
        loss = honest(self, batch, smoothing)
        if not self.training:
            return loss
        worth = math.nan if next(calls) == 6 else 1.0
        return replace(loss, total=loss.total * worth, nll=loss.nll * worth)

    monkeypatch.setattr(Translator, "loss", broken)
    settings = ("train.save_every=2", "train.log_every=100", "train.fingerprint=false", "train.keep=9")
    *_, finished = train(recipe(corpus, "lstm", *settings), tmp_path)
    assert isinstance(finished, Finished)
    assert finished.update == 10
    found, remarks = RunFolder(tmp_path).latest()
    assert found is not None
    assert not remarks
    assert found.state["progress"]["skipped"] == 1
    for step in RunFolder(tmp_path).steps():
        assert all(tensor.isfinite().all() for tensor in read_tensors(step / MODEL).values())
    assert all(math.isfinite(note["loss"]) for note in notes(tmp_path))
    saccade.load(tmp_path, "cpu")


def test_an_absurd_rate_is_told_and_never_saved(corpus: Path, tmp_path: Path) -> None:
    absurd = recipe(corpus, "lstm", "train.optimizer={kind: sgd, rate: 1e39}", "train.clip=null", "train.save_every=1")
    with pytest.raises(
        SaccadeError, match=r"by update 1: some weights are no longer numbers.*nothing was saved yet\.$"
    ):
        train(absurd, tmp_path)
    assert RunFolder(tmp_path).latest() == (None, [])


def test_a_validation_that_is_no_number_publishes_and_saves_nothing(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = iter([3.0, math.inf])
    monkeypatch.setattr(translate, "mean_loss", lambda *_: {"loss": next(told), "perplexity": 1.0})
    with pytest.raises(SaccadeError, match=r"update 8: the loss on .* is inf.*the last good state stands in"):
        train(recipe(corpus), tmp_path)
    assert [path.name for path in RunFolder(tmp_path).steps()] == ["step-4"]
    assert [note["update"] for note in notes(tmp_path, "validated")] == [4]


def batch_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("saccade-batches")]


def test_threads_end_with_the_training_however_it_ends(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(corpus, "lstm", "train.workers=2")
    train(chosen, tmp_path / "finished")
    assert not batch_threads()
    dropped = saccade.training(chosen, tmp_path / "dropped", device="cpu")
    while not isinstance(next(dropped), Validated):
        pass
    assert batch_threads()
    dropped.close()  # type: ignore[attr-defined]
    assert not batch_threads()
    monkeypatch.setattr(translate, "mean_loss", lambda *_: {"loss": math.nan, "perplexity": 1.0})
    with pytest.raises(SaccadeError) as held:
        train(chosen, tmp_path / "failed")
    assert not batch_threads()
    assert held.value is not None


def test_a_full_disk_ends_a_run_in_words_and_it_goes_on_when_there_is_room(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "transformer", "train.save_every=3")
    with full_disk_from(None) as counted:
        train(chosen, tmp_path / "alone")
    expected = trace(tmp_path / "alone")
    for step in range(3, counted.steps, 17):
        out = tmp_path / f"full-{step}"
        with full_disk_from(step), pytest.raises(SaccadeError, match=r"cannot be (written|made)"):
            train(chosen, out)
        begun = (out / "train.yaml").exists()
        train(chosen, out, resume=begun)
        assert trace(out) == expected


# Resuming


def test_a_resumed_run_may_not_change_what_it_learns(corpus: Path, tmp_path: Path) -> None:
    train(recipe(corpus), tmp_path)
    before = (tmp_path / "train.yaml").read_bytes()
    for setting in (
        "seed=2",
        "train.batch_tokens=64",
        "train.accumulate=2",
        "train.optimizer.rate=0.1",
        "train.schedule.warmup=3",
        "train.smoothing=0.1",
        "train.clip=null",
        "train.metric=bleu",
        "train.validate_every=3",
        "train.precision=bf16",
        "model.encoder.width=10",
        "text.lowercase=true",
        "data.max_length=9",
        "decode.beam=2",
    ):
        name = setting.partition("=")[0]
        with pytest.raises(UsageError, match=rf"was begun with other settings:\n  {name}: .* there, .* here"):
            train(recipe(corpus, "lstm", setting), tmp_path, resume=True)
    assert (tmp_path / "train.yaml").read_bytes() == before
    freely = ("updates=12", "minutes=9", "patience=7", "workers=1", "keep=3", "log_every=2")
    *_, finished = train(recipe(corpus, "lstm", *(f"train.{each}" for each in freely)), tmp_path, resume=True)
    assert isinstance(finished, Finished)
    assert finished.update == 12


def test_there_must_be_a_run_to_resume(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no run to resume"):
        train(recipe(corpus), tmp_path / "nothing", resume=True)


def test_a_run_whose_tokens_are_gone_makes_them_again(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "lstm", "train.updates=4")
    longer = recipe(corpus, "lstm", "train.updates=8")
    train(chosen, tmp_path / "run")
    train(longer, tmp_path / "alone")
    shutil.rmtree(tmp_path / "run" / "data")
    train(longer, tmp_path / "run", resume=True)
    assert trace(tmp_path / "run") == trace(tmp_path / "alone")


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_run_does_not_go_on_with_other_data(split: str, corpus: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(corpus, tmp_path / "corpus"))
    train(recipe(own), tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "data")
    with (own / f"{split}.src").open("a") as source, (own / f"{split}.tgt").open("a") as target:
        source.write("ab\n")
        target.write("ba\n")
    longer = recipe(own, "lstm", "train.updates=12")
    for _ in range(2):
        with pytest.raises(SaccadeError, match=f"step-10: was trained with other data than .*{split} holds"):
            train(longer, tmp_path / "run", resume=True)
    saccade.load(tmp_path / "run", "cpu")


def test_half_made_data_of_a_killed_run_are_made_anew(corpus: Path, tmp_path: Path) -> None:
    train(recipe(corpus), tmp_path / "run")
    half = tmp_path / "half"
    (half / "data" / ".train-1a2b3c4d").mkdir(parents=True)
    (half / "data" / ".train-1a2b3c4d" / "source.bin").write_bytes(b"half")
    shutil.copytree(tmp_path / "run" / "data" / "valid", half / "data" / "train")  # not this run's
    shutil.copy(tmp_path / "run" / "train.yaml", half)
    (half / "tokenizer.json").write_text("{")
    train(recipe(corpus), half, resume=True)
    assert trace(half) == trace(tmp_path / "run")
    assert sorted(path.name for path in (half / "data").iterdir()) == ["made-from.json", "train", "valid"]


def test_a_log_that_was_lost_is_begun_anew(corpus: Path, tmp_path: Path) -> None:
    train(recipe(corpus, "lstm", "train.updates=8"), tmp_path)
    (tmp_path / "metrics.jsonl").unlink()
    train(recipe(corpus, "lstm", "train.updates=10"), tmp_path, resume=True)
    assert [note["update"] for note in notes(tmp_path, "update")] == [9, 10]
