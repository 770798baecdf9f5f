"""A run folder whose writer is stopped, or finds no room, at every single step: it holds the old or the new, whole."""

import errno
import os
import resource
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from saccade import checkpoint, disk
from saccade.checkpoint import MODEL, RunFolder, read_json, read_tensors
from saccade.disk import MANIFEST
from saccade.errors import SaccadeError, UsageError
from tests.support.faults import Crash, crash_at, full_disk_from
from tests.support.folders import CPU, same, shifted, weights

# Stops in the midst of a save


def torn_at_every_step(action: Callable[[RunFolder], object], run: Path, tmp_path: Path) -> Iterator[RunFolder]:
    """Copies of the run, in each of which the action was stopped before another of its changes to the disk."""
    whole = RunFolder(Path(shutil.copytree(run, tmp_path / "whole")))
    with crash_at(None) as counted:
        action(whole)
    assert counted.steps >= 12  # three files: each is written, flushed and renamed, and then the folder is flushed
    for step in range(1, counted.steps + 1):
        torn = RunFolder(Path(shutil.copytree(run, tmp_path / f"torn-{step}")))
        with crash_at(step), pytest.raises(Crash):
            action(torn)
        yield torn


def test_at_every_moment_of_publishing_the_folder_loads(run: Path, tmp_path: Path) -> None:
    old = weights(run)
    new = shifted(old)
    outcomes = set()
    for torn in torn_at_every_step(lambda folder: folder.publish(new), run, tmp_path):
        found = weights(torn.path)
        assert same(found, old) or same(found, new)
        outcomes.add(same(found, new))
        torn.verify()
        torn.clean()
        assert not list(torn.path.glob(".*"))
        torn.publish(new)
        assert same(weights(torn.path), new)
        assert len(read_json(torn.path / MANIFEST)[MODEL]) == 1
    assert outcomes == {False, True}


def test_at_every_moment_of_the_first_publishing_there_is_no_model_or_the_model(run: Path, tmp_path: Path) -> None:
    model = weights(run)
    facts = read_json(run / "config.json")
    for name in ("config.json", MANIFEST, MODEL):
        (run / name).unlink()

    def publish(folder: RunFolder) -> None:
        folder.begin(facts, ["tokenizer.json"])
        folder.publish(model)

    outcomes = set()
    for torn in torn_at_every_step(publish, run, tmp_path):
        if (torn.path / MODEL).exists():
            assert same(weights(torn.path), model)
        else:
            with pytest.raises(UsageError, match="holds no model yet"):
                checkpoint.load(torn.path, CPU)
        outcomes.add((torn.begun, (torn.path / MODEL).exists()))
        if torn.begun:
            torn.verify()
    assert outcomes == {(False, False), (True, False), (True, True)}


def test_at_every_moment_of_a_save_the_latest_checkpoint_is_the_old_or_the_new_one(run: Path, tmp_path: Path) -> None:
    newest = RunFolder(run).steps()[-1]
    model, optimizer = (read_tensors(newest / f"{name}.safetensors") for name in ("model", "optimizer"))

    def save(folder: RunFolder) -> None:
        folder.save_checkpoint(12, shifted(model), optimizer, {"number": 12})
        folder.prune(1)

    outcomes = set()
    for torn in torn_at_every_step(save, run, tmp_path):
        found, remarks = torn.latest()
        assert found is not None
        assert not remarks
        assert same(found.tensors("model"), shifted(model) if found.update == 12 else model)
        assert found.state == ({"number": 12} if found.update == 12 else read_json(newest / "state.json"))
        outcomes.add(found.update)
        torn.clean()
        assert not list(torn.checkpoints.glob(".*"))
        save(torn)
        assert [path.name for path in torn.steps()] == ["step-12"]
        assert torn.latest()[0] is not None
    assert outcomes == {8, 12}


def test_at_every_moment_of_saving_a_checkpoint_anew_the_only_one_is_the_old_or_the_new(
    run: Path, tmp_path: Path
) -> None:
    """The last update is saved once more when the mean of the last checkpoints was tried."""
    RunFolder(run).prune(1)
    (newest,) = RunFolder(run).steps()
    model, optimizer = (read_tensors(newest / f"{name}.safetensors") for name in ("model", "optimizer"))

    def save(folder: RunFolder) -> None:
        folder.save_checkpoint(8, shifted(model), optimizer, {"number": 8})

    outcomes = set()
    for torn in torn_at_every_step(save, run, tmp_path):
        torn.clean()
        assert not list(torn.checkpoints.glob(".*"))
        found, remarks = torn.latest()
        assert found is not None
        assert not remarks
        is_new = found.state == {"number": 8}
        assert same(found.tensors("model"), shifted(model) if is_new else model)
        outcomes.add(is_new)
        save(torn)
        assert [path.name for path in torn.steps()] == ["step-8"]
    assert outcomes == {False, True}


def test_what_is_pruned_is_never_seen_by_half(run: Path, tmp_path: Path) -> None:
    whole = RunFolder(Path(shutil.copytree(run, tmp_path / "whole")))
    with crash_at(None) as counted:
        whole.prune(1)
    assert [path.name for path in whole.steps()] == ["step-8"]
    for step in range(1, counted.steps + 1):
        torn = RunFolder(Path(shutil.copytree(run, tmp_path / f"torn-{step}")))
        with crash_at(step), pytest.raises(Crash):
            torn.prune(1)
        for path in torn.steps():
            torn.verify_checkpoint(path)
        torn.clean()
        assert not list(torn.path.rglob(".*"))


def test_a_checkpoint_takes_the_place_of_a_broken_one(run: Path) -> None:
    folder = RunFolder(run)
    older, newest = folder.steps()
    tensors = read_tensors(older / MODEL)
    (newest / MODEL).write_bytes(b"")
    folder.save_checkpoint(8, tensors, {}, {})
    found, remarks = folder.latest()
    assert found is not None
    assert (found.path, remarks) == (newest, [])
    assert found.tensors("optimizer") == {}


def test_what_a_killed_save_left_is_removed_and_nothing_else(run: Path) -> None:
    kept = sorted(path.relative_to(run) for path in run.rglob("*"))
    for left in (".tmp-step-12", ".tmp-step-16/deep"):
        (run / "checkpoints" / left).mkdir(parents=True)
    (run / "checkpoints" / ".tmp-step-12" / MODEL).write_bytes(b"half")
    (run / ".tmp-model.safetensors").write_bytes(b"half")
    RunFolder(run).clean()
    assert sorted(path.relative_to(run) for path in run.rglob("*")) == kept


def test_steps_go_by_their_number_and_prune_keeps_the_last(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "run", overwrite=False)
    for update in (9, 100, 11, 2):
        folder.save_checkpoint(update, {"w": torch.zeros(1)}, {}, {})
    (folder.checkpoints / "step-last").mkdir()
    assert [path.name for path in folder.steps()] == ["step-2", "step-9", "step-11", "step-100"]
    folder.prune(2, spare=[folder.checkpoints / "step-2"])
    assert [path.name for path in folder.steps()] == ["step-2", "step-11", "step-100"]
    folder.prune(1)
    assert [path.name for path in folder.steps()] == ["step-100"]


# Disks that cannot be written


def full_at_every_step(action: Callable[[Path], object], run: Path, tmp_path: Path) -> Iterator[Path]:
    """The folder after each way in which the action can meet a full disk; it must have said so."""
    whole = Path(shutil.copytree(run, tmp_path / "whole"))
    with full_disk_from(None) as counted:
        action(whole)
    assert counted.steps >= 4
    for step in range(1, counted.steps + 1):
        folder = Path(shutil.copytree(run, tmp_path / f"full-{step}"))
        with full_disk_from(step), pytest.raises(SaccadeError, match=r"cannot be written: No space left .* intact"):
            action(folder)
        assert not list(folder.rglob(".*"))
        yield folder


def test_a_full_disk_leaves_the_earlier_checkpoint(run: Path, tmp_path: Path) -> None:
    tensors = read_tensors(RunFolder(run).steps()[-1] / MODEL)
    outcomes = set()
    for folder in full_at_every_step(lambda it: RunFolder(it).save_checkpoint(12, tensors, {}, {}), run, tmp_path):
        found, remarks = RunFolder(folder).latest()
        assert found is not None
        assert not remarks
        outcomes.add(found.update)
    assert outcomes == {8, 12}  # 12: where only the last flush of the folder failed


def test_a_full_disk_leaves_the_published_model(run: Path, tmp_path: Path) -> None:
    old = weights(run)
    for folder in full_at_every_step(lambda it: RunFolder(it).publish(shifted(old)), run, tmp_path):
        assert same(weights(folder), old) or same(weights(folder), shifted(old))


REFUSALS = {"quota": errno.EDQUOT, "read-only disk": errno.EROFS, "no permission": errno.EACCES, "device": errno.EIO}


def refusal(action: Callable[[RunFolder], object], folder: RunFolder, step: int, code: int) -> str | None:
    with full_disk_from(step, code):
        try:
            action(folder)
        except SaccadeError as error:
            return str(error)
    return None


@pytest.mark.parametrize("kind", REFUSALS)
def test_whatever_forbids_writing_is_told_in_one_line_and_leaves_what_was_there(
    kind: str, run: Path, tmp_path: Path
) -> None:
    old, newest = weights(run), RunFolder(run).steps()[-1]
    tensors = read_tensors(newest / MODEL)
    actions: dict[str, Callable[[RunFolder], object]] = {
        "save": lambda folder: folder.save_checkpoint(12, tensors, {}, {}),
        "save again": lambda folder: folder.save_checkpoint(8, tensors, {}, {}),
        "publish": lambda folder: folder.publish(shifted(old)),
    }
    for name, action in actions.items():
        whole = RunFolder(Path(shutil.copytree(run, tmp_path / f"{name}-whole")))
        with full_disk_from(None, REFUSALS[kind]) as counted:
            action(whole)
        for step in range(1, counted.steps + 1, 3):
            folder = RunFolder(Path(shutil.copytree(run, tmp_path / f"{name}-{step}")))
            told = refusal(action, folder, step, REFUSALS[kind])
            # None: only the removal of what was replaced was refused, which is no loss
            assert told is None or (os.strerror(REFUSALS[kind]) in told and "intact" in told and "\n" not in told)
            assert told is not None or step > 3
            folder.clean()
            found, remarks = folder.latest()
            assert found is not None
            assert not remarks
            assert same(weights(folder.path), old) or same(weights(folder.path), shifted(old))


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.99])
def test_a_file_that_the_system_cuts_short_is_no_checkpoint(share: float, run: Path) -> None:
    folder = RunFolder(run)
    newest = folder.steps()[-1]
    tensors = read_tensors(newest / MODEL)
    limit = int(share * (newest / MODEL).stat().st_size)
    with files_up_to(limit), pytest.raises(SaccadeError, match="step-12: the checkpoint cannot be written"):
        folder.save_checkpoint(12, tensors, {}, {})
    with files_up_to(limit), pytest.raises(SaccadeError, match="cannot be written"):
        folder.publish(shifted(tensors))
    found, remarks = folder.latest()
    assert found is not None
    assert (found.path, remarks) == (newest, [])
    checkpoint.load(run, CPU)


def test_a_disk_that_reads_back_other_bytes_is_not_trusted(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = RunFolder(run)
    monkeypatch.setattr(disk, "checksum", lambda path: "0" * 64)
    with pytest.raises(SaccadeError, match=r"model\.safetensors: reads back other than it was written"):
        folder.save_checkpoint(12, {"w": torch.zeros(1)}, {}, {})
    monkeypatch.undo()
    found, _ = folder.latest()
    assert found is not None
    assert found.update == 8
