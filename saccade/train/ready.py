"""Everything a run needs before its first update: recipe, tokenizers, tokens and model, found or made in its folder."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saccade import checkpoint, disk
from saccade.checkpoint import RunFolder
from saccade.config import plain, to_yaml
from saccade.data.splits import DataConfig
from saccade.data.store import STORE
from saccade.errors import UsageError
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.text import TextConfig, TextPair
from saccade.train.environment import environment
from saccade.train.numerics import seed_everything
from saccade.train.prepare import Prepared as Data
from saccade.train.prepare import learn_text, prepare, reopen
from saccade.train.settings import TrainConfig


@dataclass(frozen=True)
class Job:
    """What is to be trained."""

    task: str
    data: DataConfig
    text: TextConfig
    model: TranslatorConfig
    train: TrainConfig
    seed: int
    decode: dict[str, Any]
    """Kept with the model for those who use it; training does not read it."""
    recipe: dict[str, Any]
    """The whole resolved recipe, as it is saved."""
    base: Path
    """Where relative paths are seen from."""


def made_ready(job: Job, folder: RunFolder) -> tuple[Data, Translator]:
    """Data and model. A new run begins, and an older one in its place goes, once nothing in the recipe can fail."""
    folder.clean()
    if not folder.fresh:
        folder.verify_recipe()
    data = _reopen(job, folder) if folder.begun else _prepared(job, folder)
    seed_everything(job.seed, 0)
    model = build_translator(job.model, data.text.source.size, data.text.target.size)
    if not folder.begun:
        vocabulary = {"source": data.text.source.size, "target": data.text.target.size}
        facts = {"format": checkpoint.FORMAT, "task": job.task, "model": plain(job.model), "text": plain(job.text)}
        folder.begin(facts | {"decode": job.decode, "vocabulary": vocabulary})
    return data, model


def _prepared(job: Job, folder: RunFolder) -> Data:
    _write_recipe(job, folder)
    facts = environment() | {"base": str(job.base)}
    disk.write_file(folder.path / checkpoint.ENVIRONMENT, disk.sealed_json(facts))
    pair = learn_text(job.data, job.text, base=job.base, folder=folder.path, seed=job.seed)
    return _tokens(job, folder, pair)


def _write_recipe(job: Job, folder: RunFolder) -> None:
    path, content = folder.path / checkpoint.RECIPE, disk.sealed(to_yaml(job.recipe)).encode()
    if not path.exists() or path.read_bytes() != content:
        disk.write_file(path, content)


def _tokens(job: Job, folder: RunFolder, pair: TextPair) -> Data:
    """The data as tokens, made afresh; a manifest beside each store says that it is whole."""
    parsed = job.model.encoder.reads_parse
    data = prepare(job.data, job.text, pair, base=job.base, folder=folder.path, parsed=parsed)
    for store in (data.train, data.valid):
        manifest = {STORE: [disk.checksum(store.folder / STORE)]}
        disk.write_file(store.folder / disk.MANIFEST, disk.to_json(manifest))
    return data


def _reopen(job: Job, folder: RunFolder) -> Data:
    """What the run read before. Its tokenizers stay as they are even where the tokens must be made again."""
    folder.verify()
    data = _stores(job, folder)
    _write_recipe(job, folder)
    return data


def _stores(job: Job, folder: RunFolder) -> Data:
    """The tokens that were made before, or, where they are gone, those of the same data."""
    stores = [folder.path / "data" / split for split in ("train", "valid")]
    if not all((store / name).exists() for store in stores for name in (STORE, disk.MANIFEST)):
        return _tokens(job, folder, TextPair.load(folder.path))
    for store in stores:
        _verify_store(store)
    try:
        found = reopen(folder.path)
    except (KeyError, TypeError, AttributeError) as error:  # somebody wrote checksums that fit
        raise UsageError(f"{folder.path / 'data'}: its {STORE} are not as stores write them ({error!r}).") from None
    return found or _tokens(job, folder, TextPair.load(folder.path))


def _verify_store(store: Path) -> None:
    """What is said of the tokens is as it was written; `reopen` then compares the tokens with it."""
    disk.read_json(store / STORE)
    if disk.checksum(store / STORE) not in disk.read_manifest(store).get(STORE, []):
        raise UsageError(
            f"{store / STORE}: is not as a store writes it (its checksum differs). Remove {store.parent} and resume: "
            "the tokens are then made again from the data."
        )
