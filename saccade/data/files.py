"""Parallel text in: two files, TSV or JSON lines, plain or compressed; nothing is lost without being counted."""

import gzip
import io
import lzma
import os
import re
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple, TypeVar

from saccade.data.catalogue import catalogue
from saccade.data.counts import PLACES_PER_KIND, Kind, many
from saccade.data.counts import Counts as Counts
from saccade.data.json_rows import heads_of, joined_of, read_row
from saccade.data.parallel import FilesData as FilesData
from saccade.data.parallel import OnBad as OnBad
from saccade.data.parallel import OnLong as OnLong
from saccade.data.parallel import Parallel as Parallel
from saccade.data.parallel import Paths as Paths
from saccade.data.parses import Heads, read_heads
from saccade.errors import UsageError

BOM = b"\xef\xbb\xbf"
Row = TypeVar("Row")
_UNREADABLE = (OSError, EOFError, lzma.LZMAError, zlib.error)  # what a broken gzip or xz file can raise


class Pair(NamedTuple):
    """A sentence and its translation, and where they stand."""

    source: str
    target: str
    place: str
    heads: Heads | None = None
    """The dependency parse of the source, where the data have one."""


class Line(NamedTuple):
    """A line of any bytes as text, and what had to be done to it."""

    text: str
    repairs: tuple[Kind, ...] = ()


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
        raise UsageError(
            f"{name}: the variable SACCADE_DATA is not set. Set SACCADE_DATA to the folder with the data."
            f"{_where_to_get(name)}"
        )
    return File(name, Path(folder, name[variable.end() :].lstrip("/")))


def raw_lines(file: File) -> Generator[bytes, None, None]:
    """The lines of a plain, gzip or xz file, each with its line feed. No other character ends a line."""
    try:
        with open(file.path, "rb") as stream, _unpacked(stream) as unpacked:
            yield from unpacked
    except _UNREADABLE as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        hint = _where_to_get(file.name) if isinstance(error, FileNotFoundError) else ""
        raise UsageError(f"{file.name}: cannot be read: {reason.rstrip('.')} ({file.path}).{hint}") from None


def _where_to_get(name: str) -> str:
    """What fetches a file below SACCADE_DATA, if the catalogue has it; where it has no address, who has it."""
    folder, _, file = name.partition("/")[2].partition("/")
    if not name.startswith("$") or folder not in catalogue() or file not in catalogue()[folder].files:
        return ""
    if catalogue()[folder].files[file].address is None:
        return f" It has no public address of its own; {catalogue()[folder].home} tells of what it was made from."
    to = ' --to "$SACCADE_DATA"' if os.environ.get("SACCADE_DATA") else ""
    return f" `saccade data get {folder}{to}` fetches it."


def _unpacked(stream: io.BufferedReader) -> IO[bytes]:
    beginning = stream.peek(6)[:6]  # by content, for names lie
    if beginning.startswith(b"\x1f\x8b"):
        return io.BufferedReader(gzip.GzipFile(fileobj=stream))
    if beginning == b"\xfd7zXZ\x00":
        return io.BufferedReader(lzma.LZMAFile(stream))
    return stream


def mended(raw: bytes, first: bool) -> tuple[bytes, tuple[Kind, ...]]:
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
        whole, repairs = mended(raw, number == 0)
        try:
            yield Line(whole.decode("utf-8"), repairs)
        except UnicodeDecodeError:
            yield Line(whole.decode("utf-8", errors="replace"), (*repairs, "invalid_utf8"))


@dataclass(frozen=True)
class _Reader:
    """One pass over one split, and its rules."""

    base: Path
    on_bad: OnBad
    trim: bool
    counts: Counts
    problems: list[str] | None
    last: int | None = None
    """How many lines are counted when the split's last one has been read; none: its files end it."""

    def numbered(self, rows: Iterable[Row]) -> Iterator[tuple[int, Row]]:
        """A file's rows, counted from 1, as far as the split goes."""
        left = None if self.last is None else max(0, self.last - self.counts.lines)
        return enumerate(islice(rows, left), start=1)

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
        raw, repairs = mended(raw, number == 1)
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
            for number, (one, other) in self.numbered(zip_longest(left, right)):
                if one is None or other is None:
                    self.ended((source, target), (left, right), (one, other), number - 1)
                    return
                yield Pair(self.text(one, number, source), self.text(other, number, target), f"{source.name}:{number}")

    def with_heads(self, *names: str) -> Iterator[Pair]:
        """Pairs of two files, source and target, with the source's parses in a third."""
        files = tuple(locate(name, self.base) for name in names)
        with ExitStack() as opened:
            streams = tuple(opened.enter_context(closing(raw_lines(file))) for file in files)
            for number, raws in self.numbered(zip_longest(*streams)):
                if any(raw is None for raw in raws):
                    self.ended(files, streams, raws, number - 1)
                    return
                one, other, third = (self.text(raw, number, file) for raw, file in zip(raws, files, strict=True))
                pair = Pair(one, other, f"{files[0].name}:{number}")
                yield from self.parsed(pair, third, f"{files[2].name}:{number}")

    def ended(
        self, files: tuple[File, ...], streams: tuple[Iterator[bytes], ...], last: tuple[Any, ...], paired: int
    ) -> None:
        """Some of the files have no line any more: tell of the first one that is not as long as the first of all."""
        over = [raw is None for raw in last]
        other = over.index(not over[0])
        longer, shorter = (other, 0) if over[0] else (0, other)
        beyond = 1 + sum(1 for _ in streams[longer])
        self.unequal(files[longer], files[shorter], paired=paired, beyond=beyond, first_is_longer=longer == 0)

    def parsed(self, pair: Pair, heads: str, place: str) -> Iterator[Pair]:
        """The pair with its parse; nothing, and that counted, where it is no tree over the source's words."""
        try:
            found = read_heads(heads, pair.source)
        except ValueError as error:
            self.bad_row(place, str(error))
            return
        yield pair._replace(heads=found)

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
            f"{one.name} has {many(lengths[one], 'line')} and {other.name} has {lengths[other]:,}: "
            f"line {found:,} of {longer.name} is the first without a partner{kind}.\n"
            f"Nothing was written. Fix the files, or keep the first {many(paired, 'pair')}: "
            "--set data.trim=true when training, --trim when checking."
        )

    def tsv(self, name: str, split: Parallel) -> Iterator[Pair]:
        file = locate(name, self.base)
        sides = [(each,) if isinstance(each, int) else each for each in split.columns]
        wanted = [column for side in sides for column in side]
        third = split.heads_column
        with closing(raw_lines(file)) as rows:
            for number, raw in self.numbered(rows):
                cells = self.text(raw, number, file).split("\t")
                place = f"{file.name}:{number}"
                if len(cells) < max(*wanted, third or 0):
                    need = f"data.columns asks for columns {' and '.join(map(str, wanted))}"
                    if len(cells) >= max(wanted):
                        need = f"data.heads_column asks for column {third}"
                    self.bad_row(place, f"the row has {many(len(cells), 'column')}; {need}")
                    continue
                source, target = (" ".join(cells[column - 1] for column in side) for side in sides)
                if third is None:
                    yield Pair(source, target, place)
                else:
                    yield from self.parsed(Pair(source, target, place), cells[third - 1], place)

    def jsonl(self, name: str, split: Parallel) -> Iterator[Pair]:
        file = locate(name, self.base)
        with closing(raw_lines(file)) as rows:
            for number, raw in self.numbered(rows):
                place = f"{file.name}:{number}"
                try:
                    row = read_row(self.text(raw, number, file))
                    source, target = (joined_of(row, names, "data.fields") for names in split.fields)
                    heads = None if split.heads_field is None else heads_of(row, split.heads_field)
                except ValueError as error:
                    self.bad_row(place, str(error))
                    continue
                pair = Pair(self.encodable(source, place), self.encodable(target, place), place)
                if heads is None:
                    yield pair
                else:
                    yield from self.parsed(pair, heads, place)

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
            for number, names in enumerate(zip(split.source, split.target, strict=True)):
                yield self.two_files(*names) if split.heads is None else self.with_heads(*names, split.heads[number])
        for name in split.tsv or ():
            yield self.tsv(name, split)
        for name in split.jsonl or ():
            yield self.jsonl(name, split)


def _first_without_partner(longer: File, shorter: File, *, paired: int, beyond: int) -> int:
    from saccade.data.mismatch import first_without_partner  # needs numpy, for which a recipe's --help must not wait

    if not (longer.path.is_file() and shorter.path.is_file()):
        return paired + 1  # a pipe cannot be read twice
    return first_without_partner(_lengths(longer), _lengths(shorter), paired=paired, beyond=beyond)


def _lengths(file: File) -> Iterator[int]:
    return (len(raw.rstrip(b"\r\n")) for raw in raw_lines(file))


def pairs(
    split: Parallel,
    *,
    base: Path,
    on_bad: OnBad = "refuse",
    trim: bool = False,
    counts: Counts,
    keep_empty: bool = False,
    problems: list[str] | None = None,
    belongs: Callable[[Pair], bool] = lambda _: True,
) -> Iterator[Pair]:
    """The split's pairs, streaming. What is left out or mended is counted; what the rules refuse raises a UsageError.

    Two files of unequal length are noticed at their end. `keep_empty` hands on pairs with an empty side too, for
    evaluation, where each line counts. With `problems`, what would be refused is told there and read on past.
    Pairs for which `belongs` says no are of another split in the same files.
    """
    reader = _Reader(base, on_bad, trim, counts, problems, split.first and counts.lines + split.first)
    for rows in reader.rows(split):
        try:
            for pair in rows:
                counts.lines += 1
                if not belongs(pair):
                    counts.other_split += 1
                    continue
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
    if reader.last is not None and not problems:
        counts.not_there += max(0, reader.last - counts.lines)


def _blank(text: str) -> bool:
    return not text or text.isspace()
