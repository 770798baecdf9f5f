"""Results to stdout, everything else to stderr, UTF-8 always; lines in from files and pipes, files out whole or not."""

import io
import json
import os
import select
import sys
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from saccade.errors import SaccadeError, UsageError

READ_AT_ONCE = 1 << 18
PAUSE = 0.05
"""Seconds without input after which what came so far is answered: a program may wait for the answer to go on."""
_BREAKS = {"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def speak_utf8() -> None:
    """Whatever the locale says; and a line ends in a line feed on every system.

    A stream that was closed before the program began is empty, but for stdout: results must go somewhere.
    """
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for as long as the process lives
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115
    if sys.stdout is None:
        raise UsageError("standard output is closed: there is nowhere to write results. Leave it open, or name a file.")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="replace", newline="\n")


def say(text: str) -> None:
    """A result, or a line of one."""
    sys.stdout.write(text + "\n")


def tell(text: str) -> None:
    """Anything that is not a result. Where it cannot be written, as when its reader left, the work goes on untold."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stderr.fileno())
        os.close(nowhere)


def to_json(value: Any, *, indent: int | None = None) -> str:
    """JSON of finite numbers; no character in it ends a line for any reader."""
    text = json.dumps(_finite(value), ensure_ascii=False, indent=indent, allow_nan=False)
    for character, escape in _BREAKS.items():
        text = text.replace(character, escape)
    return text


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: they become null."""
    match value:
        case float():
            return value if value - value == 0 else None
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case _:
            return value


def argument_text(text: str) -> str:
    """Text from the command line; bytes there that are no UTF-8 become U+FFFD, as in a file."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


class Feed:
    """Lines of bytes as they come; knows when their giver pauses."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._lines: deque[bytes] = deque()
        self._begun: list[bytes] = []
        self._over = False
        try:
            self._handle: int | None = stream.fileno()
        except OSError:  # not a file of the system: it never pauses
            self._handle = None

    def readline(self) -> bytes:
        """The next line with its line feed; nothing at the end."""
        while not self._lines and not self._over:
            self._read()
        return self._lines.popleft() if self._lines else b""

    def _read(self) -> None:
        came = cast(io.BufferedReader, self._stream).read1(READ_AT_ONCE)
        *ended, rest = came.split(b"\n")
        for piece in ended:
            self._lines.append(b"".join((*self._begun, piece, b"\n")))
            self._begun = []
        if rest:
            self._begun.append(rest)
        if not came:
            self._over = True
            if self._begun:
                self._lines.append(b"".join(self._begun))

    def pauses(self) -> bool:
        """Whether no whole line is here and none seems to be on its way."""
        if self._lines or self._handle is None:
            return False
        return not self._over and not select.select([self._handle], [], [], PAUSE)[0]


class _FileFeed:
    """A plain, gzip or xz file, which does not pause."""

    def __init__(self, path: Path) -> None:
        from saccade.data.files import File, raw_lines

        self._lines = raw_lines(File(str(path), path.absolute()))

    def readline(self) -> bytes:
        return next(self._lines, b"")

    def pauses(self) -> bool:
        return False


class Input:
    """Lines of text from a file or stdin (`-`), in chunks, and what had to be done to them."""

    def __init__(self, path: Path | None) -> None:
        from_stdin = path is None or str(path) == "-"
        self.at_keyboard = from_stdin and sys.stdin.isatty()
        self.invalid = 0
        """Lines that were not valid UTF-8."""
        self._feed = Feed(sys.stdin.buffer) if from_stdin or path is None else _FileFeed(path)

    def chunks(self, lines: int = 2000, characters: int = 4_000_000) -> Iterator[list[str]]:
        """Chunks no larger than this; smaller where the input pauses."""
        held: list[str] = []
        size = 0
        for text in self.lines():
            held.append(text)
            size += len(text)
            if len(held) >= lines or size >= characters or self._feed.pauses():
                yield held
                held, size = [], 0
        if held:
            yield held

    def lines(self) -> Iterator[str]:
        from saccade.data.files import lines

        for line in lines(cast(BinaryIO, self._feed)):
            self.invalid += "invalid_utf8" in line.repairs
            yield line.text

    def tell_repairs(self, name: str = "input") -> None:
        if self.invalid:
            tell(f"{name}: {count(self.invalid, 'line')} not valid UTF-8; the bad bytes were read as U+FFFD.")


def read_lines(path: Path) -> list[str]:
    """All lines of a file, or of stdin where it is `-`."""
    source = Input(path)
    held = list(source.lines())
    source.tell_repairs(str(path))
    return held


def count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def tell_unread(lines: int, most: int) -> None:
    if lines:
        tell(f"{count(lines, 'line')} longer than {most:,} tokens: the rest of each was not read.")


@contextmanager
def output(path: Path | None) -> Generator[TextIO]:
    """Where results go: stdout, or a file that takes its place when all is written."""
    if path is None or str(path) == "-":
        yield sys.stdout
        return
    try:
        whole = not path.exists() or path.is_file()  # /dev/null and pipes are written to directly
        place = path.resolve() if whole else path  # a link stays, and what it leads to is written
        beside = place.with_name(f".{place.name}.{os.getpid()}.tmp") if whole else place
        file = beside.open("w", encoding="utf-8", errors="replace", newline="\n")
    except (OSError, RuntimeError) as error:  # RuntimeError: a link that leads to itself
        raise UsageError(f"{path}: cannot be written: {getattr(error, 'strerror', None) or error}.") from None
    try:
        with file:
            yield file
        if whole:
            beside.replace(place)
    except BrokenPipeError:  # that of another stream, written to beside this one, or of a reader who has seen enough
        raise
    except OSError as error:
        raise SaccadeError(f"{path}: cannot be written: {error.strerror or error}.") from None
    finally:
        if whole:
            beside.unlink(missing_ok=True)


def check_place(path: Path, option: str) -> None:
    """Before long work: whether a file can be written there. Folders that are missing are made."""
    if path.is_dir():
        raise UsageError(f"{option} {path}: is a folder. Name a file.")
    there = next(folder for folder in path.absolute().parents if folder.exists())
    if not there.is_dir():
        raise UsageError(f"{option} {path}: {there} is no folder, and nothing can be written under it.")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {path}: nothing may be written to {there}. Name a file in another folder.")


def chunks(text: list[str] | None, lines: Input | None, *, asking: str = "a line") -> Iterator[list[str]]:
    """The lines of arguments, or else of the input; at a keyboard it is told what to type."""
    if lines is None:
        yield [line for argument in text or () for line in argument_text(argument).split("\n")]
        return
    if lines.at_keyboard:
        tell(f"Type {asking} and press Enter; Ctrl-D ends.")
    yield from lines.chunks()
