"""Parallel text in: two files, TSV or JSON lines, plain or compressed; nothing is lost without being counted."""

import gzip
import io
import json
import lzma
import os
import re
import zlib
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import IO, Annotated, Any, BinaryIO, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, model_validator

from saccade.config import Section
from saccade.errors import UsageError

BOM = b"\xef\xbb\xbf"
PLACES_PER_KIND = 5
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what a broken gzip or xz file can raise

OnBad = Literal["refuse", "repair"]
OnLong = Literal["cut", "drop", "refuse"]
Kind = Literal[
    "bom", "carriage_returns", "nul", "invalid_utf8", "empty", "too_long_cut", "too_long_dropped", "bad_rows", "trimmed"
]


def _as_tuple(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Paths = Annotated[
    tuple[str, ...], Field(min_length=1), BeforeValidator(_as_tuple, json_schema_input_type=str | tuple[str, ...])
]


class Parallel(Section):
    """One split of the data: `source` and `target`, or `tsv`, or `jsonl`; each a path or a list of paths."""

    source: Paths | None = None
    """The file with the source sentences, one a line; or a list of files."""
    target: Paths | None = None
    """The file with their translations, line by line; or a list of as many files."""
    tsv: Paths | None = None
    """A file of tab-separated columns without a header and without quoting; or a list of files."""
    columns: tuple[Annotated[int, Field(ge=1)], Annotated[int, Field(ge=1)]] = (1, 2)
    """Which columns of `tsv` are source and target; the first column is 1."""
    jsonl: Paths | None = None
    """A file with one JSON object a line; or a list of files."""
    fields: tuple[str, str] = ("source", "target")
    """Which fields of the `jsonl` objects are source and target."""

    @model_validator(mode="after")
    def _one_layout(self) -> Self:
        given = [name for name in ("source/target", "tsv", "jsonl") if self._has(name)]
        if len(given) != 1:
            what = f"{' and '.join(given)} are" if given else "none is"
            raise ValueError(f"give either `source` and `target`, or `tsv`, or `jsonl`; {what} given.")
        if given == ["source/target"]:
            self._check_two_files()
        for name, needs in (("columns", "tsv"), ("fields", "jsonl")):
            if needs not in given and getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"`{name}` describes `{needs}`, which is not given. Remove `{name}`.")
        return self

    def _has(self, layout: str) -> bool:
        return any(getattr(self, name) is not None for name in layout.split("/"))

    def _check_two_files(self) -> None:
        if self.source is None or self.target is None:
            there, missing = ("target", "source") if self.source is None else ("source", "target")
            raise ValueError(f"`{there}` is given without `{missing}`; a split in two files needs both.")
        if len(self.source) != len(self.target):
            raise ValueError(
                f"`source` names {_many(len(self.source), 'file')} and `target` {_many(len(self.target), 'file')}; "
                "they are read in pairs, so give as many of each."
            )


class FilesData(Section):
    """Parallel text in your own files."""

    kind: Literal["files"] = "files"
    """Text in files."""
    train: Parallel
    """What the model learns from."""
    valid: Parallel
    """What the best checkpoint is chosen by."""
    test: Parallel | None = None
    """What the finished model is scored on."""
    max_length: Annotated[int, Field(ge=1)] = 512
    """The most tokens a side may have, the end mark not counted."""
    on_long: OnLong = "drop"
    """What happens to a longer training pair: `cut` it, `drop` it, or `refuse` to train."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8 and to rows that cannot be read: `refuse`, or `repair`
    (bad bytes become U+FFFD, unreadable rows are left out)."""
    trim: bool = False
    """Whether two files of unequal line counts are read up to the end of the shorter one, instead of refused."""


class Pair(NamedTuple):
    """A sentence and its translation, and where they stand."""

    source: str
    target: str
    place: str


class Line(NamedTuple):
    """A line of any bytes as text, and what had to be done to it."""

    text: str
    repairs: tuple[Kind, ...] = ()


_IN_WORDS: dict[Kind, str] = {
    "bom": "files that began with a byte-order mark, which was removed",
    "carriage_returns": "lines that ended in a carriage return, which was removed",
    "nul": "pairs that hold a NUL character, which was kept",
    "invalid_utf8": "lines that were not valid UTF-8, whose bad bytes became U+FFFD",
    "empty": "pairs left out because a side is empty",
    "too_long_cut": "pairs cut because a side is longer than max_length",
    "too_long_dropped": "pairs left out because a side is longer than max_length",
    "bad_rows": "rows left out because they could not be read",
    "trimmed": "lines left out at the end of the longer file, where the shorter one has no partner for them",
}


@dataclass
class Counts:
    """What was read and what was done to it.

    Always: lines = kept + empty + too_long_dropped + bad_rows + trimmed.
    """

    lines: int = 0
    """Rows read; a row of two files that belong together is one."""
    kept: int = 0
    bom: int = 0
    carriage_returns: int = 0
    nul: int = 0
    invalid_utf8: int = 0
    empty: int = 0
    too_long_cut: int = 0
    too_long_dropped: int = 0
    bad_rows: int = 0
    trimmed: int = 0
    places: list[str] = field(default_factory=list)
    """The first few places of each kind, as `kind file:line`."""

    def note(self, kind: Kind, place: str, *, times: int = 1) -> None:
        before: int = getattr(self, kind)
        setattr(self, kind, before + times)
        if before < PLACES_PER_KIND:
            self.places.append(f"{kind} {place}")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        """What was done, in words: one sentence for each kind of thing that occurred."""
        told = [f"{_many(self.lines, 'row')} read, {_many(self.kept, 'pair')} kept."]
        for kind, words in _IN_WORDS.items():
            count: int = getattr(self, kind)
            if count:
                where = [place.partition(" ")[2] for place in self.places if place.startswith(f"{kind} ")]
                more = ", …" if count > len(where) and kind != "trimmed" else ""
                told.append(f"{words[0].upper()}{words[1:]}: {count:,} ({', '.join(where)}{more}).")
        return told


def _many(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


class File(NamedTuple):
    """A file by the name the user gave it, and where it lies."""

    name: str
    path: Path


def locate(name: str, base: Path) -> File:
    """The file a recipe names: relative to `base`, or below the folder that the variable SACCADE_DATA names."""
    variable = re.match(r"\$(SACCADE_DATA|\{SACCADE_DATA\})(?=/|$)", name)
    if not variable:
        return File(name, base / name)
    folder = os.environ.get("SACCADE_DATA")
    if not folder:
        raise UsageError(f"{name}: the variable SACCADE_DATA is not set. Set SACCADE_DATA to the folder with the data.")
    return File(name, Path(folder, name[variable.end() :].lstrip("/")))


def raw_lines(file: File) -> Generator[bytes, None, None]:
    """The lines of a plain, gzip or xz file, each with its line feed. No other character ends a line."""
    try:
        with open(file.path, "rb") as stream, _unpacked(stream) as unpacked:
            yield from unpacked
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise UsageError(f"{file.name}: cannot be read: {reason.rstrip('.')} ({file.path}).") from None


def _unpacked(stream: io.BufferedReader) -> IO[bytes]:
    beginning = stream.peek(6)[:6]  # by content, for names lie
    if beginning.startswith(b"\x1f\x8b"):
        return io.BufferedReader(gzip.GzipFile(fileobj=stream))
    if beginning == b"\xfd7zXZ\x00":
        return io.BufferedReader(lzma.LZMAFile(stream))
    return stream


def _mended(raw: bytes, first: bool) -> tuple[bytes, tuple[Kind, ...]]:
    """A line without its end and byte-order mark, and what else than the line feed was removed."""
    if raw.endswith(b"\n"):
        raw = raw[:-1]
    repairs: tuple[Kind, ...] = ()
    if first and raw.startswith(BOM):
        raw, repairs = raw[len(BOM) :], ("bom",)
    if raw.endswith(b"\r"):
        raw, repairs = raw[:-1], (*repairs, "carriage_returns")
    return raw, repairs


def lines(stream: BinaryIO) -> Iterator[Line]:
    """Any bytes as lines of text: as many as came in, whatever they hold."""
    for number, raw in enumerate(iter(stream.readline, b"")):
        mended, repairs = _mended(raw, number == 0)
        try:
            yield Line(mended.decode("utf-8"), repairs)
        except UnicodeDecodeError:
            yield Line(mended.decode("utf-8", errors="replace"), (*repairs, "invalid_utf8"))


@dataclass(frozen=True)
class _Reader:
    """One pass over one split, and its rules."""

    base: Path
    on_bad: OnBad
    trim: bool
    counts: Counts
    problems: list[str] | None

    def bad(self, kind: Kind, place: str, message: str) -> None:
        """Count what is wrong; refuse it, unless the rules say to repair."""
        self.counts.note(kind, place)
        if self.on_bad == "refuse" and (self.problems is None or getattr(self.counts, kind) <= PLACES_PER_KIND):
            self.refuse(f"{place}: {message}")

    def refuse(self, message: str) -> None:
        if self.problems is None:
            raise UsageError(message)
        self.problems.append(message)

    def text(self, raw: bytes, number: int, file: File) -> str:
        raw, repairs = _mended(raw, number == 1)
        for kind in repairs:
            self.counts.note(kind, f"{file.name}:{number}")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            encoding = "utf-16" if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            self.bad(
                "invalid_utf8",
                f"{file.name}:{number}",
                f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not valid UTF-8. Convert the file, "
                f"for example with `iconv -f {encoding} -t utf-8`, or set data.on_bad to repair to read U+FFFD there.",
            )
            return raw.decode("utf-8", errors="replace")

    def two_files(self, source_name: str, target_name: str) -> Iterator[Pair]:
        source, target = locate(source_name, self.base), locate(target_name, self.base)
        with closing(raw_lines(source)) as left, closing(raw_lines(target)) as right:
            for number, (one, other) in enumerate(zip_longest(left, right), start=1):
                if one is None or other is None:
                    beyond = 1 + sum(1 for _ in (right if one is None else left))
                    longer, shorter = (target, source) if one is None else (source, target)
                    self.unequal(longer, shorter, paired=number - 1, beyond=beyond, first_is_longer=other is None)
                    return
                yield Pair(self.text(one, number, source), self.text(other, number, target), f"{source.name}:{number}")

    def unequal(self, longer: File, shorter: File, *, paired: int, beyond: int, first_is_longer: bool) -> None:
        self.counts.lines += beyond
        self.counts.note("trimmed", f"{longer.name}:{paired + 1}", times=beyond)
        if self.trim:
            return
        lengths = {longer: paired + beyond, shorter: paired}
        one, other = (longer, shorter) if first_is_longer else (shorter, longer)
        found = _first_without_partner(longer, shorter, paired=paired, beyond=beyond)
        kind = " of plausible length" if found <= paired else ""
        self.refuse(
            f"{one.name} has {_many(lengths[one], 'line')} and {other.name} has {lengths[other]:,}: "
            f"line {found:,} of {longer.name} is the first without a partner{kind}.\n"
            f"Nothing was written. Fix the files, or keep the first {_many(paired, 'pair')}: "
            "--set data.trim=true when training, --trim when checking."
        )

    def tsv(self, name: str, columns: tuple[int, int]) -> Iterator[Pair]:
        file = locate(name, self.base)
        first, second = columns[0] - 1, columns[1] - 1
        with closing(raw_lines(file)) as rows:
            for number, raw in enumerate(rows, start=1):
                cells = self.text(raw, number, file).split("\t")
                place = f"{file.name}:{number}"
                if len(cells) <= max(first, second):
                    need = f"data.columns asks for columns {columns[0]} and {columns[1]}"
                    self.bad_row(place, f"the row has {_many(len(cells), 'column')}; {need}")
                else:
                    yield Pair(cells[first], cells[second], place)

    def jsonl(self, name: str, fields: tuple[str, str]) -> Iterator[Pair]:
        file = locate(name, self.base)
        with closing(raw_lines(file)) as rows:
            for number, raw in enumerate(rows, start=1):
                place = f"{file.name}:{number}"
                try:
                    source, target = _strings(self.text(raw, number, file), fields)
                except ValueError as error:
                    self.bad_row(place, str(error))
                    continue
                yield Pair(self.encodable(source, place), self.encodable(target, place), place)

    def bad_row(self, place: str, reason: str) -> None:
        self.counts.lines += 1
        self.bad("bad_rows", place, f"{reason}. Fix the row, or set data.on_bad to repair to leave such rows out.")

    def encodable(self, text: str, place: str) -> str:
        """JSON can spell half a character (an unpaired surrogate escape), which no UTF-8 text can hold."""
        try:
            text.encode("utf-8")
        except UnicodeEncodeError:
            self.bad(
                "invalid_utf8",
                place,
                "the text holds an unpaired surrogate escape, which is no character. Fix it, or set data.on_bad to "
                "repair to read U+FFFD there.",
            )
            return re.sub("[\ud800-\udfff]", "\ufffd", text)
        return text

    def rows(self, split: Parallel) -> Iterator[Iterator[Pair]]:
        """The split's files, one after the other."""
        if split.source is not None and split.target is not None:
            for source, target in zip(split.source, split.target, strict=True):
                yield self.two_files(source, target)
        for name in split.tsv or ():
            yield self.tsv(name, split.columns)
        for name in split.jsonl or ():
            yield self.jsonl(name, split.fields)


def _first_without_partner(longer: File, shorter: File, *, paired: int, beyond: int) -> int:
    from saccade.data.mismatch import first_without_partner  # needs numpy, for which a recipe's --help must not wait

    if not (longer.path.is_file() and shorter.path.is_file()):
        return paired + 1  # a pipe cannot be read twice
    return first_without_partner(_lengths(longer), _lengths(shorter), paired=paired, beyond=beyond)


def _lengths(file: File) -> Iterator[int]:
    return (len(raw.rstrip(b"\r\n")) for raw in raw_lines(file))


def _strings(text: str, fields: tuple[str, str]) -> tuple[str, str]:
    """The two fields of a JSON object; a ValueError says what is wrong with it."""
    try:
        row = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the row is not valid JSON ({error})") from None
    if not isinstance(row, dict):
        raise ValueError("the row is not a JSON object")
    for name in fields:
        if name not in row:
            raise ValueError(f"the object has no field {name!r}, which data.fields asks for")
        if not isinstance(row[name], str):
            raise ValueError(f"the field {name!r} holds {type(row[name]).__name__}, not a string")
    return row[fields[0]], row[fields[1]]


def pairs(
    split: Parallel,
    *,
    base: Path,
    on_bad: OnBad = "refuse",
    trim: bool = False,
    counts: Counts,
    keep_empty: bool = False,
    problems: list[str] | None = None,
) -> Iterator[Pair]:
    """The split's pairs, streaming. What is left out or mended is counted; what the rules refuse raises a UsageError.

    Two files of unequal length are noticed at their end. `keep_empty` hands on pairs with an empty side too, for
    evaluation, where each line counts. With `problems`, what would be refused is told there and read on past.
    """
    reader = _Reader(base, on_bad, trim, counts, problems)
    for rows in reader.rows(split):
        try:
            for pair in rows:
                counts.lines += 1
                if "\0" in pair.source or "\0" in pair.target:
                    counts.note("nul", pair.place)
                if not keep_empty and (_blank(pair.source) or _blank(pair.target)):
                    counts.note("empty", pair.place)
                    continue
                counts.kept += 1
                yield pair
        except UsageError as error:
            if problems is None:
                raise
            problems.append(str(error))


def _blank(text: str) -> bool:
    return not text or text.isspace()
