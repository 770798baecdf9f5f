"""Columns of rows of unequal length on disk, memory-mapped: data may be larger than memory, and open at once.

A store is a folder: `store.json`, written last, says what is in it; each column is `name.bin`, its values end to end,
and `name.idx`, where its rows begin.
"""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from saccade.data.counts import Counts
from saccade.disk import sync_folder
from saccade.errors import Damaged, SaccadeError, UsageError

STORE = "store.json"
"""The file that says what is in a store; a store without it is not finished."""
FORMAT = 1
Ids = NDArray[Any]


@dataclass(frozen=True)
class Ragged:
    """Rows of unequal length, end to end in one array; row i lies between offsets i and i + 1."""

    values: Ids
    offsets: NDArray[np.int64]
    pages: tuple[mmap.mmap, ...] = ()
    """The mapped files behind the arrays."""

    def release(self) -> None:
        """Give back the memory of pages read so far; when needed again they mostly come from the system's cache."""
        if hasattr(mmap, "MADV_DONTNEED"):
            for each in self.pages:
                each.madvise(mmap.MADV_DONTNEED)

    def __getitem__(self, i: int) -> Ids:
        row: Ids = self.values[self.offsets[i] : self.offsets[i + 1]]
        return row

    def take(self, rows: NDArray[np.integer[Any]]) -> tuple[Ids, NDArray[np.int64]]:
        """The values of some rows, end to end, and the rows' lengths."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        before = np.cumsum(lengths) - lengths  # how many values the rows in front of each have
        at = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
        return self.values[at], lengths


@dataclass(frozen=True)
class Columns:
    """A finished store."""

    folder: Path
    facts: dict[str, Any]
    """What `store.json` says: counts, sizes, checksums."""

    @staticmethod
    def open(folder: Path) -> "Columns":
        try:
            facts = json.loads((folder / STORE).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise UsageError(
                f"{folder}: holds no finished token store (store.json is missing). Prepare it again."
            ) from None
        except (OSError, ValueError) as error:
            raise UsageError(f"{folder}/store.json: cannot be read: {error}. Prepare the store again.") from None
        if not isinstance(facts, dict) or facts.get("format") != FORMAT or not facts.get("done"):
            raise UsageError(f"{folder}: is not a finished token store of format {FORMAT}. Prepare it again.")
        opened = Columns(folder, facts)
        try:
            opened._check_files()
            _ = opened.columns, opened.counts
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"{folder}/store.json: is not as a store writes it ({error!r}). Prepare it again."
            ) from None
        return opened

    @property
    def _anew(self) -> str:
        return f"Remove {self.folder.parent} and resume: the tokens are then made again from the data."

    def _check_files(self) -> None:
        for name, file in self.facts["files"].items():
            path = self.folder / name
            found = path.stat().st_size if path.is_file() else "no"
            if found != file["bytes"]:
                raise Damaged(f"{path}: has {found} bytes, not {file['bytes']}.", self._anew)

    @cached_property
    def columns(self) -> dict[str, Ragged]:
        """By name; opened at once."""
        names = [name.removesuffix(".bin") for name in self.facts["files"] if name.endswith(".bin")]
        return {name: _mapped(self.folder, name, self.facts["dtype"].get(name, "uint8")) for name in names}

    def __getitem__(self, name: str) -> Ragged:
        return self.columns[name]

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def verify(self) -> None:
        """Every byte is as it was written; else an error that names the file."""
        for name, file in self.facts["files"].items():
            with (self.folder / name).open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != file["sha256"]:
                    raise Damaged(
                        f"{self.folder / name}: is not the file that was written (its checksum differs).", self._anew
                    )

    def release(self) -> None:
        """Give back the memory of what was read so far: a large corpus is then never resident as a whole."""
        for column in self.columns.values():
            column.release()

    @property
    def fingerprint(self) -> str:
        """Equal for stores of equal content."""
        return str(self.facts["fingerprint"])

    @property
    def counts(self) -> Counts:
        return Counts(**self.facts["counts"])


def _mapped(folder: Path, name: str, dtype: str) -> Ragged:
    values, pages = _map(folder / f"{name}.bin", np.dtype(dtype).newbyteorder("<"), scattered=True)
    offsets, more = _map(folder / f"{name}.idx", np.dtype("<i8"), scattered=False)
    return Ragged(values, offsets, pages + more)


def _map(path: Path, dtype: np.dtype[Any], *, scattered: bool) -> tuple[Ids, tuple[mmap.mmap, ...]]:
    if path.stat().st_size == 0:
        return np.empty(0, dtype=dtype), ()  # an empty file cannot be mapped
    with path.open("rb") as file:
        pages = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if scattered and hasattr(mmap, "MADV_RANDOM"):  # batches are drawn from everywhere: reading ahead is wasted memory
        pages.madvise(mmap.MADV_RANDOM)
    return np.frombuffer(pages, dtype=dtype), (pages,)


class Column:
    """One ragged array on its way to disk: `name.bin` and `name.idx`."""

    def __init__(self, folder: Path, name: str, dtype: np.dtype[Any], files: ExitStack) -> None:
        self.dtype, self.end = dtype.newbyteorder("<"), 0
        self.files = {each: files.enter_context((folder / each).open("wb")) for each in (f"{name}.bin", f"{name}.idx")}
        self.hashes = {each: hashlib.sha256() for each in self.files}
        self._write(f"{name}.idx", np.zeros(1, dtype="<i8"))
        self.name = name

    def append(self, values: Ids, lengths: NDArray[np.int64]) -> None:
        self._write(f"{self.name}.bin", np.ascontiguousarray(values, dtype=self.dtype))
        offsets = self.end + np.cumsum(lengths)
        self._write(f"{self.name}.idx", offsets.astype("<i8"))
        self.end += int(lengths.sum())

    def _write(self, name: str, array: Ids) -> None:
        content = array.tobytes()
        self.files[name].write(content)
        self.hashes[name].update(content)

    def finish(self) -> dict[str, dict[str, Any]]:
        for file in self.files.values():
            file.flush()
            os.fsync(file.fileno())
        return {name: {"bytes": f.tell(), "sha256": self.hashes[name].hexdigest()} for name, f in self.files.items()}


class Writer:
    """A store on its way to disk: columns to append to, in a folder that nobody sees yet."""

    def __init__(self, folder: Path, dtypes: Mapping[str, Any], files: ExitStack) -> None:
        self.columns = {name: Column(folder, name, np.dtype(dtype), files) for name, dtype in dtypes.items()}
        self.facts: dict[str, Any] = {}
        """What else `store.json` shall say."""

    def __getitem__(self, name: str) -> "Column":
        return self.columns[name]


@contextmanager
def writing(folder: Path, dtypes: Mapping[str, Any]) -> Iterator[Writer]:
    """A store with these columns.

    The folder appears when all of it is written, and not before; an older store there is replaced then.
    """
    partial = folder.parent / f".{folder.name}-{uuid4().hex[:8]}"
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / STORE).exists():
            raise UsageError(f"{folder}: holds other files than a token store. Name another folder, or empty this one.")
        partial.mkdir(parents=True)
        try:
            with ExitStack() as files:
                writer = Writer(partial, dtypes, files)
                yield writer
                written: dict[str, dict[str, Any]] = {}
                for column in writer.columns.values():
                    written |= column.finish()
            _write_facts(partial, _facts(dtypes, writer.facts, written))
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise SaccadeError(f"{folder}: the token store cannot be written: {error.strerror or error}.") from error


def _facts(dtypes: Mapping[str, Any], more: Mapping[str, Any], written: dict[str, dict[str, Any]]) -> dict[str, Any]:
    sums = "".join(each["sha256"] for each in written.values())
    return {
        "format": FORMAT,
        **more,
        "dtype": {name: np.dtype(dtype).name for name, dtype in dtypes.items()},
        "files": written,
        "fingerprint": hashlib.sha256(sums.encode()).hexdigest(),
        "done": True,
    }


def ids_dtype(size: int) -> str:
    """The smallest type that holds the ids of a vocabulary of this size."""
    return "uint16" if size <= 1 << 16 else "uint32"


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    temporary = folder / f"{STORE}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(facts, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / STORE)
    sync_folder(folder)
