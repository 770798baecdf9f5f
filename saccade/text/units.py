"""Encoding many texts at once: each is cut into units that no token crosses, and a unit is encoded once.

A space that stands before something visible begins a new word (see `layout.WORDS`), so the text between two such spaces
is encoded the same alone as in its line. Natural text repeats its units: almost all are found in a table.
"""

import re
from array import array
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import tokenizers as library

# White space as the library's \s has it; Python's own \s also takes U+001C to U+001F for space.
SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_BEGINNING = re.compile(f"(?= [^{SPACE}])")
_CACHED_UNITS = 1 << 18
_CACHED_CHARACTERS = 1 << 24
LONG = 1000
"""Characters from which on a unit is not kept in the table."""
WINDOW = 1 << 15
"""Characters of a longer unit that are encoded at a time, where its tokens can be put together."""
OVERLAP = 1 << 9
ITEM = array("I").itemsize
_CONTINUATION = range(0x80, 0xC0)
_ELSEWHERE = "\n"  # no word that was cut at white space begins so
_AT_ONCE = 512  # texts whose units are held at a time: more would cost more, in memory to be looked after


def cut(text: str) -> list[str]:
    """The text's units, each with the space before it; joined they are the text."""
    return _BEGINNING.split(text)


class UnitEncoder:
    """Encodes normalised texts. The library's tokenizer must not normalise them again."""

    def __init__(
        self, tokenizer: library.Tokenizer, token_bytes: Sequence[bytes], *, lossless: bool, merges: bool
    ) -> None:
        """`lossless`: tokens hold the text's bytes. `merges`: tokens arise by merging neighbours, best rank first."""
        self._library = tokenizer
        self._bytes = token_bytes
        self._sizes = np.array([len(each) for each in token_bytes]) if lossless else None
        self._merges = merges
        self._table: dict[str, bytes] = {}
        self._characters = 0

    def encode(self, texts: Sequence[str]) -> list[bytes]:
        """For each text its ids, as an array("I") lays them out."""
        rows: list[bytes] = []
        for begin in range(0, len(texts), _AT_ONCE):
            rows += self._encode(texts[begin : begin + _AT_ONCE])
        return rows

    def _encode(self, texts: Sequence[str]) -> list[bytes]:
        keys = [_keys(text) for text in texts]
        table = self._with(set().union(*(each for each in keys if each is not None)))
        return [
            self._encode_large(text) if each is None else b"".join(map(table.__getitem__, each))
            for text, each in zip(texts, keys, strict=True)
        ]

    def _with(self, keys: set[str]) -> dict[str, bytes]:
        """The table with these keys in it. A full one is replaced, not emptied: another thread may be reading it."""
        if len(self._table) > _CACHED_UNITS or self._characters > _CACHED_CHARACTERS:
            self._table, self._characters = {}, 0
        table = self._table
        new = [key for key in keys if key not in table]
        elsewhere = [key for key in new if key[0] == _ELSEWHERE]
        words = [key for key in new if key[0] != _ELSEWHERE]
        table.update(zip(elsewhere, self._encoded([key[1:] for key in elsewhere]), strict=True))
        table.update(zip(words, self._encoded_together([" " + word for word in words]), strict=True))
        self._characters += sum(map(len, new))
        return table

    def _encode_large(self, text: str) -> bytes:
        """A text with a very long unit."""
        units = cut(text)
        short = list({unit for unit in units if len(unit) <= LONG})
        known = dict(zip(short, self._encoded(short), strict=True))
        return b"".join(known[unit] if unit in known else self._long(unit) for unit in units)

    def _encoded(self, units: list[str]) -> list[bytes]:
        encodings = self._library.encode_batch_fast(units, add_special_tokens=False)
        return [array("I", encoding.ids).tobytes() for encoding in encodings]

    def _encoded_together(self, units: list[str]) -> list[bytes]:
        """The same, for units that each begin with a space: as one text, whose ids are told apart by their bytes."""
        if self._sizes is None or not units:
            return self._encoded(units)
        ids = np.frombuffer(self._encoded(["".join(units)])[0], dtype=np.uint32)
        ends = np.cumsum([len(unit.encode()) for unit in units])
        after = (np.searchsorted(np.cumsum(self._sizes[ids]), ends) + 1) * ITEM
        raw = ids.tobytes()
        return [raw[begin:end] for begin, end in pairwise([0, *after.tolist()])]

    def _long(self, unit: str) -> bytes:
        joined = self._joined(unit) if self._merges and len(unit) > WINDOW else None
        return self._encoded([unit])[0] if joined is None else joined

    def _joined(self, unit: str) -> bytes | None:
        """A long unit, window by window, so that time is linear in its length; None where the windows do not meet.

        Each window begins where a token of the one before it begins, and must begin with the same token. Then they join
        there: any two neighbours among the tokens of both are neighbours in one of the two, where no merge crossed
        from one to the other, and the first merge that crossed in the whole would be between two such neighbours.
        """
        done: list[bytes] = []
        begin, end = 0, WINDOW
        ids = array("I", self._encoded([unit[:end]])[0])
        while end < len(unit):
            first, characters = self._tail(ids)
            begin = end - characters
            end = begin + WINDOW
            following = array("I", self._encoded([unit[begin:end]])[0])
            if following[0] != ids[first]:
                return None
            done.append(ids[:first].tobytes())
            ids = following
        return b"".join([*done, ids.tobytes()])

    def _tail(self, ids: "array[int]") -> tuple[int, int]:
        """The last token at least `OVERLAP` bytes before the end that begins a character; and characters from there."""
        size = 0
        for first in range(len(ids) - 1, 0, -1):
            size += len(self._bytes[ids[first]])
            if size >= OVERLAP and self._bytes[ids[first]][0] not in _CONTINUATION:
                break
        return first, len(b"".join(self._bytes[each] for each in ids[first:]).decode())


def _keys(text: str) -> list[str] | None:
    """The text's units as keys of the table; None where one is too long for it.

    A word alone stands for itself with a space in front, as most are found; a unit that is anything else has a mark.
    """
    words = text.split()
    if " ".join(words) == text:
        if words:
            words[0] = _ELSEWHERE + words[0]
    else:
        words = [_ELSEWHERE + unit for unit in cut(text)]
    return None if len(text) > LONG and max(map(len, words)) > LONG else words
