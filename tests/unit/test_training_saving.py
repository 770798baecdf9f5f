"""Saving beside the training: copied at once, written in order, told when it is on the disk, never lost in silence."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import saccade
from saccade import disk
from saccade.checkpoint import MODEL, RunFolder, read_json, read_tensors
from saccade.errors import SaccadeError
from saccade.recipe import Recipe
from saccade.train.events import Event, Finished, Logged, Saved
from saccade.train.log import Log
from saccade.train.saving import Order, Room, Saver
from tests.support.faults import Crash, crash_at
from tests.support.killing import leftovers, logged, trace
from tests.support.tiny import of_kind, recipe, write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus"))


@contextmanager
def held_up(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[tuple[threading.Event, threading.Event]]:
    """The run folder's method waits: (it was called, it may go on)."""
    called, go = threading.Event(), threading.Event()
    honest: Callable[..., Any] = getattr(RunFolder, name)

    def waiting(*given: Any) -> Any:
        called.set()
        assert go.wait(30)
        return honest(*given)

    monkeypatch.setattr(RunFolder, name, waiting)
    try:
        yield called, go
    finally:
        go.set()
        monkeypatch.setattr(RunFolder, name, honest)


def saving_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("saccade-saving")]


# A saver alone


def order(update: int = 1, **state: Any) -> Order:
    return Order(update, state, keep=9, spare=list, not_finite=lambda: SaccadeError("gone astray"))


@pytest.fixture
def saver(tmp_path: Path) -> Iterator[Saver]:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    (folder.path / "tokenizer.json").write_text("{}")
    folder.begin({}, ["tokenizer.json"])
    made = Saver(folder, Log(folder.path / "metrics.jsonl"))
    yield made
    made.close()


def weight(value: float) -> dict[str, Tensor]:
    return {"w": torch.full((3, 2), value)}


def test_a_snapshot_is_not_changed_by_what_comes_after(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    model, memory = weight(1.0), {"w/step": torch.tensor(5.0)}
    with held_up(monkeypatch, "save_checkpoint"):
        assert list(saver.save(order(), model, memory)) == []
        model["w"].fill_(9.0)
        memory["w/step"].fill_(9.0)
    (saved,) = saver.wait()
    assert torch.equal(read_tensors(saved.path / MODEL)["w"], torch.full((3, 2), 1.0))
    assert read_tensors(saved.path / "optimizer.safetensors")["w/step"].item() == 5.0


def test_the_room_for_snapshots_is_used_again_and_grows_with_them() -> None:
    room = Room()
    first = room.snapshot({"w": torch.ones(3)}).tensors()["w"]
    again = room.snapshot({"w": torch.zeros(3)}).tensors()["w"]
    assert first.data_ptr() == again.data_ptr()
    for other in (torch.ones(4), torch.ones(3, dtype=torch.float64), torch.ones(2, 2).T):
        assert torch.equal(room.snapshot({"w": other}).tensors()["w"], other)


def test_at_most_one_save_is_under_way_and_they_come_in_order(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []
    honest = RunFolder.save_checkpoint

    def counting(self: RunFolder, update: int, *given: Any) -> Path:
        inside.append(update)
        path = honest(self, update, *given)
        assert inside[-1] == update
        return path

    monkeypatch.setattr(RunFolder, "save_checkpoint", counting)
    told: list[Saved] = []
    for update in range(1, 6):
        told += saver.save(order(update), weight(update), {})
        assert len(told) >= update - 1  # the one before is on the disk
    told += saver.wait()
    assert [saved.update for saved in told] == inside == [1, 2, 3, 4, 5]


def test_a_checkpoint_waits_for_the_model_it_calls_the_best(saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    with held_up(monkeypatch, "publish") as (called, _):
        assert list(saver.publish(weight(1.0))) == []
        assert called.wait(30)
        assert list(saver.save(order(best=1), weight(1.0), {})) == []  # training goes on at once
        assert not saver.folder.steps()
    (saved,) = saver.wait()
    assert read_json(saved.path / "state.json") == {"best": 1}
    assert torch.equal(read_tensors(saver.folder.path / MODEL)["w"], weight(1.0)["w"])


@pytest.mark.parametrize("failing", ["publish", "save_checkpoint"])
def test_after_a_failure_nothing_more_is_written(failing: str, saver: Saver, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise SaccadeError("the disk is full")

    monkeypatch.setattr(RunFolder, failing, refuse)
    list(saver.publish(weight(1.0)))
    if failing == "publish":
        list(saver.save(order(), weight(1.0), {}))
        with pytest.raises(SaccadeError, match="the disk is full"):
            list(saver.wait())
        assert list(saver.wait()) == []
    else:
        list(saver.save(order(1), weight(1.0), {}))
        with pytest.raises(SaccadeError, match="the disk is full"):
            list(saver.save(order(2), weight(2.0), {}))
    assert not saver.folder.steps()


def test_weights_that_are_no_numbers_are_not_saved(saver: Saver) -> None:
    list(saver.save(order(), weight(float("nan")), {}))
    with pytest.raises(SaccadeError, match="gone astray"):
        list(saver.wait())
    assert not saver.folder.steps()


@pytest.mark.gpu
def test_a_gpu_s_later_work_does_not_change_a_snapshot() -> None:
    """The copy is queued between what was asked of the GPU before and what is asked after."""
    room, weights = Room(), torch.zeros(64, 1 << 18, device="cuda")
    for value in range(1, 6):
        for _ in range(50):
            weights.add_(1.0)
        snapshot = room.snapshot({"w": weights})
        for _ in range(50):
            weights.mul_(1.5)
        assert snapshot.copies["w"].is_pinned()
        assert torch.equal(snapshot.tensors()["w"], torch.full((64, 1 << 18), 50.0 * value))
        weights.fill_(50.0 * value)


# A training


def train(chosen: Recipe, out: Path, *, resume: bool = False) -> list[Event]:
    return list(saccade.training(chosen, out, resume=resume, device="cpu"))


def test_training_goes_on_while_a_checkpoint_is_written(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(corpus, "lstm", "train.save_every=4", "train.log_every=1", "train.updates=8")
    train(chosen, tmp_path / "alone")
    told: list[Event] = []
    with held_up(monkeypatch, "save_checkpoint") as (called, go):
        for event in saccade.training(chosen, tmp_path / "run", device="cpu"):
            told.append(event)
            if isinstance(event, Logged) and event.update == 7:
                assert called.wait(60)
                assert not RunFolder(tmp_path / "run").steps()
                assert not of_kind(told, Saved)
                go.set()
    assert [event.update for event in of_kind(told, Saved)] == [4, 8]
    assert trace(tmp_path / "run") == trace(tmp_path / "alone")
    for one, other in pairwise((tmp_path / "run", tmp_path / "alone")):
        for step, same in zip(RunFolder(one).steps(), RunFolder(other).steps(), strict=True):
            assert (step / MODEL).read_bytes() == (same / MODEL).read_bytes()
            assert (step / "optimizer.safetensors").read_bytes() == (same / "optimizer.safetensors").read_bytes()


def test_a_checkpoint_is_told_when_it_is_whole_and_knows_the_log_of_its_moment(corpus: Path, tmp_path: Path) -> None:
    chosen = recipe(corpus, "lstm", "train.save_every=3", "train.log_every=1", "train.keep=9")
    for event in saccade.training(chosen, tmp_path, device="cpu"):
        if isinstance(event, Saved):
            RunFolder.verify_checkpoint(event.path)
            size = read_json(event.path / "state.json")["metrics_bytes"]
            lines = (tmp_path / "metrics.jsonl").read_bytes()[:size]
            assert lines.endswith(b"\n")
            assert disk.read_json(event.path / "state.json")["progress"]["update"] == event.update
            assert max(map(int, _updates(lines))) == event.update
    assert (tmp_path / MODEL).exists()


def _updates(lines: bytes) -> list[bytes]:
    return [line.partition(b'"update": ')[2].partition(b",")[0] for line in lines.splitlines()]


def test_a_dropped_training_finishes_the_save_that_is_under_way(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = recipe(corpus, "lstm", "train.save_every=2", "train.log_every=1")
    training = saccade.training(chosen, tmp_path, device="cpu")
    with held_up(monkeypatch, "save_checkpoint") as (called, go):
        while not (isinstance(event := next(training), Logged) and event.update == 3):
            pass  # the checkpoint of update 2 has been asked for
        assert called.wait(60)
        threading.Timer(0.05, go.set).start()
        training.close()  # type: ignore[attr-defined]
        found, remarks = RunFolder(tmp_path).latest()
    assert found is not None
    assert (found.update, remarks) == (2, [])
    assert not leftovers(tmp_path)
    assert not saving_threads()


def test_an_error_of_the_training_waits_for_the_save_and_is_the_one_that_is_told(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = RunFolder.save_checkpoint

    def slow(self: RunFolder, update: int, *given: Mapping[str, Any]) -> Path:
        threading.Event().wait(0.05)
        return honest(self, update, *given)

    monkeypatch.setattr(RunFolder, "save_checkpoint", slow)
    training = saccade.training(recipe(corpus, "lstm", "train.save_every=2", "train.log_every=1"), tmp_path)
    while not (isinstance(event := next(training), Logged) and event.update == 3):
        pass
    with pytest.raises(ZeroDivisionError):
        training.throw(ZeroDivisionError)  # type: ignore[attr-defined]
    assert [path.name for path in RunFolder(tmp_path).steps()] == ["step-2"]
    assert not saving_threads()
    assert not leftovers(tmp_path)


def test_a_machine_that_stops_at_any_write_of_a_run_loses_nothing_but_time(corpus: Path, tmp_path: Path) -> None:
    """Whichever thread wrote: what is on the disk goes on to the same end."""
    chosen = recipe(corpus, "lstm", "train.save_every=2", "train.validate_every=3", "train.keep=1", "train.average=2")
    with crash_at(None) as counted:
        train(chosen, tmp_path / "alone")
    expected, log = trace(tmp_path / "alone"), logged(tmp_path / "alone")
    assert counted.steps > 150
    for step in range(29, counted.steps, counted.steps // 7):
        out = tmp_path / f"stopped-{step}"
        with crash_at(step), pytest.raises(Crash):
            train(chosen, out)
        *_, finished = train(chosen, out, resume=(out / "train.yaml").exists())
        assert isinstance(finished, Finished)
        assert trace(out) == expected
        assert logged(out) == log
        assert not leftovers(out)
