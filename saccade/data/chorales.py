"""Polyphonic music as text: Bach's chorales, note by note, from the JSON that they are passed around in.

A piece is a line. A moment in time, a frame, is its sounding pitches as MIDI numbers, the highest first, and a bar `|`;
so a language model of words gives every chord a probability, however many voices it has.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from saccade.config import Names, Section
from saccade.data.files import Counts, locate, raw_lines
from saccade.errors import UsageError

Split = Literal["train", "valid", "test"]
FRAME = "|"
PITCHES = range(128)
SILENT = -1  # as one of the two public encodings marks a voice that rests


class ChoralesData(Section):
    """Polyphonic music in one JSON file: {"train": [piece], "valid": …, "test": …}, a piece being a list of chords."""

    kind: Literal["chorales"] = "chorales"
    """Music in a JSON file."""
    file: Annotated[str, Names.FILE]
    """The file; .gz and .xz need not be unpacked."""
    transpose: int = Field(0, ge=0, le=11)
    """Training pieces are also read so many semitones up and down, one by one."""


def pieces(data: ChoralesData, split: Split, *, base: Path, counts: Counts) -> Iterator[str]:
    """The pieces of a split, one a line."""
    file = locate(data.file, base)
    found = _read(b"".join(raw_lines(file)), file.name)
    if split not in found:
        raise UsageError(f"{file.name}: has no {split!r}; there are {', '.join(found) or 'no splits'}.")
    steps = range(-data.transpose, data.transpose + 1) if split == "train" else range(1)
    for number, piece in enumerate(found[split]):
        for step in steps:
            counts.lines += 1
            counts.kept += 1
            yield line_of(piece, f"{file.name}: {split} piece {number + 1}", step)


def _read(content: bytes, name: str) -> dict[str, list[Any]]:
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{name}: is not valid JSON ({error}).") from None
    if not isinstance(found, dict) or not all(isinstance(pieces, list) for pieces in found.values()):
        raise UsageError(f'{name}: must hold an object of lists of pieces, {{"train": [piece, …], …}}.')
    return found


def line_of(piece: Any, place: str, step: int = 0) -> str:
    """A piece as a line, its pitches raised by so many semitones."""
    frames = piece if isinstance(piece, list) else [None]
    words: list[str] = []
    for number, frame in enumerate(frames):
        pitches: list[Any] = frame if isinstance(frame, list) else [None]
        if not all(type(pitch) is int and (pitch == SILENT or pitch + step in PITCHES) for pitch in pitches):
            raise UsageError(
                f"{place}, frame {number + 1}: is {str(frame)[:40]}; a frame is a list of MIDI pitches, 0 to 127 "
                f"({SILENT} for a voice that rests), transposed ones too."
            )
        words += [str(pitch) for pitch in sorted({p + step for p in pitches if p != SILENT}, reverse=True)]
        words.append(FRAME)
    return " ".join(words)


def frames_of(line: str) -> int:
    return line.split().count(FRAME)
