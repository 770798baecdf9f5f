"""Pretrained word vectors: from a text file as GloVe, word2vec and fastText write it, or .npz, to the words of a model.

    the 0.418 0.24968 −0.41242 …        one word a line; a first line of two numbers (words, width) says how wide
    {"words": […], "vectors": (words, width)}           an .npz file; `words` may also be one text of lines

Some published files have words with spaces inside, as `. . .` or `at name@domain.com`: all that stands before the last
so many numbers is the word. But where its last part is a number, too, the line has too many of them and is refused.

A word of the model has the vector of that word in the file, else that of the word in small letters. The file is read as
a stream: what is not looked for takes no memory.
"""

import re
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from saccade.data.counts import Counts, many
from saccade.data.files import BOM, File, locate, raw_lines
from saccade.errors import UsageError

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    from saccade.data.columns import Columns


_SPECIALS = 4
_NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


@dataclass(frozen=True)
class Coverage:
    """How many words of the model the file has."""

    words: int
    exact: int
    lowercase: int
    """Found in small letters."""
    in_file: int
    repeated: int
    """Words of the model that stand in the file more than once; the first counts."""

    def sentence(self, name: str) -> str:
        share = 100 * (self.exact + self.lowercase) / max(1, self.words)
        told = (
            f"{name}: vectors for {self.exact + self.lowercase:,} of {many(self.words, 'word')} ({share:.1f} %), "
            f"{self.lowercase:,} of them in small letters; the file has {self.in_file:,}."
        )
        return told if not self.repeated else f"{told} Of {many(self.repeated, 'word')} that it has twice, the first."


@dataclass(frozen=True)
class Vectors:
    ids_N: "NDArray[np.int64]"
    """Which ids have a vector, rising."""
    rows_ND: "NDArray[np.float32]"
    coverage: Coverage

    @property
    def width(self) -> int:
        return int(self.rows_ND.shape[1])

    def fill(self, table: "torch.nn.Embedding", *, scale: float = 1.0, setting: str = "model.vectors") -> None:
        """Put them into a table; `scale`: what its rows are multiplied with when they are read."""
        import torch

        if self.width != table.embedding_dim:
            raise UsageError(
                f"{setting}: the file's vectors have {self.width} numbers, the model's token vectors "
                f"{table.embedding_dim}. Set the encoder's embedding (of a Transformer: its width) to {self.width}."
            )
        with torch.no_grad():
            rows_ND = torch.from_numpy(self.rows_ND).to(table.weight.device, table.weight.dtype)
            table.weight[torch.from_numpy(self.ids_N).to(table.weight.device)] = rows_ND / scale


def read_vectors(path: str, names: Sequence[str], *, base: Path) -> Vectors:
    """Those of the words a model has ids for; `names` has one an id, the specials first. A space before it is none."""
    import numpy as np

    file = locate(path, base)
    wanted = _Wanted.of(names)
    in_file = width = 0
    for word, numbers in _rows(file):
        in_file += 1
        if wanted.asks_for(word):
            row = numbers.read()
            wanted.take(word, row)
            width = len(row)
        else:
            width = width or numbers.width
    if not in_file:
        raise UsageError(f"{file.name}: holds no word vectors ({file.path}).")
    found = sorted(wanted.found)
    rows = np.stack([wanted.found[each] for each in found]) if found else np.zeros((0, width), dtype=np.float32)
    exact = len(wanted.exactly)
    coverage = Coverage(wanted.words, exact, len(found) - exact, in_file, wanted.repeated)
    return Vectors(np.array(found, dtype=np.int64), rows.astype(np.float32), coverage)


def vector_words(path: str, most: int, *, base: Path) -> Iterator[str]:
    """The first words of the file."""
    if most:
        for number, (word, _) in enumerate(_rows(locate(path, base)), start=1):
            yield word
            if number == most:
                return


class _Wanted:
    """The ids that words of the file are for."""

    def __init__(self, exact: Mapping[str, list[int]], lower: Mapping[str, list[int]], words: int) -> None:
        self.exact, self.lower, self.words = exact, lower, words
        self.found: dict[int, NDArray[np.float32]] = {}
        self.exactly: set[int] = set()
        self.repeated = 0

    @staticmethod
    def of(names: Sequence[str]) -> "_Wanted":
        exact: dict[str, list[int]] = {}
        lower: dict[str, list[int]] = {}
        own = range(_SPECIALS, len(names))
        for each in own:
            word = names[each].removeprefix(" ")
            exact.setdefault(word, []).append(each)
            lower.setdefault(word.lower(), []).append(each)
        return _Wanted(exact, lower, len(own))

    def asks_for(self, word: str) -> bool:
        return word in self.exact or word in self.lower

    def take(self, word: str, row: "NDArray[np.float32]") -> None:
        same = self.exact.get(word, ())
        self.repeated += any(each in self.exactly for each in same)
        for each in same:
            if each not in self.exactly:
                self.found[each] = row
                self.exactly.add(each)
        for each in self.lower.get(word, ()):
            self.found.setdefault(each, row)


class _Numbers(NamedTuple):
    """A vector of the file, not yet read."""

    values: Any
    width: int
    place: str

    def read(self) -> "NDArray[np.float32]":
        import numpy as np

        try:
            row = np.array(self.values.split() if isinstance(self.values, bytes) else self.values, dtype=np.float32)
        except ValueError as error:
            raise UsageError(f"{self.place}: a vector must be of numbers: {error}. Fix the line.") from None
        if not np.isfinite(row).all():
            raise UsageError(f"{self.place}: the vector holds a value that is no finite number. Fix the line.")
        return row


def _rows(file: File) -> Iterable[tuple[str, _Numbers]]:
    try:
        with open(file.path, "rb") as stream:
            is_npz = stream.read(4) == b"PK\x03\x04"  # by content, for names lie
    except OSError as error:
        raise UsageError(f"{file.name}: cannot be read: {error.strerror or error} ({file.path}).") from None
    return _npz_rows(file) if is_npz else _text_rows(file)


def _text_rows(file: File) -> Iterator[tuple[str, _Numbers]]:
    """The numbers are the last so many fields: as many as the header says, else as the first line has."""
    width = 0
    for number, raw in enumerate(raw_lines(file), start=1):
        line = (raw.removeprefix(BOM) if number == 1 else raw).rstrip()
        parts = line.split()
        fields = len(parts) - 1
        if number == 1 and fields == 1 and all(part.isdigit() for part in parts):
            width = int(parts[1])  # behind how many words there are
            continue
        if not line:
            raise UsageError(f"{file.name}:{number}: the line is empty. Each line is a word and its vector.")
        if line[:1].isspace():
            raise UsageError(f"{file.name}:{number}: no word before the numbers: {_shown(line)}. Fix the line.")
        if not width:
            width = fields
            if width == 0:
                raise UsageError(f"{file.name}:{number}: a word without a vector: {_shown(line)}. Is it word vectors?")
        if fields < width:
            raise UsageError(
                f"{file.name}:{number}: {many(fields, 'number')} behind {_shown(line)}; the lines before it have "
                f"{width}. Fix the line."
            )
        if fields > width and _NUMBER.fullmatch(parts[-width - 1]):
            raise UsageError(
                f"{file.name}:{number}: more numbers than the {width} that the lines before it have: {_shown(line)}. "
                "Fix the line."
            )
        word, *_ = line.rsplit(maxsplit=width)
        yield word.decode("utf-8", errors="replace"), _Numbers(line[len(word) :], width, f"{file.name}:{number}")


def _shown(line: bytes) -> str:
    return repr(line[:30].decode("utf-8", errors="replace"))


def _npz_rows(file: File) -> Iterator[tuple[str, _Numbers]]:
    import numpy as np

    try:
        with open(file.path, "rb") as stream, np.load(stream) as arrays:
            missing = [name for name in ("words", "vectors") if name not in arrays]
            if missing:
                raise UsageError(
                    f"{file.name}: has no array {missing[0]!r}; it needs `words` and `vectors`, and holds "
                    f"{', '.join(arrays.files) or 'none'}."
                )
            words, vectors = _word_list(arrays["words"]), arrays["vectors"]
    except (ValueError, OSError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise UsageError(f"{file.name}: cannot be read as .npz: {error} ({file.path}).") from None
    if vectors.ndim != 2 or len(vectors) != len(words) or vectors.dtype.kind != "f":
        raise UsageError(
            f"{file.name}: `vectors` must be one row of decimal numbers a word; its shape is {vectors.shape}, "
            f"its type {vectors.dtype}, and there are {many(len(words), 'word')}."
        )
    for number, word in enumerate(words):
        yield word, _Numbers(vectors[number], vectors.shape[1], f"{file.name}: row {number + 1}")


def _word_list(words: "NDArray[Any]") -> list[str]:
    """Of strings or bytes; or one text with a word a line."""
    texts = [each.decode("utf-8", errors="replace") if isinstance(each, bytes) else str(each) for each in words.ravel()]
    return texts[0].split("\n") if len(texts) == 1 and "\n" in texts[0] else texts


def write_vectors(folder: Path, path: str, names: Sequence[str], *, base: Path) -> None:
    """The vectors of a model's words as a store, so that a run can begin again without the file they came from."""
    from saccade.data.columns import writing

    vectors = read_vectors(path, names, base=base)
    with writing(folder, {"ids": "uint32", "rows": "float32"}) as writer:
        count, width = vectors.rows_ND.shape
        writer["ids"].append(vectors.ids_N, _ones(count))
        writer["rows"].append(vectors.rows_ND.ravel(), width * _ones(count))
        writer.facts = {
            "rows": count,
            "unit": "vectors",
            "width": width,
            "told": vectors.coverage.sentence(path),
            "coverage": asdict(vectors.coverage),
            "tokens": {"vector": count},
            "counts": Counts(lines=count, kept=count).to_dict(),
        }


def _ones(count: int) -> "NDArray[np.int64]":
    import numpy as np

    return np.ones(count, dtype=np.int64)


def opened_vectors(store: "Columns") -> Vectors:
    """What `write_vectors` wrote."""
    import numpy as np

    rows_ND = np.array(store["rows"].values, dtype=np.float32).reshape(-1, store.facts["width"])
    return Vectors(np.array(store["ids"].values, dtype=np.int64), rows_ND, Coverage(**store.facts["coverage"]))
