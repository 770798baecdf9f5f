"""The run folder: what a training leaves behind, saved all or nothing and loaded only when whole.

    config.json  model.safetensors  tokenizer.json  manifest.json      what a loader reads, and its checksums
    train.yaml  metrics.jsonl  environment.json  README.md              how it came about
    checkpoints/step-N/{model,optimizer}.safetensors, state.json, manifest.json

A folder appears by a rename when every file in it is written, flushed and read back; nothing is ever pickled.
"""

import hashlib
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as save_tensors
from torch import Tensor

from saccade.config import Section, flatten, plain
from saccade.disk import (
    MANIFEST,
    TEMPORARY,
    check_named,
    checksum,
    flushed_checksum,
    read_manifest,
    read_sealed_json,
    sync_folder,
    to_json,
    verify,
    verify_against,
    verify_sealed,
    write_file,
    write_flushed,
)
from saccade.disk import read_json as read_json
from saccade.disk import read_tensors as read_tensors
from saccade.errors import SaccadeError, UsageError
from saccade.models.build import build_model, settings_of
from saccade.models.trainable import Trainable
from saccade.run_paths import (
    CHECKPOINTS,
    STEP,
    Located,
    is_bare,
    is_run,
    located,
    no_checkpoint,
    no_run,
    run_of,
    update_of,
)
from saccade.run_paths import ENVIRONMENT as ENVIRONMENT
from saccade.run_paths import RECIPE as RECIPE
from saccade.text import TextPair
from saccade.weights import Undrawn, check_fit, kept, on_cpu
from saccade.weights import model_tensors as model_tensors
from saccade.weights import restore_model as restore_model

try:
    import fcntl
except ImportError:  # not on Windows, where a run folder is not locked
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
MODEL, CONFIG = "model.safetensors", "config.json"
METRICS, CARD = "metrics.jsonl", "README.md"
OPTIMIZER, STATE = "optimizer.safetensors", "state.json"
DATA = "data"
MADE_FROM = f"{DATA}/made-from.json"
FILES = "files"
"""In config.json: the names of the files beside it that belong to the model."""
AVERAGE = "/average"
"""Behind the name of a weight: its moving average, saved beside the optimiser's memory."""
MEAN = "/mean"
"""Behind the name of a weight: the mean that NT-ASGD keeps of it, in the optimiser's memory."""
ASIDE = ".old-"
"""Before the name of a checkpoint that waits until the one in its place is there."""


@dataclass(frozen=True)
class Checkpoint:
    """One complete, verified `step-N` folder."""

    path: Path
    update: int
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.path / f"{name}.safetensors")


def recorded_base(path: Path) -> Path:
    """Where a run's relative paths were seen from when it began; here, where that place is not known or gone.

    Of a checkpoint: its run's.
    """
    noted_in = run_of(path) / ENVIRONMENT
    noted = read_sealed_json(noted_in).get("base") if noted_in.is_file() else None
    return Path(noted) if isinstance(noted, str) and Path(noted).is_dir() else Path.cwd()


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / CHECKPOINTS
        at = Path(os.path.abspath(path))  # the name of `.` is its folder's
        self.replaced = at.parent / f".{at.name}.replaced"
        """Where an older run waits until the one that replaces it has begun."""
        self.fresh = False
        """Made by this process, not found."""

    @staticmethod
    def create(path: Path, *, overwrite: bool) -> "RunFolder":
        if path.exists() and not path.is_dir():
            raise UsageError(f"{path}: is a file, not a folder. Name another with --out.")
        folder = RunFolder(path)
        if path.exists():
            with folder.locked():  # else a run that is just being prepared would be taken for a killed one
                folder._bring_back()
        else:
            folder._bring_back()
        if path.exists() and not is_bare(path):
            if not overwrite:
                raise UsageError(
                    f"{path}: is not empty. Continue that run with --resume, replace it with --overwrite, "
                    "or name another folder with --out."
                )
            if not is_run(path):
                raise UsageError(f"{path}: is not empty and is no run folder; --overwrite replaces runs alone.")
        try:
            if path.exists() and not is_bare(path):
                with folder.locked():
                    path.rename(folder.replaced)
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be made: {error.strerror or error}. Name another with --out.") from None
        folder.fresh = True
        return folder

    def _bring_back(self) -> None:
        """Settle what a replacement left that was killed: the older run comes back unless the new one had begun."""
        if self.replaced.exists() and self.begun:
            shutil.rmtree(self.replaced)
        elif self.replaced.exists():
            shutil.rmtree(self.path, ignore_errors=True)
            self.replaced.rename(self.path)

    def abandon(self) -> None:
        """The run cannot begin: leave the place as it was found."""
        if self.fresh and not self.begun:
            shutil.rmtree(self.path, ignore_errors=True)
            self._bring_back()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Only one process at a time trains in a folder; the lock goes with the process, however that ends."""
        handle = os.open(self.path, os.O_RDONLY)
        try:
            self._lock(handle)
            yield
        finally:
            os.close(handle)

    def _lock(self, handle: int) -> None:
        try:
            if fcntl is not None:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(
                f"{self.path}: another process trains in it. Wait for it to end, or name another folder with --out."
            ) from None

    @staticmethod
    def open(path: Path) -> "RunFolder":
        if not is_run(path) and not (path / CONFIG).is_file():
            raise no_run(path, f"it has no {CONFIG}")
        return RunFolder(path)

    def begin(self, config: Mapping[str, Any], files: Sequence[str]) -> None:
        """Note the checksums of what will not change again, then write config.json: the run has begun.

        `files`: those beside it that belong to the model, as its tokenizers.
        """
        content = to_json({**config, FILES: list(files)}).encode()
        manifest = {CONFIG: [hashlib.sha256(content).hexdigest()]}
        for name in files:
            manifest[name] = [flushed_checksum(self.path / name)]
        write_file(self.path / MANIFEST, to_json(manifest))
        write_file(self.path / CONFIG, content)
        shutil.rmtree(self.replaced, ignore_errors=True)

    @property
    def begun(self) -> bool:
        return (self.path / CONFIG).exists()

    def verify(self) -> None:
        """What a loader would read is whole, as far as it is there."""
        manifest = read_manifest(self.path)
        if not (self.path / MODEL).exists():
            manifest.pop(MODEL, None)  # a run killed while it published its first model had only announced it
        verify_against(self.path, manifest, (CONFIG,))
        there = (MODEL,) if (self.path / MODEL).exists() else ()
        check_named(self.path, manifest, (*files_of(self.path), *there))  # which files those are, config.json says

    def verify_recipe(self) -> None:
        """The recipe is the one that was saved: one changed digit of a rate would be another training."""
        verify_sealed(self.path / RECIPE)

    def clean(self) -> None:
        """Remove what a killed save left half done, and bring back a checkpoint that was about to be replaced."""
        for aside in self.checkpoints.glob(f"{ASIDE}step-*"):
            final = self.checkpoints / aside.name.removeprefix(ASIDE)
            _remove(aside) if final.exists() else aside.rename(final)
        for folder in (self.path, self.checkpoints):
            for left in folder.glob(TEMPORARY + "*"):
                _remove(left)

    def save_checkpoint(
        self, update: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: Mapping[str, Any]
    ) -> Path:
        """A whole `step-N` folder in its place, or an error and everything as it was."""
        final, temporary, aside = (self.checkpoints / f"{front}step-{update}" for front in ("", TEMPORARY, ASIDE))
        try:
            if temporary.exists():
                shutil.rmtree(temporary)
            temporary.mkdir(parents=True)
            sums = {
                MODEL: write_flushed(temporary / MODEL, save_tensors(on_cpu(model), {"format": "pt"})),
                OPTIMIZER: write_flushed(temporary / OPTIMIZER, save_tensors(on_cpu(optimizer), {"format": "pt"})),
                STATE: write_flushed(temporary / STATE, to_json(state).encode()),
            }
            manifest = {name: [each] for name, each in sums.items()}
            write_flushed(temporary / MANIFEST, to_json(manifest).encode())
            sync_folder(temporary)
            if final.exists():  # it may be the only one: it goes when the new one is there
                shutil.rmtree(aside, ignore_errors=True)
                final.rename(aside)
            temporary.rename(final)
            sync_folder(self.checkpoints)
            shutil.rmtree(aside, ignore_errors=True)
        except OSError as error:
            if aside.exists() and not final.exists():
                with suppress(OSError):  # `clean` brings it back where we cannot
                    aside.rename(final)
            shutil.rmtree(temporary, ignore_errors=True)
            raise SaccadeError(
                f"{final}: the checkpoint cannot be written: {error.strerror or error}. Earlier ones are intact; "
                "free some space and continue with --resume."
            ) from None
        return final

    def steps(self) -> list[Path]:
        """Checkpoint folders, oldest first."""
        found = {update: path for path in self.checkpoints.glob(f"{STEP}*") if (update := update_of(path)) is not None}
        return [found[update] for update in sorted(found)]

    @staticmethod
    def verify_checkpoint(path: Path) -> None:
        verify(path, (MODEL, OPTIMIZER, STATE))

    def prune(self, keep: int, spare: Collection[Path] = ()) -> None:
        """Remove all but the last `keep` checkpoints and those to be spared."""
        for path in self.steps()[:-keep]:
            if path not in spare:
                with suppress(OSError):  # a checkpoint too many is no reason to end a training
                    _remove(path.rename(path.with_name(TEMPORARY + path.name)))  # never half of one under its name

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and a remark for each newer one that is not."""
        remarks = []
        for path in reversed(self.steps()):
            try:
                self.verify_checkpoint(path)
                state = read_json(path / STATE)
            except SaccadeError as error:
                remarks.append(f"{error} An older checkpoint is used.")
                continue
            return Checkpoint(path, update_of(path) or 0, state), remarks
        if remarks:
            raise SaccadeError(f"{self.checkpoints}: no checkpoint is whole.\n" + "\n".join(remarks))
        return None, []

    def publish(self, model: Mapping[str, Tensor]) -> None:
        """Make these weights the run's model.

        The manifest first admits the old and the new file, then the file is replaced, then the old one is struck out:
        at every moment in between the folder loads.
        """
        content = save_tensors(on_cpu(model), {"format": "pt"})
        new = hashlib.sha256(content).hexdigest()
        manifest = read_manifest(self.path)
        there = checksum(self.path / MODEL) if (self.path / MODEL).exists() else None
        before = [known for known in manifest.pop(MODEL, []) if known == there and known != new]
        write_file(self.path / MANIFEST, to_json(manifest | {MODEL: [*before, new]}))
        write_file(self.path / MODEL, content)
        write_file(self.path / MANIFEST, to_json(manifest | {MODEL: [new]}))


def _remove(path: Path) -> None:
    """A file, a folder, or a link to either, which leaves what it leads to."""
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def average(checkpoints: list[Path]) -> dict[str, Tensor]:
    """The mean of the checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read_tensors(path / MODEL).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def files_of(path: Path) -> tuple[str, ...]:
    """What beside config.json and the weights belongs to the run's model."""
    files = read_json(path / CONFIG).get(FILES)
    if not isinstance(files, list) or not all(isinstance(name, str) for name in files):
        raise SaccadeError(f"{path / CONFIG}: is not as a training writes it: {FILES} must be a list of names.")
    return tuple(files)


@dataclass(frozen=True)
class Loaded:
    """A model ready for use, and what its folder says of it."""

    model: Trainable
    config: dict[str, Any]
    path: Path
    """The run's folder, whose tokenizers are the model's."""
    device: torch.device
    weights: Path
    """Where its weights are: in that folder, or in one of its checkpoints. By it messages name the model."""

    @property
    def task(self) -> str:
        return str(self.config["task"])

    @property
    def sizes(self) -> dict[str, int]:
        """How many ids each vocabulary has."""
        return dict(self.config["vocabulary"])

    @property
    def text(self) -> TextPair:
        """Its tokenizers, where its task has those of two sides."""
        text = TextPair.load(self.path)
        if {"source": text.source.size, "target": text.target.size} != self.sizes:
            raise SaccadeError(
                f"{self.path}: its tokenizers have {text.source.size} and {text.target.size} tokens, its model "
                f"{self.sizes}: they are not of one run."
            )
        return text


def load(path: Path, device: torch.device) -> Loaded:
    """The model of a run, or of one of its checkpoints, RUN/checkpoints/step-N.

    Every file is checked against the manifest before anything is made of it.
    """
    at = located(path)
    run, origin = at.run, at.weights / MODEL
    RunFolder.open(run)
    if at.step is not None:
        _verify_step(at.weights)
    elif not origin.is_file():
        raise UsageError(f"{path}: holds no model yet (no {MODEL}). Continue its training with --resume.")
    _verify(at)
    config = read_json(run / CONFIG)
    if config.get("format") != FORMAT:
        raise UsageError(f"{run / CONFIG}: format {config.get('format')!r} is not one this version reads ({FORMAT}).")
    check_named(run, read_manifest(run), files_of(run))  # config.json says which those are: known only now
    tensors = read_tensors(origin) if at.step is None else _in_place(at.weights)
    settings, sizes = _checked(config, run)
    _check_size(config["task"], settings, sizes, tensors, run / CONFIG, origin)
    with Undrawn():
        model = build_model(config["task"], settings, sizes)
    restore_model(model, tensors, str(origin))
    return Loaded(model.to(device).eval(), config, run, device, at.weights)


def _verify_step(step: Path) -> None:
    if not step.is_dir():
        raise no_checkpoint(step)
    RunFolder.verify_checkpoint(step)


def _verify(at: Located) -> None:
    """What the run's manifest names; for a checkpoint not the run's own model, which may be damaged or gone."""
    if at.step is None:
        return verify(at.run, (CONFIG, MODEL))
    manifest = {name: sums for name, sums in read_manifest(at.run).items() if name != MODEL}
    return verify_against(at.run, manifest, (CONFIG,))


def _in_place(step: Path) -> dict[str, Tensor]:
    """A checkpoint's weights as they were validated: where there is a moving average, or the optimiser's mean, that."""
    tensors, memory = read_tensors(step / MODEL), read_tensors(step / OPTIMIZER)
    for kind in (MEAN, AVERAGE):
        tensors |= {name.removesuffix(kind): each for name, each in memory.items() if name.endswith(kind)}
    return tensors


def _checked(config: Mapping[str, Any], path: Path) -> tuple[Section, dict[str, int]]:
    """The model's settings and the sizes of its vocabularies."""
    tree, sizes = config.get("model") or {}, config.get("vocabulary")
    counts = isinstance(sizes, dict) and all(isinstance(size, int) and size >= 0 for size in sizes.values())
    if not isinstance(tree, dict) or not counts or not isinstance(sizes, dict):
        raise SaccadeError(
            f"{path / CONFIG}: is not as a training writes it: model must be a section, vocabulary sizes by name."
        )
    return settings_of(config.get("task"), tree, f"{path / CONFIG}: model"), sizes


def _check_size(
    task: str, settings: Section, sizes: Mapping[str, int], tensors: Mapping[str, Tensor], config: Path, origin: Path
) -> None:
    """A model is built only where its weights are at hand: a few characters in a file must not fill the memory."""
    for name, value in flatten(plain(settings)).items():
        if name.endswith(".layers") and value > len(tensors):
            raise SaccadeError(f"{config}: model.{name} is {value}; {origin} holds {len(tensors)} tensors.")
    try:
        with Undrawn(), torch.device("meta"):  # shapes alone
            shapes = build_model(task, settings, sizes)
    except (RuntimeError, TypeError, OverflowError, KeyError) as error:  # sizes beyond what can be counted, or missing
        told = str(error).partition("\n")[0]
        raise SaccadeError(f"{config}: no such model can be built: {told}.") from None
    check_fit(kept(shapes), tensors, str(origin))
