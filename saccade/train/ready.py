"""Everything a run needs before its first update: recipe, tokenizers, tokens and model, found or made in its folder."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import checkpoint, disk
from saccade.checkpoint import RunFolder
from saccade.config import to_yaml
from saccade.data.columns import STORE
from saccade.errors import UsageError
from saccade.models.trainable import Trainable
from saccade.train.environment import environment
from saccade.train.initial import Initial
from saccade.train.numerics import seed_everything
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
    base: Path
    """Where relative paths are seen from."""
    initial: Initial | None = None
    """What it begins with, where that is not nothing."""


def made_ready(job: Job, folder: RunFolder) -> tuple[Ready, Trainable, list[str]]:
    """Data, model, and remarks. A new run begins, and an older one in its place goes, once nothing more can fail."""
    folder.clean()
    if not folder.fresh:
        folder.verify_recipe()
    ready = _reopened(job, folder) if folder.begun else _prepared(job, folder)
    seed_everything(job.seed, 0)
    model = ready.build()
    remarks = _begun_with(job, folder, model)
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


def _prepared(job: Job, folder: RunFolder) -> Ready:
    _write_recipe(job, folder)
    facts = environment() | {"base": str(job.base)}
    disk.write_file(folder.path / checkpoint.ENVIRONMENT, disk.sealed_json(facts))
    if job.initial is not None:
        job.initial.check(job.recipe)
    job.task.learn(folder.path)
    if job.initial is not None:
        job.initial.give_text(folder.path)
    return _written(job, folder)


def _write_recipe(job: Job, folder: RunFolder) -> None:
    path, content = folder.path / checkpoint.RECIPE, disk.sealed(to_yaml(job.recipe)).encode()
    if not path.exists() or path.read_bytes() != content:
        disk.write_file(path, content)


def _written(job: Job, folder: RunFolder) -> Ready:
    """The data as tokens, made afresh; a manifest beside each store says that it is whole."""
    shutil.rmtree(folder.path / "data", ignore_errors=True)  # a killed run may have left half a store
    job.task.write(folder.path)
    ready = job.task.open(folder.path)
    for store in ready.stores.values():
        manifest = {STORE: [disk.checksum(store.folder / STORE)]}
        disk.write_file(store.folder / disk.MANIFEST, disk.to_json(manifest))
    return ready


def _reopened(job: Job, folder: RunFolder) -> Ready:
    """What the run read before. Its tokenizers stay as they are even where the tokens must be made again."""
    folder.verify()
    ready = _stores(job, folder)
    _write_recipe(job, folder)
    return ready


def _stores(job: Job, folder: RunFolder) -> Ready:
    """The tokens that were made before, or, where they are gone, those of the same data."""
    stores = [folder.path / "data" / split for split in SPLITS]
    if not all((store / name).exists() for store in stores for name in (STORE, disk.MANIFEST)):
        return _written(job, folder)
    for store in stores:
        _verify_store(store)
    try:
        found = job.task.open(folder.path)
        for opened in found.stores.values():
            opened.verify()
    except (KeyError, TypeError, AttributeError) as error:  # somebody wrote checksums that fit
        raise UsageError(f"{folder.path / 'data'}: its {STORE} are not as stores write them ({error!r}).") from None
    return found


def _verify_store(store: Path) -> None:
    """What is said of the tokens is as it was written; the tokens are then compared with it."""
    disk.read_json(store / STORE)
    if disk.checksum(store / STORE) not in disk.read_manifest(store).get(STORE, []):
        raise UsageError(
            f"{store / STORE}: is not as a store writes it (its checksum differs). Remove {store.parent} and resume: "
            "the tokens are then made again from the data."
        )
