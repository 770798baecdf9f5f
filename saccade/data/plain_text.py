"""Plain text in, for language models: files, one behind the other, as lines, paragraphs or whole files.

What is read as one ends in END: that is how a model learns where such stretches end.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal, NamedTuple

from saccade.config import Section
from saccade.data.files import Counts, File, OnBad, Paths, locate, mended, raw_lines
from saccade.errors import UsageError

Ends = Literal["line", "paragraph", "file"]


class TextData(Section):
    """Plain text in your own files."""

    kind: Literal["text"] = "text"
    """Text in files."""
    train: Paths
    """The file the model learns from; or a list of files. Plain, .gz or .xz."""
    valid: Paths
    """What the best checkpoint is chosen by."""
    test: Paths | None = None
    """What the finished model is scored on."""
    ends: Ends = "line"
    """What ends in the end mark: each line; each paragraph, whose lines are joined by spaces; or each file, whose line
    feeds are tokens like any other."""
    on_bad: OnBad = "refuse"
    """What happens to bytes that are not UTF-8: `refuse`, or `repair` (they become U+FFFD)."""


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


def read_text(names: Iterable[str], *, base: Path, ends: Ends, on_bad: OnBad, counts: Counts) -> Iterator[Stretch]:
    """The files of a split, streaming."""
    for name in names:
        yield from stretches(file_lines(name, base=base, on_bad=on_bad, counts=counts), ends)
