"""Raw text → words with their places: a few rules that hold for texts as treebanks and newswire corpora cut them.

1. White space separates words, and is part of none.
2. An address of the web or of mail stays whole.
3. Numbers stay whole with the points, commas, colons, slashes and hyphens inside them (3.14, 10:30, 1996-08-22).
4. Letters and marks with digits among them make a word; hyphens and points inside it stay (twenty-one, U.S., e.g.).
5. English clitics are words of their own, as in the Penn Treebank: do n't, it 's, we 're, they 'll.
6. Every other sign is a word; of one sign repeated (..., --, !!) all together.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import NamedTuple

_CLITIC = re.compile(r"(?i)(?P<not>n['’]t)$|(?P<other>['’](?:s|re|ve|ll|d|m))$")


class Piece(NamedTuple):
    """A word and the characters of the text that it is: from `begin` up to but not including `end`."""

    text: str
    begin: int
    end: int


def cut_words(text: str) -> list[Piece]:
    """Every character that is no white space is in one of them."""
    pieces: list[Piece] = []
    for found in _words().finditer(text):
        begin, end = found.span()
        clitic = _CLITIC.search(text[begin:end]) if found.lastgroup == "word" else None
        if clitic is not None and clitic.start() > 0:
            pieces.append(Piece(text[begin : begin + clitic.start()], begin, begin + clitic.start()))
            begin += clitic.start()
        pieces.append(Piece(text[begin:end], begin, end))
    return pieces


def split_words(text: str) -> list[Piece]:
    """Words that white space separates: for text that is cut already."""
    return [Piece(found[0], *found.span()) for found in re.finditer(r"\S+", text)]


@cache
def _words() -> re.Pattern[str]:
    letter = r"[^\W\d_]"
    stretch = rf"\w[\w{''.join(_marks())}]*"
    return re.compile(
        rf"""
        (?P<web>(?:https?://|www\.)[^\s<>"]*[^\s<>"'.,;:!?)\]}}]
            | [\w.+-]{{1,64}}@\w[\w-]{{0,62}}(?:\.\w[\w-]{{0,62}})+)
        | (?P<number>\d+(?:[.,:/-]\d+)*)(?!\w)
        | (?P<short>(?:{letter}\.){{2,}})
        | (?P<word>{stretch}(?:[-.'’]{stretch})*)
        | (?P<sign>(?P<one>[^\w\s])(?P=one)*)
        """,
        re.VERBOSE,
    )


def _marks() -> Iterator[str]:
    """Ranges of the marks that stand within words, as Indic vowel signs, which Python takes for no letters."""
    yield "\u200c\u200d"  # what joins letters or keeps them apart
    marks = (code for code in range(0x300, 0x1F000) if unicodedata.category(chr(code))[0] == "M")
    for _, group in groupby(enumerate(marks), key=lambda pair: pair[1] - pair[0]):
        codes = [code for _, code in group]
        yield f"{chr(codes[0])}-{chr(codes[-1])}"
