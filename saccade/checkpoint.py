"""The run folder: what a training leaves behind, saved all or nothing and loaded only when whole.

    config.json  model.safetensors  tokenizer.json  manifest.json      what a loader reads, and its checksums
    train.yaml  metrics.jsonl  environment.json  README.md              how it came about
    checkpoints/step-N/{model,optimizer}.safetensors, state.json, manifest.json

A folder appears by a rename when every file in it is written, flushed and read back; nothing is ever pickled.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from saccade.errors import SaccadeError, UsageError
from saccade.models.build import build_translator
from saccade.models.translator import Translator, TranslatorConfig
from saccade.text import TextPair

FORMAT = 1
MODEL, CONFIG, MANIFEST, RECIPE = "model.safetensors", "config.json", "manifest.json", "train.yaml"
METRICS, ENVIRONMENT, CARD = "metrics.jsonl", "environment.json", "README.md"
TEMPORARY = ".tmp-"


def model_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Every weight under one name, tied ones once."""
    return {name: parameter.detach().contiguous() for name, parameter in model.named_parameters()}


def restore_model(model: nn.Module, tensors: Mapping[str, Tensor], origin: str) -> None:
    wanted = dict(model.named_parameters())
    if wanted.keys() != tensors.keys():
        missing, extra = sorted(wanted.keys() - tensors.keys()), sorted(tensors.keys() - wanted.keys())
        raise SaccadeError(f"{origin}: is not of this model: missing {missing[:3]}, unknown {extra[:3]}.")
    with torch.no_grad():
        for name, parameter in wanted.items():
            if parameter.shape != tensors[name].shape:
                raise SaccadeError(
                    f"{origin}: {name} has shape {tuple(tensors[name].shape)}, the model {tuple(parameter.shape)}."
                )
            parameter.copy_(tensors[name])


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _write(path: Path, content: bytes) -> str:
    """Write, flush to the disk, read back; the checksum."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    expected = hashlib.sha256(content).hexdigest()
    if _checksum(path) != expected:
        raise SaccadeError(f"{path}: reads back other than it was written; the disk cannot be trusted.")
    return expected


def write_file(path: Path, content: str | bytes) -> str:
    """Put a whole file in the place of an older one, or leave the older one as it was; the checksum."""
    temporary = path.with_name(TEMPORARY + path.name)
    try:
        checksum = _write(temporary, content.encode() if isinstance(content, str) else content)
        temporary.replace(path)
        _sync_folder(path.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise SaccadeError(
            f"{path}: cannot be written: {error.strerror or error}. What was there before is intact."
        ) from None
    return checksum


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def to_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


@dataclass(frozen=True)
class Checkpoint:
    """One complete, verified `step-N` folder."""

    path: Path
    update: int
    state: dict[str, Any]

    def tensors(self, name: str) -> dict[str, Tensor]:
        return read_tensors(self.path / f"{name}.safetensors")


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_tensors(path.read_bytes())
    except (OSError, SafetensorError) as error:
        raise SaccadeError(f"{path}: cannot be read: {error}.") from None


def read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise SaccadeError(f"{path}: cannot be read: {error}.") from None
    if not isinstance(value, dict):
        raise SaccadeError(f"{path}: holds no JSON object.")
    return value


def verify(folder: Path) -> None:
    """Every file the manifest names is there, bit for bit; else an error that names the first that is not."""
    for name, checksums in read_json(folder / MANIFEST).items():
        path = folder / name
        if Path(name).name != name or not path.is_file():
            raise SaccadeError(f"{path}: is missing, though {MANIFEST} names it.")
        if _checksum(path) not in checksums:
            raise SaccadeError(f"{path}: is not the file that was saved (its checksum differs).")


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"

    @staticmethod
    def create(path: Path, *, overwrite: bool) -> "RunFolder":
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            if not overwrite:
                raise UsageError(
                    f"{path}: is not empty. Continue that run with --resume, replace it with --overwrite, "
                    "or name another folder with --out."
                )
            if path.is_dir() and not (path / RECIPE).exists():
                raise UsageError(f"{path}: is not empty and is no run folder; --overwrite replaces runs alone.")
            shutil.rmtree(path)
        folder = RunFolder(path)
        try:
            folder.checkpoints.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: cannot be made: {error.strerror or error}. Name another with --out.") from None
        return folder

    @staticmethod
    def open(path: Path) -> "RunFolder":
        if not (path / RECIPE).is_file() and not (path / CONFIG).is_file():
            raise UsageError(
                f"{path}: is no run folder (it has no {CONFIG}). `saccade runs list` shows those there are."
            )
        return RunFolder(path)

    def clean(self) -> None:
        """Remove what a killed save left half done."""
        for folder in (self.path, self.checkpoints):
            for left in folder.glob(TEMPORARY + "*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()

    def save_checkpoint(
        self, update: int, model: Mapping[str, Tensor], optimizer: Mapping[str, Tensor], state: Mapping[str, Any]
    ) -> Path:
        final, temporary = self.checkpoints / f"step-{update}", self.checkpoints / f"{TEMPORARY}step-{update}"
        try:
            if temporary.exists():
                shutil.rmtree(temporary)
            temporary.mkdir(parents=True)
            sums = {
                MODEL: _write(temporary / MODEL, save_tensors(_on_cpu(model), {"format": "pt"})),
                "optimizer.safetensors": _write(
                    temporary / "optimizer.safetensors", save_tensors(_on_cpu(optimizer), {"format": "pt"})
                ),
                "state.json": _write(temporary / "state.json", to_json(state).encode()),
            }
            manifest = {name: [checksum] for name, checksum in sums.items()}
            _write(temporary / MANIFEST, to_json(manifest).encode())
            _sync_folder(temporary)
            if final.exists():
                shutil.rmtree(final)
            temporary.rename(final)
            _sync_folder(self.checkpoints)
        except OSError as error:
            shutil.rmtree(temporary, ignore_errors=True)
            raise SaccadeError(
                f"{final}: the checkpoint cannot be written: {error.strerror or error}. Earlier ones are intact; "
                "free some space and continue with --resume."
            ) from None
        return final

    def steps(self) -> list[Path]:
        """Checkpoint folders, oldest first."""
        found = [path for path in self.checkpoints.glob("step-*") if path.name[5:].isdigit()]
        return sorted(found, key=lambda path: int(path.name[5:]))

    def prune(self, keep: int) -> None:
        for path in self.steps()[:-keep]:
            shutil.rmtree(path)

    def latest(self) -> tuple[Checkpoint | None, list[str]]:
        """The newest checkpoint that is whole, and a remark for each newer one that is not."""
        remarks = []
        for path in reversed(self.steps()):
            try:
                verify(path)
                state = read_json(path / "state.json")
            except SaccadeError as error:
                remarks.append(f"{error} An older checkpoint is used.")
                continue
            return Checkpoint(path, int(path.name[5:]), state), remarks
        if remarks:
            raise SaccadeError(f"{self.checkpoints}: no checkpoint is whole.\n" + "\n".join(remarks))
        return None, []

    def publish(self, model: Mapping[str, Tensor]) -> None:
        """Make these weights the run's model.

        The manifest first admits the old and the new file, then the file is replaced, then the old one is struck out:
        at every moment in between the folder loads.
        """
        content = save_tensors(_on_cpu(model), {"format": "pt"})
        checksum = hashlib.sha256(content).hexdigest()
        names = [name for name in (CONFIG, "tokenizer.json", "tokenizer_target.json") if (self.path / name).exists()]
        manifest = {name: [_checksum(self.path / name)] for name in names}
        before = [_checksum(self.path / MODEL)] if (self.path / MODEL).exists() else []
        write_file(self.path / MANIFEST, to_json(manifest | {MODEL: [*before, checksum]}))
        write_file(self.path / MODEL, content)
        write_file(self.path / MANIFEST, to_json(manifest | {MODEL: [checksum]}))


def _on_cpu(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().to("cpu").contiguous() for name, tensor in tensors.items()}


def average(checkpoints: list[Path]) -> dict[str, Tensor]:
    """The mean of the checkpoints' weights, summed in float64."""
    total: dict[str, Tensor] = {}
    for path in checkpoints:
        for name, tensor in read_tensors(path / MODEL).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


@dataclass(frozen=True)
class Loaded:
    """A model ready for use, and what its folder says of it."""

    model: Translator
    text: TextPair
    config: dict[str, Any]
    path: Path
    device: torch.device


def load(path: Path, device: torch.device) -> Loaded:
    """The run's model. Every file is checked against the manifest before anything is made of it."""
    RunFolder.open(path)
    if not (path / MODEL).is_file():
        raise UsageError(f"{path}: holds no model yet (no {MODEL}). Continue its training with --resume.")
    verify(path)
    config = read_json(path / CONFIG)
    if config.get("format") != FORMAT:
        raise UsageError(f"{path / CONFIG}: format {config.get('format')!r} is not one this version reads ({FORMAT}).")
    text = TextPair.load(path)
    settings = TranslatorConfig.model_validate(config["model"])
    model = build_translator(settings, text.source.size, text.target.size)
    restore_model(model, read_tensors(path / MODEL), str(path / MODEL))
    return Loaded(model.to(device).eval(), text, config, path, device)
