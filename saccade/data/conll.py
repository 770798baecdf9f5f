"""Tagged sentences in: CoNLL columns and CoNLL-U, plain or compressed; nothing is lost without being counted.

CoNLL: a word a line, in columns that spaces or tabs separate, and an empty line behind each sentence. Lines whose first
column is -DOCSTART- stand between documents. CoNLL-U: ten columns, separated by tabs; lines that begin with # are
comments, those whose number is a range (3-4) or has a point (3.1) are no words of their own and are passed over.
"""

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field

from saccade.config import Section
from saccade.data.counts import PLACES_PER_KIND, Counts, many
from saccade.data.files import BOM, File, OnBad, OnLong, Paths, locate, raw_lines
from saccade.errors import UsageError
from saccade.text.tags import Scheme, fault

DOCUMENT = "-DOCSTART-"
CONLLU = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
_SPACES = re.compile(r"[ \t]+")


def _no_zero(column: int) -> int:
    if column == 0:
        raise ValueError("columns are counted from 1, or from the end as −1, −2, …; there is no column 0")
    return column


Column = Annotated[int, AfterValidator(_no_zero)]


def _a_column(name: str) -> str:
    column, dot, key = name.partition(".")
    if column not in CONLLU[1:] or (dot and (column not in ("feats", "misc") or not key)):
        raise ValueError(
            f"{name!r} is no column of CoNLL-U: it must be one of {', '.join(CONLLU[1:])}, or one feature as in "
            "feats.Number or misc.Entity"
        )
    return name


class _TaggedFiles(Section):
    """What both kinds of files have in common."""

    train: Paths
    """What the model learns from: a file, or a list of files."""
    valid: Paths
    """What the best checkpoint is chosen by."""
    test: Paths | None = None
    """What the finished model is scored on."""
    scheme: Scheme | Literal["auto"] = "auto"
    """How tags write spans: iob1, iob2 or bioes; none where tags are of single words; auto: as the tags look."""
    max_length: Annotated[int, Field(ge=1)] = 512
    """The most words a sentence may have."""
    on_long: OnLong = "drop"
    """What happens to a longer training sentence: `cut` it, `drop` it, or `refuse` to train."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8 and to rows that cannot be read: `refuse`, or `repair`
    (bad bytes become U+FFFD, sentences with unreadable rows are left out)."""


class ConllData(_TaggedFiles):
    """A word a line, in columns."""

    kind: Literal["conll"] = "conll"
    """Columns that spaces or tabs separate, as in CoNLL-2000 and CoNLL-2003."""
    word: Column = 1
    """Which column has the word; the first is 1, the last −1."""
    tag: Column = -1
    """Which column has the tag."""
    separator: Literal["any", "tab", "space"] = "any"
    """What separates columns: any spaces and tabs; each tab; each space."""
    comments: bool = False
    """Whether lines that begin with `#` and a space are comments, instead of words."""


class ConlluData(_TaggedFiles):
    """Universal Dependencies' format."""

    kind: Literal["conllu"] = "conllu"
    """CoNLL-U."""
    column: Annotated[str, AfterValidator(_a_column)] = "upos"
    """Which column has the tag: upos, xpos, feats, deprel, …; or one feature, as feats.Number (`_` where it is not)."""


TaggedData = Annotated[ConllData | ConlluData, Field(discriminator="kind")]


class Tagged(NamedTuple):
    """A sentence, and where it begins."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    place: str


@dataclass
class TagCounts:
    """What was read and what was done to it.

    Always: lines = words + blank + documents + comments + ranges + empty_nodes + bad_rows + left_out + too_long_words,
    where `words` are those of the sentences that are kept.
    """

    lines: int = 0
    sentences: int = 0
    words: int = 0
    blank: int = 0
    documents: int = 0
    comments: int = 0
    ranges: int = 0
    empty_nodes: int = 0
    bad_rows: int = 0
    left_out: int = 0
    """Other words of sentences that have a bad row."""
    bom: int = 0
    carriage_returns: int = 0
    invalid_utf8: int = 0
    nul: int = 0
    too_long_dropped: int = 0
    too_long_cut: int = 0
    too_long_words: int = 0
    """Words of the sentences that were dropped, and those that were cut off."""
    mended: int = 0
    """Sentences whose tags are not written as the scheme says."""
    unknown_tags: int = 0
    """Words whose tag the training data do not have."""
    places: list[str] = field(default_factory=list)
    """The first few places of each kind of thing that was mended, as `kind file:line`."""

    def note(self, kind: str, place: str) -> None:
        before: int = getattr(self, kind)
        setattr(self, kind, before + 1)
        if before < PLACES_PER_KIND:
            self.places.append(f"{kind} {place}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def by_sentence(self) -> Counts:
        """What every store of tokens says of its rows."""
        counts = Counts(lines=self.sentences + self.too_long_dropped, kept=self.sentences)
        for name in ("bom", "carriage_returns", "nul", "invalid_utf8", "too_long_cut", "too_long_dropped"):
            setattr(counts, name, getattr(self, name))
        return counts

    def mended_told(self) -> list[str]:
        """The same, where anything was left out or mended; else nothing."""
        return self.sentences_told() if any(getattr(self, kind) for kind in _MENDED) else []

    def sentences_told(self) -> list[str]:
        """What was read and done, in words."""
        told = [
            f"{many(self.lines, 'line')} read, {many(self.sentences, 'sentence')} of {many(self.words, 'word')} kept."
        ]
        passed = {
            "lines between documents": self.documents,
            "comments": self.comments,
            "ranges of words": self.ranges,
            "empty nodes": self.empty_nodes,
        }
        seen = [f"{count:,} {name}" for name, count in passed.items() if count]
        if seen:
            told.append(f"Passed over: {', '.join(seen)}.")
        for kind, words in _MENDED.items():
            count: int = getattr(self, kind)
            if count:
                where = [place.partition(" ")[2] for place in self.places if place.startswith(f"{kind} ")]
                more = ", …" if count > len(where) else ""
                told.append(f"{words}: {count:,} ({', '.join(where)}{more}).")
        if self.too_long_words:
            told.append(f"Words left out with too long sentences: {self.too_long_words:,}.")
        if self.left_out:
            told.append(f"Other words of sentences with such rows, left out with them: {self.left_out:,}.")
        return told


_MENDED = {
    "bom": "Files that began with a byte-order mark, which was removed",
    "carriage_returns": "Lines that ended in a carriage return, which was removed",
    "nul": "Words that hold a NUL character, which was kept",
    "invalid_utf8": "Lines that were not valid UTF-8, whose bad bytes became U+FFFD",
    "bad_rows": "Rows that could not be read",
    "mended": "Sentences whose tags were not written as their scheme says, and were read as conlleval reads them",
    "too_long_cut": "Sentences cut because they are longer than max_length",
    "too_long_dropped": "Sentences left out because they are longer than max_length",
    "unknown_tags": "Words whose tag the training data do not have, which no model can get right",
}


def tagged_sentences(
    data: ConllData | ConlluData,
    names: tuple[str, ...],
    *,
    base: Path,
    counts: TagCounts,
    problems: list[str] | None = None,
) -> Iterator[Tagged]:
    """The sentences of some files, streaming. What the rules refuse raises a UsageError that names file and line.

    With `problems`, what would be refused is told there and read on past.
    """
    for name in names:
        reader = _Reader(data, locate(name, base), counts, problems)
        yield from reader.sentences()


Row = tuple[str, str] | None
"""Word and tag; None for a line that is no word."""


@dataclass
class _Reader:
    """One file."""

    data: ConllData | ConlluData
    file: File
    counts: TagCounts
    problems: list[str] | None
    rows: list[tuple[str, str]] = field(default_factory=list)
    begins: str = ""
    spoilt: bool = False
    """The sentence has a row that cannot be read."""

    def sentences(self) -> Iterator[Tagged]:
        number = 0
        for number, raw in enumerate(raw_lines(self.file), start=1):
            self.counts.lines += 1
            place = f"{self.file.name}:{number}"
            line = self._text(raw, number, place)
            if not line.strip(" \t"):
                self.counts.blank += 1
                yield from self._ended()
                continue
            try:
                documents = self.counts.documents
                row = self._conllu(line) if isinstance(self.data, ConlluData) else self._conll(self.data, line)
            except ValueError as error:
                self._bad(place, str(error))
                self.spoilt = True
                continue
            if row is not None:
                if not self.rows:
                    self.begins = place
                if "\0" in row[0]:
                    self.counts.note("nul", place)
                self.rows.append(row)
            elif self.counts.documents > documents:  # a line between documents ends a sentence, a comment does not
                yield from self._ended()
        yield from self._ended()

    def _ended(self) -> Iterator[Tagged]:
        rows, spoilt = self.rows, self.spoilt
        self.rows, self.spoilt = [], False
        if spoilt:
            self.counts.left_out += len(rows)
        elif rows:
            self.counts.sentences += 1
            self.counts.words += len(rows)
            words, tags = zip(*rows, strict=True)
            yield Tagged(words, tags, self.begins)

    def _text(self, raw: bytes, number: int, place: str) -> str:
        raw = raw.removesuffix(b"\n")
        if number == 1 and raw.startswith(BOM):
            raw = raw[len(BOM) :]
            self.counts.note("bom", place)
        if raw.endswith(b"\r"):
            raw = raw[:-1]
            self.counts.note("carriage_returns", place)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            self.counts.note("invalid_utf8", place)
            self._refuse(
                f"{place}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not valid UTF-8. Convert "
                "the file, for example with `iconv -f latin1 -t utf-8`, or set data.on_bad to repair to read U+FFFD "
                "there."
            )
            return raw.decode("utf-8", errors="replace")

    def _bad(self, place: str, reason: str) -> None:
        self.counts.note("bad_rows", place)
        self._refuse(
            f"{place}: {reason}. Fix the row, or set data.on_bad to repair to leave sentences with such rows out."
        )

    def _refuse(self, message: str) -> None:
        if self.data.on_bad == "repair":
            return
        if self.problems is None:
            raise UsageError(message)
        self.problems.append(message)

    def _conll(self, data: ConllData, line: str) -> Row:
        if data.comments and line.startswith("# "):
            self.counts.comments += 1
            return None
        match data.separator:
            case "any":
                cells = _SPACES.split(line.strip(" \t"))
            case "tab":
                cells = line.split("\t")
            case "space":
                cells = line.split(" ")
        if cells[0] == DOCUMENT:
            self.counts.documents += 1
            return None
        word, tag = (_cell(cells, column, name) for column, name in ((data.word, "word"), (data.tag, "tag")))
        if word[0] == tag[0]:
            raise ValueError(
                f"the row has {many(len(cells), 'column')}: data.word ({data.word}) and data.tag ({data.tag}) are the "
                "same one"
            )
        return self._checked(word[1], tag[1])

    def _conllu(self, line: str) -> Row:
        if line.startswith("#"):
            self.counts.comments += 1
            return None
        cells = line.split("\t")
        if len(cells) != len(CONLLU):
            raise ValueError(f"the row has {many(len(cells), 'column')}; CoNLL-U has {len(CONLLU)}, separated by tabs")
        if re.fullmatch(r"[0-9]+-[0-9]+", cells[0]):
            self.counts.ranges += 1
            return None
        if re.fullmatch(r"[0-9]+\.[0-9]+", cells[0]):
            self.counts.empty_nodes += 1
            return None
        expected = len(self.rows) + 1
        if cells[0] != str(expected) and not self.spoilt:
            raise ValueError(f"the row's number is {cells[0][:20]!r}; word {expected} of the sentence comes here")
        assert isinstance(self.data, ConlluData)
        return self._checked(cells[1], _conllu_tag(cells, self.data.column))

    def _checked(self, word: str, tag: str) -> Row:
        if not word:
            raise ValueError("the word is empty")
        scheme: Scheme = "none" if self.data.scheme == "auto" else self.data.scheme
        wrong = fault(tag, scheme)
        if wrong:
            raise ValueError(f"{wrong}; data.scheme says how tags are written")
        return word, tag


def _cell(cells: list[str], column: int, name: str) -> tuple[int, str]:
    place = column - 1 if column > 0 else len(cells) + column
    if not 0 <= place < len(cells):
        raise ValueError(f"the row has {many(len(cells), 'column')}; data.{name} asks for column {column}")
    return place, cells[place]


def _conllu_tag(cells: list[str], column: str) -> str:
    name, dot, key = column.partition(".")
    cell = cells[CONLLU.index(name)]
    if not dot:
        return cell
    pairs = (pair.partition("=") for pair in cell.split("|"))
    return next((value for each, _, value in pairs if each == key and value), "_")
