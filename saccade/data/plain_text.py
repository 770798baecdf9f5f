"""Plain text in, for language models: files, one behind the other, as lines, paragraphs or whole files.

What is read as one ends in END: that is how a model learns where such stretches end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import Field, model_validator

from saccade.config import Section
from saccade.data.files import Counts, File, OnBad, Paths, locate, mended, raw_lines
from saccade.errors import UsageError

Ends = Literal["line", "paragraph", "file"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Part = tuple[Share, Share]


class TextParts(Section):
    """One text for all splits: from which to which share of its characters each goes."""

    train: Part
    """What the model learns from: `[0, 0.9]` are the first nine tenths. A line belongs to the part it begins in."""
    valid: Part
    """What the best checkpoint is chosen by."""
    test: Part | None = None
    """What the finished model is scored on; it may be the validation text, where others have no test text either."""

    @model_validator(mode="after")
    def _apart(self) -> "TextParts":
        for name, part in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            if part is not None and not part[0] < part[1]:
                raise ValueError(f"{name} is {list(part)}: a part ends behind its beginning")
            if name != "train" and part is not None and part[0] < self.train[1] and self.train[0] < part[1]:
                both = f"train is {list(self.train)} and {name} is {list(part)}"
                raise ValueError(f"{both}: what is scored must not be learnt")
        return self


class TextData(Section):
    """Plain text in your own files."""

    kind: Literal["text"] = "text"
    """Text in files."""
    train: Paths
    """The file the model learns from; or a list of files. Plain, .gz or .xz."""
    valid: Paths | None = None
    """What the best checkpoint is chosen by; must be given where `parts` is not."""
    test: Paths | None = None
    """What the finished model is scored on."""
    parts: TextParts | None = None
    """Of a text that comes in one: `train` names it, and here stands which part of it each split is."""
    ends: Ends = "line"
    """What ends in the end mark: each line; each paragraph, whose lines are joined by spaces; or each file, whose line
    feeds are tokens like any other."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8: `refuse`, or `repair` (they become U+FFFD)."""

    @model_validator(mode="after")
    def _has_splits(self) -> "TextData":
        if self.parts is None and self.valid is None:
            raise ValueError("valid is not given: name the files, or say by parts what part of train is validated on")
        if self.parts is not None and (self.valid is not None or self.test is not None):
            raise ValueError("parts says which part of train each split is: leave valid and test out")
        return self

    def of_split(self, split: Literal["train", "valid", "test"]) -> tuple[Paths | None, Part | None]:
        """Its files, None where it has none, and which part of them."""
        match split, self.parts:
            case _, None:
                return getattr(self, split), None
            case "train", parts:
                return self.train, parts.train
            case "valid", parts:
                return self.train, parts.valid
            case "test", parts:
                return (None, None) if parts.test is None else (self.train, parts.test)


class Stretch(NamedTuple):
    """A part of a text that is tokenised by itself."""

    text: str
    ended: bool = True
    """END stands behind it."""


def measured(parts: Iterable[Stretch]) -> Counter[str]:
    """How many words, characters, bytes and ends there are: an end is one of each, and a line feed a word, too."""
    found: Counter[str] = Counter()
    for text, ended in parts:
        found["words"] += len(text.split()) + text.count("\n") + ended
        found["characters"] += len(text) + ended
        found["bytes"] += len(text.encode()) + ended
        found["ends"] += ended
    return found


def file_lines(name: str, *, base: Path, on_bad: OnBad, counts: Counts) -> Iterator[str]:
    """The lines of one file, without their ends; what had to be mended is counted."""
    file = locate(name, base)
    with closing(raw_lines(file)) as rows:
        for number, raw in enumerate(rows, start=1):
            yield _decoded(raw, number, file, on_bad, counts)


def _decoded(raw: bytes, number: int, file: File, on_bad: OnBad, counts: Counts) -> str:
    raw, repairs = mended(raw, number == 1)
    place = f"{file.name}:{number}"
    for kind in repairs:
        counts.note(kind, place)
    counts.lines += 1
    counts.kept += 1
    if b"\0" in raw:
        counts.note("nul", place)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        counts.note("invalid_utf8", place)
        if on_bad == "refuse":
            encoding = "utf-16" if number == 1 and raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
            raise UsageError(
                f"{place}: byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not valid UTF-8. Convert "
                f"the file, for example with `iconv -f {encoding} -t utf-8`, or set data.on_bad to repair to read "
                "U+FFFD there."
            ) from None
        return raw.decode("utf-8", errors="replace")


def stretches(lines: Iterable[str], ends: Ends) -> Iterator[Stretch]:
    """The lines of one text as what is read as one."""
    match ends:
        case "line":
            yield from map(Stretch, lines)
        case "paragraph":
            held: list[str] = []
            for line in lines:
                words = line.strip()
                if words:
                    held.append(words)
                elif held:
                    yield Stretch(" ".join(held))
                    held = []
            if held:
                yield Stretch(" ".join(held))
        case "file":
            any_lines = False
            for line in lines:
                any_lines = True
                yield Stretch(line + "\n", ended=False)
            if any_lines:
                yield Stretch("")


def beginning(text: str, ends: Ends) -> list[Stretch]:
    """A text that is to be gone on with: as `stretches` has it, but what comes last is open."""
    *whole, last = text.split("\n")
    match ends:
        case "line":
            return [*map(Stretch, whole), Stretch(last, ended=False)]
        case "file":
            return [*(Stretch(line + "\n", ended=False) for line in whole), Stretch(last, ended=False)]
        case "paragraph":
            found = list(stretches([*whole, last], ends))
            if last.strip() and found:
                # What is still open keeps the space at its end: the next word may come without one.
                space = last[len(last.rstrip()) :]
                found[-1] = Stretch(found[-1].text + space, ended=False)
            return found


def read_text(
    names: Iterable[str], *, base: Path, ends: Ends, on_bad: OnBad, counts: Counts, part: Part | None = None
) -> Iterator[Stretch]:
    """The files of a split, streaming; or a part of them, for which they are first read to be measured."""
    names = list(names)
    cut = None if part is None else _cut(names, part, base=base, on_bad=on_bad)
    for name in names:
        lines = file_lines(name, base=base, on_bad=on_bad, counts=counts)
        yield from stretches(lines if cut is None else cut.within(lines, counts), ends)


@dataclass
class _Cut:
    """Keeps the lines of a text that begin behind its first so many characters and before others."""

    first: int
    last: int
    read: int = 0

    def within(self, lines: Iterable[str], counts: Counts) -> Iterator[str]:
        for line in lines:
            begins = self.read
            self.read += len(line) + 1
            if self.first <= begins < self.last:
                yield line
            else:
                counts.kept -= 1
                counts.other_split += 1


def _cut(names: Iterable[str], part: Part, *, base: Path, on_bad: OnBad) -> _Cut:
    measured = (file_lines(name, base=base, on_bad=on_bad, counts=Counts()) for name in names)
    characters = sum(len(line) + 1 for lines in measured for line in lines)
    return _Cut(*(int(characters * share) for share in part))
