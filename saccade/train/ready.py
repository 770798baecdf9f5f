"""Everything a run needs before its first update: recipe, tokenizers, tokens and model, found or made in its folder."""

import errno
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import checkpoint, disk
from saccade.checkpoint import RunFolder
from saccade.config import Names, Tree, to_yaml
from saccade.data.columns import STORE
from saccade.errors import Damaged, SaccadeError, UsageError
from saccade.models.trainable import Trainable
from saccade.train.environment import environment
from saccade.train.initial import Initial
from saccade.train.numerics import seed_everything
from saccade.train.prepared import PreparedTokens, Taken, made_from, note
from saccade.train.settings import TrainConfig
from saccade.train.task import Ready, Task

SPLITS = ("train", "valid")


@dataclass(frozen=True)
class Job:
    """What is to be trained."""

    task: Task
    train: TrainConfig
    seed: int
    recipe: dict[str, Any]
    """The whole resolved recipe, as it is saved."""
    named: Mapping[str, Names]
    """Which of its settings name something on the disk, and what."""
    base: Path
    """Where relative paths are seen from."""
    initial: Initial | None = None
    """What it begins with, where that is not nothing."""
    prepared: PreparedTokens | None = None
    """Where its tokenizers and tokens are taken from, if they are not to be made."""


def made_ready(job: Job, folder: RunFolder) -> tuple[Ready, Trainable, list[str]]:
    """Data, model, and remarks. A new run begins, and an older one in its place goes, once nothing more can fail."""
    folder.clean()
    if not folder.fresh:
        folder.verify_recipe()
    if folder.begun:
        ready = _reopened(job, folder)
    elif (prepared := job.prepared or _interrupted(folder)) is None:
        ready = _made(job, folder.path)
    else:
        ready = _given(job, prepared, folder.path)
    seed_everything(job.seed, 0)
    model = ready.build()
    remarks = [*_told_when_given(folder.path), *_begun_with(job, folder, model)]
    if not folder.begun:
        facts = {"format": checkpoint.FORMAT, "task": job.task.name, "model": ready.model_settings}
        facts |= {**ready.facts, "vocabulary": dict(ready.sizes)}
        facts |= {} if job.initial is None else job.initial.facts()
        folder.begin(facts, job.task.files)
    return ready, model, remarks


def _begun_with(job: Job, folder: RunFolder, model: Trainable) -> list[str]:
    """First weights from another run, unless there is a checkpoint, which has its own; then frozen, as may be."""
    if job.initial is None:
        return []
    remarks = []
    if not folder.steps():
        noted = disk.read_json(folder.path / checkpoint.CONFIG) if folder.begun else {}
        remarks.append(job.initial.take(model, noted))
    job.initial.frozen(model)
    return remarks


def prepare(job: Job, path: Path) -> Ready:
    """Tokenizers and tokens alone, for trainings that are to come: a folder that appears when it is whole."""
    there = UsageError(f"{path}: is there already. Name another folder with --out, or remove it.")
    if not path.name or path.is_symlink() or (path.exists() and (not path.is_dir() or any(path.iterdir()))):
        raise there
    unfinished = path.with_name(f"{disk.TEMPORARY}{path.name}-{uuid.uuid4().hex}")
    try:
        unfinished.mkdir(parents=True)
        _made(job, unfinished)
        if not (unfinished / checkpoint.MADE_FROM).exists():
            raise SaccadeError(f"{path}: is not made, since its data changed while they were read. Prepare it again.")
        unfinished.rename(path)
        disk.sync_folder(path.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):  # another preparation was faster
            raise there from None
        raise SaccadeError(f"{path}: cannot be written: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return job.task.open(path)


def made_of(job: Job) -> Tree:
    """What tokenizers and tokens of this training depend on."""
    return made_from(job.task, job.recipe, job.named, job.base)


def _made(job: Job, folder: Path) -> Ready:
    """Tokenizers and tokens from the data, and beside them what they were made of, unless that changed meanwhile."""
    made = made_of(job)
    _write_origin(job, folder)
    if job.initial is not None:
        job.initial.check(job.recipe)
    job.task.learn(folder)
    if job.initial is not None:
        job.initial.give_text(folder)
    ready = _written(job, folder)
    if made_of(job) == made:
        note(folder, made, job.seed, job.task.files)
    return ready


def checked(job: Job, prepared: PreparedTokens) -> Taken:
    """What is noted of tokens that were made before, if they are whole, and those that this training would make."""
    try:
        taken = prepared.check(made_of(job))
        prepared.verify(taken)
        _verified(job, prepared.folder)
    except Damaged as error:
        raise SaccadeError(f"{error.what} {prepared.again}") from None
    except OSError as error:
        raise SaccadeError(f"{error.filename}: cannot be read: {error.strerror or error}.") from None
    return taken


def _given(job: Job, prepared: PreparedTokens, folder: Path) -> Ready:
    """Those that were made before."""
    taken = checked(job, prepared)
    if job.initial is not None:
        job.initial.check(job.recipe)
    place, told = str(prepared.folder.absolute()), taken.told(prepared.folder, job.seed)
    _write_origin(job, folder, {"prepared": {"folder": place, "told": told}})
    prepared.give(job.task.files, folder)
    return job.task.open(folder)


def _interrupted(folder: RunFolder) -> PreparedTokens | None:
    """Whose tokens a run was to begin with that was killed before it had begun."""
    noted = None if folder.fresh else _noted(folder.path)
    if noted is None:
        return None
    prepared = PreparedTokens(Path(noted["folder"]), begins=folder.path)
    if not prepared.folder.is_dir():
        raise UsageError(
            f"{folder.path}: was to begin with {prepared.folder}, which is not there any more. {prepared.again}"
        )
    return prepared


def _told_when_given(folder: Path) -> list[str]:
    """Of tokens that were made before, at every start: the model card tells it as well."""
    try:
        noted = _noted(folder)
    except SaccadeError as error:  # damage to what is only told stops no training
        return [str(error)]
    if noted is None:
        return []
    if not (folder / checkpoint.MADE_FROM).exists():
        return [f"tokenizers of {noted['folder']}; tokens made again"]
    return [noted["told"]]


def _noted(folder: Path) -> dict[str, str] | None:
    origin = folder / checkpoint.ENVIRONMENT
    noted = disk.read_sealed_json(origin).get("prepared") if origin.is_file() else None
    return noted if isinstance(noted, dict) else None


def _write_origin(job: Job, folder: Path, more: Tree | None = None) -> None:
    """The recipe last, since a run is there with it."""
    facts = environment() | {"base": str(job.base)} | (more or {})
    disk.write_file(folder / checkpoint.ENVIRONMENT, disk.sealed_json(facts))
    _write_recipe(job, folder)


def _write_recipe(job: Job, folder: Path) -> None:
    path, content = folder / checkpoint.RECIPE, disk.sealed(to_yaml(job.recipe)).encode()
    if not path.exists() or path.read_bytes() != content:
        disk.write_file(path, content)


def _written(job: Job, folder: Path) -> Ready:
    """The data as tokens, made afresh; a manifest beside each store says that it is whole."""
    shutil.rmtree(folder / checkpoint.DATA, ignore_errors=True)  # a killed run may have left half a store
    job.task.write(folder)
    ready = job.task.open(folder)
    for store in ready.stores.values():
        manifest = {STORE: [disk.checksum(store.folder / STORE)]}
        disk.write_file(store.folder / disk.MANIFEST, disk.to_json(manifest))
    return ready


def _reopened(job: Job, folder: RunFolder) -> Ready:
    """What the run read before. Its tokenizers stay as they are even where the tokens must be made again."""
    folder.verify()
    ready = _stores(job, folder.path)
    _write_recipe(job, folder.path)
    return ready


def _lacking(folder: Path) -> list[str]:
    """What a preparation that was not ended, or somebody who removes files, leaves out."""
    names = [f"{checkpoint.DATA}/{split}/{name}" for split in SPLITS for name in (STORE, disk.MANIFEST)]
    return [name for name in names if not (folder / name).exists()]


def _stores(job: Job, folder: Path) -> Ready:
    """The tokens that were made before, or, where they are gone, those of the same data."""
    return _written(job, folder) if _lacking(folder) else _verified(job, folder)


def _verified(job: Job, folder: Path) -> Ready:
    for split in SPLITS:
        _verify_store(folder / checkpoint.DATA / split)
    try:
        found = job.task.open(folder)
        for opened in found.stores.values():
            opened.verify()
    except (KeyError, TypeError, AttributeError) as error:  # somebody wrote checksums that fit
        raise UsageError(f"{folder / checkpoint.DATA}: its {STORE} are not as stores write them ({error!r}).") from None
    return found


def _verify_store(store: Path) -> None:
    """What is said of the tokens is as it was written; the tokens are then compared with it."""
    disk.read_json(store / STORE)
    if disk.checksum(store / STORE) not in disk.read_manifest(store).get(STORE, []):
        raise Damaged(
            f"{store / STORE}: is not as a store writes it (its checksum differs).",
            f"Remove {store.parent} and resume: the tokens are then made again from the data.",
        )
