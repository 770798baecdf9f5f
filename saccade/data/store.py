"""Encoded sentence pairs on disk."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from saccade.data.columns import STORE as STORE
from saccade.data.columns import Columns, Ids, Ragged, Writer, ids_dtype, writing
from saccade.data.files import Counts, OnLong, Pair
from saccade.data.parses import Heads, WordsOf, on_tokens, write_heads
from saccade.errors import UsageError
from saccade.types import END

CHUNK_CHARACTERS = 4_000_000  # a chunk of very long lines must not fill the memory either


class Tokenizer(Protocol):
    """What the store needs of a tokenizer."""

    @property
    def size(self) -> int: ...

    def encode_flat(self, texts: list[str], /) -> tuple[Ids, NDArray[np.int64]]: ...


@dataclass(frozen=True)
class Store:
    """Encoded sentence pairs; each side ends in END."""

    columns: Columns

    @staticmethod
    def open(folder: Path) -> "Store":
        columns = Columns.open(folder)
        if "source" not in columns or "target" not in columns:
            raise UsageError(f"{folder}: is no store of sentence pairs. Prepare it again.")
        return Store(columns)

    @property
    def folder(self) -> Path:
        return self.columns.folder

    @property
    def facts(self) -> dict[str, Any]:
        """What `store.json` says: counts, sizes, checksums."""
        return self.columns.facts

    @property
    def sources(self) -> Ragged:
        return self.columns["source"]

    @property
    def targets(self) -> Ragged:
        return self.columns["target"]

    @property
    def texts(self) -> Ragged | None:
        """Source 0, target 0, source 1, … as UTF-8, where the store was written with `keep_text`.

        With a parse, each source and target is followed by the heads of the source's words.
        """
        return self.columns.columns.get("text")

    @property
    def parses(self) -> Ragged | None:
        """Word and head of each source token (`types.Parse`), END included, where it was written with a parse."""
        return self.columns.columns.get("parse")

    def verify(self) -> None:
        """Every byte is as it was written; else an error that names the file."""
        self.columns.verify()

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
        self.columns.release()

    @property
    def max_length(self) -> int:
        """The most tokens a side may have, END not counted."""
        return int(self.facts["max_length"])

    @property
    def fingerprint(self) -> str:
        """Equal for stores of equal content."""
        return self.columns.fingerprint

    @property
    def counts(self) -> Counts:
        return self.columns.counts


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
    tokenizers = (source_tokenizer, target_tokenizer)
    dtypes = {"source": ids_dtype(source_tokenizer.size), "target": ids_dtype(target_tokenizer.size)}
    dtypes |= {"text": "uint8"} if keep_text else {}
    dtypes |= {"parse": ids_dtype(max_length)} if words_of is not None else {}
    with writing(folder, dtypes) as writer:
        _write(writer, _chunks(_counted(pairs, counts), chunk), tokenizers, limit, words_of)
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
    writer: Writer,
    chunks: Iterable[list[Pair]],
    tokenizers: tuple[Tokenizer, Tokenizer],
    limit: _Limit,
    words_of: WordsOf | None,
) -> None:
    rows = 0
    source, target = writer["source"], writer["target"]
    text, parse = writer.columns.get("text"), writer.columns.get("parse")
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
    writer.facts = {
        "rows": rows,
        "unit": "pairs",
        "tokens": {"source": source.end, "target": target.end},
        "vocabulary": {"source": tokenizers[0].size, "target": tokenizers[1].size},
        "max_length": limit.max_length,
        "counts": limit.counts.to_dict(),
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
