"""Token ids on disk, memory-mapped: a corpus may be larger than memory, and opens at once."""

import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from saccade.data.files import Counts, OnLong, Pair
from saccade.data.parses import Heads, WordsOf, on_tokens, write_heads
from saccade.disk import sync_folder
from saccade.errors import SaccadeError, UsageError
from saccade.types import END

STORE = "store.json"
"""The file that says what is in a store; a store without it is not finished."""
FORMAT = 1
CHUNK_CHARACTERS = 4_000_000  # a chunk of very long lines must not fill the memory either
Ids = NDArray[Any]


class Tokenizer(Protocol):
    """What the store needs of a tokenizer."""

    @property
    def size(self) -> int: ...

    def encode_flat(self, texts: list[str], /) -> tuple[Ids, NDArray[np.int64]]: ...


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
class Store:
    """Encoded sentence pairs; each side ends in END."""

    folder: Path
    sources: Ragged
    targets: Ragged
    texts: Ragged | None
    """Source 0, target 0, source 1, … as UTF-8, where the store was written with `keep_text`.

    With a parse, each source and target is followed by the heads of the source's words.
    """
    parses: Ragged | None
    """Word and head of each source token (`types.Parse`), END included, where the store was written with a parse."""
    facts: dict[str, Any]
    """What `store.json` says: counts, sizes, checksums."""

    @staticmethod
    def open(folder: Path) -> "Store":
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
        try:
            return Store._opened(folder, facts)
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise UsageError(
                f"{folder}/store.json: is not as a store writes it ({error!r}). Prepare it again."
            ) from None

    @staticmethod
    def _opened(folder: Path, facts: dict[str, Any]) -> "Store":
        for name, file in facts["files"].items():
            found = (folder / name).stat().st_size if (folder / name).is_file() else "no"
            if found != file["bytes"]:
                raise UsageError(f"{folder / name}: has {found} bytes, not {file['bytes']}. Prepare the store again.")
        return Store(
            folder,
            _mapped(folder, "source", facts["dtype"]["source"]),
            _mapped(folder, "target", facts["dtype"]["target"]),
            _mapped(folder, "text", "uint8") if "text.bin" in facts["files"] else None,
            _mapped(folder, "parse", facts["dtype"]["parse"]) if "parse.bin" in facts["files"] else None,
            facts,
        )

    def verify(self) -> None:
        """Every byte is as it was written; else an error that names the file."""
        for name, file in self.facts["files"].items():
            with (self.folder / name).open("rb") as content:
                if hashlib.file_digest(content, "sha256").hexdigest() != file["sha256"]:
                    raise SaccadeError(
                        f"{self.folder / name}: is not the file that was written (its checksum differs). "
                        f"Remove {self.folder.parent} and resume: the tokens are then made again from the data."
                    )

    def __len__(self) -> int:
        return len(self.sources.offsets) - 1

    def source(self, i: int) -> Ids:
        return self.sources[i]

    def target(self, i: int) -> Ids:
        return self.targets[i]

    def text(self, i: int) -> tuple[str, str]:
        """The pair as it stood in the data."""
        each = 2 if self.parses is None else 3
        return self._text(each * i), self._text(each * i + 1)

    def heads(self, i: int) -> Heads:
        """The heads of the source's words, as they stood in the data."""
        if self.parses is None:
            raise UsageError(f"{self.folder}: was written without a parse. Prepare it again with one.")
        return tuple(map(int, self._text(3 * i + 2).split()))

    def _text(self, row: int) -> str:
        if self.texts is None:
            raise UsageError(f"{self.folder}: was written without the raw text. Prepare it again with keep_text.")
        return self.texts[row].tobytes().decode("utf-8")

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """(n, 2): tokens of source and target, END included."""
        both = np.empty((len(self), 2), dtype=np.int32)
        both[:, 0], both[:, 1] = np.diff(self.sources.offsets), np.diff(self.targets.offsets)
        return both

    def release(self) -> None:
        """Give back the memory of what was read so far: a large corpus is then never resident as a whole."""
        for side in (self.sources, self.targets, self.texts, self.parses):
            if side is not None:
                side.release()

    @property
    def max_length(self) -> int:
        """The most tokens a side may have, END not counted."""
        return int(self.facts["max_length"])

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


class _Column:
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


@dataclass(frozen=True)
class _Limit:
    """How long a side may be, and what happens to longer ones."""

    max_length: int
    on_long: OnLong
    counts: Counts

    def apply(self, pairs: Sequence[Pair], lengths_N2: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many tokens of each side are kept; none of a pair that is dropped: -1."""
        kept_N2 = np.minimum(lengths_N2, self.max_length)
        for i in np.flatnonzero((lengths_N2 > self.max_length).any(1)).tolist():
            match self.on_long:
                case "drop":
                    self.counts.note("too_long_dropped", pairs[i].place)
                    self.counts.kept -= 1
                    kept_N2[i] = -1
                case "cut":
                    self.counts.note("too_long_cut", pairs[i].place)
                case "refuse":
                    source, target = lengths_N2[i]
                    raise UsageError(
                        f"{pairs[i].place}: {source:,} source and {target:,} target tokens; "
                        f"data.max_length allows {self.max_length:,}. Raise it, or set data.on_long to cut or drop."
                    )
        return kept_N2


def write_store(
    folder: Path,
    pairs: Iterable[Pair | tuple[str, str]],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int,
    on_long: OnLong,
    counts: Counts,
    keep_text: bool = False,
    words_of: WordsOf | None = None,
    chunk: int = 10_000,
) -> Store:
    """Encode the pairs and write them, holding one chunk in memory at a time.

    With `words_of`, which tells the words of a source's tokens, the sources' parses are written, too; else left out.

    The folder appears when all of it is written, and not before; an older store there is replaced then. Pairs from a
    reader are in `counts` already; plain tuples are counted here.
    """
    limit = _Limit(max_length, on_long, counts)
    partial = folder.parent / f".{folder.name}-{uuid4().hex[:8]}"
    try:
        if folder.exists() and any(folder.iterdir()) and not (folder / STORE).exists():
            raise UsageError(f"{folder}: holds other files than a token store. Name another folder, or empty this one.")
        partial.mkdir(parents=True)
        try:
            some_pairs = _chunks(_counted(pairs, counts), chunk)
            tokenizers = (source_tokenizer, target_tokenizer)
            _write_facts(partial, _write(partial, some_pairs, tokenizers, limit, keep_text, words_of))
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
            sync_folder(folder.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise SaccadeError(f"{folder}: the token store cannot be written: {error.strerror or error}.") from error
    return Store.open(folder)


def _counted(pairs: Iterable[Pair | tuple[str, str]], counts: Counts) -> Iterator[Pair]:
    for number, pair in enumerate(pairs, start=1):
        if isinstance(pair, Pair):
            yield pair
        else:
            counts.lines += 1
            counts.kept += 1
            yield Pair(*pair, place=f"pair {number}")


def _chunks(pairs: Iterable[Pair], most: int) -> Iterator[list[Pair]]:
    held: list[Pair] = []
    characters = 0
    for pair in pairs:
        held.append(pair)
        characters += len(pair.source) + len(pair.target)
        if len(held) >= most or characters >= CHUNK_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held


def _write(
    folder: Path,
    chunks: Iterable[list[Pair]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    limit: _Limit,
    keep_text: bool,
    words_of: WordsOf | None,
) -> dict[str, Any]:
    dtypes = [np.dtype(np.uint16 if each.size <= 1 << 16 else np.uint32) for each in tokenizers]
    rows = 0
    with ExitStack() as files:
        source = _Column(folder, "source", dtypes[0], files)
        target = _Column(folder, "target", dtypes[1], files)
        text = _Column(folder, "text", np.dtype(np.uint8), files) if keep_text else None
        places = np.dtype(np.uint16 if limit.max_length < 1 << 16 else np.uint32)
        parse = None if words_of is None else _Column(folder, "parse", places, files)
        for pairs in chunks:
            encoded = [
                tokenizers[0].encode_flat([pair.source for pair in pairs]),
                tokenizers[1].encode_flat([pair.target for pair in pairs]),
            ]
            keep_N2 = limit.apply(pairs, np.stack([lengths for _, lengths in encoded], axis=1))
            kept = np.flatnonzero(keep_N2[:, 0] >= 0).tolist()
            rows += len(kept)
            for column, side, keep_N in zip((source, target), encoded, keep_N2.T, strict=True):
                column.append(*_ended(*side, keep_N, column.dtype))
            if text is not None:
                text.append(*_utf8([pairs[i] for i in kept], parsed=parse is not None))
            if parse is not None and words_of is not None:
                parse.append(*_parses(pairs, kept, *encoded[0], keep_N2[:, 0], words_of))
        if not rows:
            told = " ".join(limit.counts.sentences())
            raise UsageError(f"no usable sentence pair is left: {told} Check the files that data.train names.")
        written = source.finish() | target.finish()
        for more in (text, parse):
            written |= more.finish() if more else {}
    dtype = {"source": dtypes[0].name, "target": dtypes[1].name} | ({"parse": places.name} if words_of else {})
    return {
        "format": FORMAT,
        "pairs": rows,
        "tokens": {"source": source.end, "target": target.end},
        "dtype": dtype,
        "vocabulary": {"source": tokenizers[0].size, "target": tokenizers[1].size},
        "max_length": limit.max_length,
        "counts": limit.counts.to_dict(),
        "files": written,
        "fingerprint": hashlib.sha256("".join(each["sha256"] for each in written.values()).encode()).hexdigest(),
        "done": True,
    }


def _ended(
    values: Ids, lengths_N: NDArray[np.int64], keep_N: NDArray[np.int64], dtype: np.dtype[Any]
) -> tuple[Ids, NDArray[np.int64]]:
    """The rows end to end, each cut to what is kept of it and followed by END; and their lengths with it."""
    keep_N = keep_N + 1  # END included; 0 for a row that is dropped
    ended = np.insert(values.astype(dtype), np.cumsum(lengths_N), END)
    if not np.array_equal(keep_N, lengths_N + 1):
        place = np.arange(len(ended)) - np.repeat(np.cumsum(lengths_N + 1) - lengths_N - 1, lengths_N + 1)
        keep = np.repeat(keep_N, lengths_N + 1)
        ended[(place == keep - 1)] = END
        ended = ended[place < keep]
    return ended, keep_N[keep_N > 0]


def _utf8(pairs: Iterable[Pair], *, parsed: bool) -> tuple[Ids, NDArray[np.int64]]:
    rows = []
    for pair in pairs:
        rows += [pair.source.encode("utf-8"), pair.target.encode("utf-8")]
        if parsed:
            rows.append(write_heads(pair.heads or ()).encode())
    return np.frombuffer(b"".join(rows), dtype=np.uint8), np.array([len(row) for row in rows], dtype=np.int64)


def _parses(
    pairs: Sequence[Pair],
    kept: Sequence[int],
    ids: Ids,
    lengths_N: NDArray[np.int64],
    keep_N: NDArray[np.int64],
    words_of: WordsOf,
) -> tuple[Ids, NDArray[np.int64]]:
    """Word and head of each kept token and of END, two numbers a token, end to end; and how many numbers a row has."""
    starts = np.cumsum(lengths_N) - lengths_N
    rows = []
    for i in kept:
        source, _, place, heads = pairs[i]
        if heads is None:
            raise UsageError(f"{place}: comes without a dependency parse. Name the heads in data, see docs/data.md.")
        words = words_of(source, ids[starts[i] : starts[i] + keep_N[i]].tolist())
        rows.append(on_tokens(heads, words).flatten())
    values = np.concatenate(rows) if rows else np.empty(0, dtype=np.int64)
    return values, np.array([len(row) for row in rows], dtype=np.int64)


def _write_facts(folder: Path, facts: dict[str, Any]) -> None:
    temporary = folder / f"{STORE}.tmp"
    with temporary.open("w", encoding="utf-8") as file:
        json.dump(facts, file, ensure_ascii=False, indent=2)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / STORE)
    sync_folder(folder)
