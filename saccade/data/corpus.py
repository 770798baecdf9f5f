"""Text in rows, for masked language models: lines of documents, one by one or joined, as tokens.

Documents are separated by empty lines, and by the ends of files. A line of more tokens than a row may have becomes
several rows, so that nothing is left out.
Shapes: N tokens of all rows, end to end; R rows.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from saccade.config import Section
from saccade.data.columns import Columns, Ragged, ids_dtype, writing
from saccade.data.files import Counts, OnBad, Paths
from saccade.data.grammar import GrammarData, sentences
from saccade.data.labelled import Example, LabelledData, labelled
from saccade.data.labelled_splits import files_like, split_examples
from saccade.data.labelled_splits import has_split as has_labelled
from saccade.data.plain_text import file_lines
from saccade.data.splits import Split
from saccade.errors import UsageError
from saccade.types import END

CHUNK, CHUNK_CHARACTERS = 10_000, 4_000_000
"""Lines, or characters of them, that are held in memory at a time."""
GENERATED_MAX_LENGTH = 512
SOURCE, DOCUMENT = "source", "document"
"""The columns of a store: a row's tokens, END last; and the number of its document."""


class CorpusData(Section):
    """Plain text in your own files; empty lines stand between documents."""

    kind: Literal["text"] = "text"
    """Text in files."""
    train: Paths
    """The file the model learns from; or a list of files. Plain, .gz or .xz."""
    valid: Paths
    """What the best checkpoint is chosen by."""
    test: Paths | None = None
    """What the finished model is scored on."""
    lines: Literal["each", "joined"] = "each"
    """What is read at once: each line by itself; or as many lines of a document as fit, joined by spaces."""
    max_length: int = Field(512, ge=8)
    """The most tokens that are read at once, end marks not counted; a longer line becomes several."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8: `refuse`, or `repair` (they become U+FFFD)."""


MaskedData = Annotated[CorpusData | LabelledData | GrammarData, Field(discriminator="kind")]
"""`kind: files` is a classifier's data: the same texts, whose labels are not looked at."""


class Tokenizer(Protocol):
    """What is asked of a tokenizer."""

    @property
    def size(self) -> int: ...

    def encode_flat(self, texts: list[str], /) -> tuple[NDArray[Any], NDArray[np.int64]]: ...


class TextLine(NamedTuple):
    document: int
    text: str


class Rows(NamedTuple):
    """Some rows, each with END at its end."""

    ids_N: NDArray[np.int64]
    lengths_R: NDArray[np.int64]
    document_R: NDArray[np.int64]


def has_split(data: MaskedData, split: Split) -> bool:
    if isinstance(data, LabelledData):
        return has_labelled(data, split)
    return not isinstance(data, CorpusData) or getattr(data, split) is not None


def most_tokens(data: MaskedData) -> int:
    return GENERATED_MAX_LENGTH if isinstance(data, GrammarData) else data.max_length


def is_joined(data: MaskedData) -> bool:
    return isinstance(data, CorpusData) and data.lines == "joined"


def split_lines(data: MaskedData, split: Split, *, base: Path, counts: Counts) -> Iterator[TextLine]:
    """The split's lines, read or generated as they are asked for. Relative paths are seen from `base`."""
    match data:
        case GrammarData():
            return _generated(data, split, counts)
        case LabelledData():
            return _without_labels(data, split, base, counts)
        case CorpusData():
            names = getattr(data, split)
            if names is None:
                raise UsageError(f"data.{split} is not given. Name the files, or leave the {split} split out.")
            return read_lines(names, base=base, on_bad=data.on_bad, counts=counts)


def read_lines(names: Iterable[str], *, base: Path, on_bad: OnBad, counts: Counts) -> Iterator[TextLine]:
    """The lines of files, without the space around them; empty ones are not counted."""
    document = -1
    for name in names:
        begins = True
        for line in file_lines(name, base=base, on_bad=on_bad, counts=counts):
            text = line.strip()
            if not text:
                begins = True
                counts.lines -= 1
                counts.kept -= 1
                continue
            document += begins
            begins = False
            yield TextLine(document, text)


def further_lines(data: MaskedData, files: Sequence[Path], *, base: Path, counts: Counts) -> Iterator[TextLine]:
    """Files that the data do not name, read as the data's own are: where these have labels, so have those."""
    if isinstance(data, LabelledData):
        return _texts(labelled(files_like(data, files), base=base, on_bad=data.on_bad, counts=counts))
    on_bad = "refuse" if isinstance(data, GrammarData) else data.on_bad
    return read_lines([str(each.absolute()) for each in files], base=base, on_bad=on_bad, counts=counts)


def _generated(data: GrammarData, split: Split, counts: Counts) -> Iterator[TextLine]:
    for number, made in enumerate(sentences(data.seed, split, getattr(data, split))):
        counts.lines += 1
        counts.kept += 1
        yield TextLine(number, made)


def _without_labels(data: LabelledData, split: Split, base: Path, counts: Counts) -> Iterator[TextLine]:
    """Each text is a document of one line."""
    return _texts(split_examples(data, split, base=base, counts=counts))


def _texts(examples: Iterable[Example]) -> Iterator[TextLine]:
    every = (text.strip() for each in examples for text in each.texts)
    return (TextLine(number, text) for number, text in enumerate(filter(None, every)))


class _Joiner:
    """Lines to rows; a row that may still grow is kept until it is known what follows."""

    def __init__(self, limit: int, *, joined: bool) -> None:
        self.limit, self.joined = limit, joined
        self.parts: list[NDArray[Any]] = []
        self.size, self.document = 0, -1
        self.done: list[tuple[int, list[NDArray[Any]]]] = []

    def add(self, document: int, alone: NDArray[Any], behind: NDArray[Any]) -> None:
        """A line as it reads at the beginning of a row, and behind another."""
        fits = self.joined and self.parts and document == self.document and self.size + len(behind) <= self.limit
        if not fits:
            self.end()
        line = behind if fits else alone
        while len(line) > self.limit:
            self.done.append((document, [line[: self.limit]]))
            line = line[self.limit :]
        if len(line):
            self.parts.append(line)
            self.size += len(line)
            self.document = document

    def end(self) -> None:
        if self.parts:
            self.done.append((self.document, self.parts))
        self.parts, self.size = [], 0

    def rows(self) -> Rows | None:
        """What is finished, taken away."""
        done, self.done = self.done, []
        if not done:
            return None
        end = np.array([END])
        ids_N = np.concatenate([piece for _, parts in done for piece in (*parts, end)]).astype(np.int64)
        lengths = [1 + sum(map(len, parts)) for _, parts in done]
        return Rows(ids_N, np.array(lengths, dtype=np.int64), np.array([document for document, _ in done]))


def rows_of(lines: Iterable[TextLine], tokenizer: Tokenizer, *, limit: int, joined: bool) -> Iterator[Rows]:
    """The lines as rows of at most `limit` tokens, some at a time.

    A line behind another reads as with a space in front: what is joined is cut as the joined text would be.
    """
    joiner = _Joiner(limit, joined=joined)
    for some in _chunks(lines):
        texts = [line.text for line in some]
        alone = _encoded(tokenizer, texts)
        behind = _encoded(tokenizer, [f" {text}" for text in texts]) if joined else alone
        for line, one, other in zip(some, alone, behind, strict=True):
            joiner.add(line.document, one, other)
        made = joiner.rows()
        if made is not None:
            yield made
    joiner.end()
    last = joiner.rows()
    if last is not None:
        yield last


def _encoded(tokenizer: Tokenizer, texts: list[str]) -> list[NDArray[Any]]:
    values, lengths = tokenizer.encode_flat(texts)
    return np.split(values, np.cumsum(lengths)[:-1])


def _chunks(lines: Iterable[TextLine]) -> Iterator[list[TextLine]]:
    held: list[TextLine] = []
    characters = 0
    for line in lines:
        held.append(line)
        characters += len(line.text)
        if len(held) >= CHUNK or characters >= CHUNK_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held


@dataclass(frozen=True)
class Corpus:
    """Rows of tokens in memory, or on disk behind it."""

    rows: Ragged
    document_of: NDArray[Any]

    def __len__(self) -> int:
        return len(self.document_of)

    @staticmethod
    def of(columns: Columns) -> "Corpus":
        return Corpus(columns[SOURCE], columns[DOCUMENT].values)

    @staticmethod
    def read(some: Iterable[Rows]) -> "Corpus":
        every = list(some)
        if not every:
            raise UsageError("there is no line in it that is not empty.")
        lengths = np.concatenate([each.lengths_R for each in every])
        ids = np.concatenate([each.ids_N for each in every])
        documents = np.concatenate([each.document_R for each in every])
        return Corpus(Ragged(ids, np.concatenate([[0], np.cumsum(lengths)])), documents)


def write_corpus(
    folder: Path, lines: Iterable[TextLine], tokenizer: Tokenizer, *, limit: int, joined: bool, counts: Counts
) -> None:
    """Encode the lines and write them, holding one chunk in memory at a time."""
    rows = tokens = documents = 0
    with writing(folder, {SOURCE: ids_dtype(tokenizer.size), DOCUMENT: "uint32"}) as writer:
        for some in rows_of(lines, tokenizer, limit=limit, joined=joined):
            writer[SOURCE].append(some.ids_N, some.lengths_R)
            writer[DOCUMENT].append(some.document_R, np.ones(len(some.document_R), dtype=np.int64))
            rows += len(some.lengths_R)
            tokens += len(some.ids_N)
            documents = int(some.document_R[-1]) + 1
        if not rows:
            raise UsageError(f"the {folder.name} text is empty. Check the files that data.{folder.name} names.")
        writer.facts = {
            "rows": rows,
            "unit": "rows",
            "documents": documents,
            "tokens": {SOURCE: tokens},
            "vocabulary": tokenizer.size,
            "max_length": limit,
            "counts": counts.to_dict(),
        }
