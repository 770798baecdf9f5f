"""Whether every file of a run folder that has a checksum is as it was saved; nothing is changed or made of it."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from saccade.checkpoint import (
    CONFIG,
    DATA,
    ENVIRONMENT,
    MADE_FROM,
    METRICS,
    MODEL,
    OPTIMIZER,
    RECIPE,
    STATE,
    RunFolder,
    files_of,
)
from saccade.data.columns import STORE
from saccade.disk import (
    ATTEMPTS,
    MANIFEST,
    Missing,
    checksum,
    is_inside,
    read_json,
    read_manifest,
    read_sealed_json,
    verify_file,
    verify_sealed,
)
from saccade.errors import SaccadeError

State = Literal["ok", "damaged", "missing"]


@dataclass(frozen=True)
class CheckedFile:
    name: str
    """Seen from the run folder."""
    state: State
    why: str = ""


@dataclass(frozen=True)
class Verified:
    """What was found in a run folder."""

    path: Path
    files: tuple[CheckedFile, ...]

    @property
    def ok(self) -> bool:
        return all(file.state == "ok" for file in self.files)

    @property
    def wrong(self) -> tuple[CheckedFile, ...]:
        return tuple(file for file in self.files if file.state != "ok")


def verify_run(path: Path) -> Verified:
    """Every file with a recorded checksum, one by one; a folder that is no run is refused.

    A training may go on meanwhile: as long as the folder changes under our eyes, we look again.
    """
    folder = RunFolder.open(path)
    for attempts_left in reversed(range(ATTEMPTS)):
        before = _standing(folder)
        found = Verified(path, tuple(_Look(path).everything(folder)))
        if found.ok or not attempts_left or _standing(folder) == before:
            break
    return found


def _standing(folder: RunFolder) -> tuple[object, ...]:
    """What changes while a run is trained."""
    manifest, log = folder.path / MANIFEST, folder.path / METRICS
    return (
        manifest.read_bytes() if manifest.is_file() else None,
        log.stat().st_size if log.is_file() else None,
        folder.steps(),
    )


@dataclass(frozen=True)
class _Look:
    run: Path

    def everything(self, folder: RunFolder) -> Iterator[CheckedFile]:
        if (self.run / CONFIG).exists() or (self.run / MANIFEST).exists():  # else the run was killed before it began
            yield from self._manifest(self.run, (CONFIG, *self._files()), announced=MODEL)
        if (self.run / RECIPE).exists():
            yield self._file(self.run / RECIPE, lambda: verify_sealed(self.run / RECIPE))
        if (self.run / ENVIRONMENT).exists():
            yield self._file(self.run / ENVIRONMENT, lambda: _ignore(read_sealed_json(self.run / ENVIRONMENT)))
        if (self.run / METRICS).exists():
            yield self._file(self.run / METRICS, lambda: _check_log(self.run / METRICS))
        if (origin := self.run / MADE_FROM).exists():
            yield self._file(origin, lambda: _ignore(read_sealed_json(origin)))
        for split in ("train", "valid", "vectors"):
            if (self.run / DATA / split).is_dir():
                yield from self._store(self.run / DATA / split)
        for step in folder.steps():
            yield from self._manifest(step, (MODEL, OPTIMIZER, STATE))

    def _files(self) -> tuple[str, ...]:
        """What config.json says belongs to the model; nothing, where it cannot be read: that is told by itself."""
        try:
            return files_of(self.run)
        except SaccadeError:
            return ()

    def _file(self, path: Path, check: Callable[[], None]) -> CheckedFile:
        name = str(path.relative_to(self.run))
        try:
            check()
        except Missing as error:
            return CheckedFile(name, "missing", _why(error, path))
        except (SaccadeError, OSError) as error:
            return CheckedFile(name, "damaged", _why(error, path))
        return CheckedFile(name, "ok")

    def _manifest(self, folder: Path, needed: tuple[str, ...], announced: str | None = None) -> Iterator[CheckedFile]:
        """A manifest and the files it names. One that is only `announced` may not be there yet."""
        named: dict[str, list[str]] = {}
        head = self._file(folder / MANIFEST, lambda: named.update(_read_manifest(folder)))
        yield head
        if head.state != "ok":
            return
        for name in needed:
            if name not in named:
                yield CheckedFile(self._name(folder, name), "damaged", f"is not in {MANIFEST}")
        for name, checksums in named.items():
            if name == announced and not (folder / name).exists():
                continue
            if Path(name).name != name:
                yield CheckedFile(
                    self._name(folder, MANIFEST), "damaged", f"names {name!r}, which is not in its folder"
                )
                continue
            yield self._file(folder / name, partial(verify_file, folder, name, checksums))

    def _store(self, folder: Path) -> Iterator[CheckedFile]:
        """A store of tokens: its manifest vouches for store.json, and that for the tokens."""
        listed = list(self._manifest(folder, (STORE,)))
        yield from listed
        if not all(file.state == "ok" for file in listed):
            return
        try:
            known = {name: facts["sha256"] for name, facts in read_json(folder / STORE)["files"].items()}
        except (SaccadeError, KeyError, TypeError, AttributeError) as error:
            yield CheckedFile(self._name(folder, STORE), "damaged", f"is not as a store writes it: {error!r}")
            return
        for name, sha256 in known.items():
            yield self._file(folder / name, partial(_check_tokens, folder, name, sha256))

    def _name(self, folder: Path, name: str) -> str:
        return str((folder / name).relative_to(self.run))


def _ignore(value: object) -> None:
    """What was read is of no interest, only that it could be."""


def _read_manifest(folder: Path) -> dict[str, list[str]]:
    if not (folder / MANIFEST).is_file():
        raise Missing("is missing")
    return read_manifest(folder)


def _check_tokens(folder: Path, name: str, known: str) -> None:
    if not is_inside(folder, name):
        raise Missing(f"is missing, though {STORE} names it")
    if checksum(folder / name) != known:
        raise SaccadeError("is not the file that was written (its checksum differs)")


def _check_log(path: Path) -> None:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                raise SaccadeError("its last line is torn; resuming cuts it off")
            try:
                whole = isinstance(json.loads(line), dict)
            except (ValueError, RecursionError):
                whole = False
            if not whole:
                raise SaccadeError(f"line {number} is no JSON object")


def _why(error: Exception, path: Path) -> str:
    """The error without the name of the file, which stands beside it."""
    return str(error).removeprefix(f"{path}: ").rstrip(".")
