"""Characters as phrases see them, and characters that so far have only some of their bytes.

A token may spell a part of a character (a byte of it). What is open then is told apart only as far as it matters: by
what the character can still become. Shapes: Q open characters (0: none is open), H = 128 bytes from 0x80, Y symbols.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

WORD, SIGN, WHITE = 0, 1, 2  # the symbols of every character that no phrase holds
OPEN, BROKEN = -1, -2
"""In place of a symbol: the character goes on; or these bytes are none, and are read as U+FFFD."""
REPLACEMENT = 0xFFFD
POINTS = 0x110000
HIGH = 0x80
_ASSIGNED = (range(0x32400), range(0xE0000, 0xE0200))  # no letter, digit or mark stands elsewhere (Unicode 17)
_BLOCK = 64  # the last byte of a character has six bits
_SURROGATES = range(0xD800 // _BLOCK, 0xE000 // _BLOCK)

Ints = NDArray[np.int64]


def symbol_of(character: str) -> int:
    """WORD for letters, their marks and digits; WHITE for white space; SIGN for all else."""
    if character.isspace():
        return WHITE
    return WORD if unicodedata.category(character)[0] in "LMN" else SIGN


@cache
def symbols() -> Ints:
    """The symbol of every code point."""
    every = np.full(POINTS, SIGN, dtype=np.int64)
    for part in _ASSIGNED:
        every[part.start : part.stop] = [symbol_of(chr(point)) for point in part]
    every.flags.writeable = False
    return every


@dataclass(frozen=True)
class OpenCharacters:
    """What a byte from 0x80 does to an open character."""

    to_QH: Ints
    """What is open behind it."""
    symbol_QH: Ints
    """What it completes; OPEN; or BROKEN: what was open is U+FFFD, and the byte begins anew; where none was open, the
    byte itself is."""
    reach_QY: NDArray[np.bool_]
    """The symbols that it can still become."""


def open_characters(special: Mapping[int, int], kinds: int) -> OpenCharacters:
    """`special`: code points that have a symbol of their own. `kinds`: how many symbols there are."""
    plain = _plain()
    to, symbol = list(plain.to_QH), list(plain.symbol_QH)
    reach = list(np.pad(plain.reach_QY, ((0, 0), (0, kinds - 3))))
    for point, own in special.items():
        if point < HIGH:
            continue
        *firsts, last = (byte - HIGH for byte in chr(point).encode())
        at = 0
        for byte in firsts:  # a state that others share is copied, so that what is special is so for this one alone
            following = int(to[at][byte])
            if following < len(plain.to_QH):
                for each in (to, symbol, reach):
                    each.append(each[following].copy())
                to[at] = to[at].copy()
                to[at][byte] = following = len(to) - 1
            at = following
            reach[at][own] = True
        symbol[at][last] = own
    return OpenCharacters(np.stack(to), np.stack(symbol), np.stack(reach))


@cache
def _plain() -> OpenCharacters:
    """Where no code point has a symbol of its own."""
    blocks = symbols().reshape(-1, _BLOCK).astype(np.uint8)  # those of a block share all bytes but the last
    raw, first, block = np.unique(blocks.view(f"V{_BLOCK}").reshape(-1), return_index=True, return_inverse=True)
    block = block.reshape(-1)
    thirds, third = np.unique(block[0x10000 // _BLOCK :].reshape(-1, _BLOCK), axis=0, return_inverse=True)
    # States: none open; one byte is missing; two are missing, of three; two, of four; three, of four.
    one, two = 1, 1 + len(raw)
    two_of_four = two + 16
    three = two_of_four + len(thirds)
    to_QH = np.zeros((three + 5, HIGH), dtype=np.int64)
    symbol_QH = np.full((three + 5, HIGH), BROKEN, dtype=np.int64)

    def goes_on(state: int | slice, byte: int | slice, to: int | Ints) -> None:
        to_QH[state, byte] = to
        symbol_QH[state, byte] = OPEN

    goes_on(0, slice(0x42, 0x60), one + block[2:32])  # C2 to DF begin two bytes, E0 to EF three, F0 to F4 four
    goes_on(0, slice(0x60, 0x70), two + np.arange(16))
    goes_on(0, slice(0x70, 0x75), three + np.arange(5))
    symbol_QH[one:two, :_BLOCK] = blocks[first]
    for at in range(32, 16 * _BLOCK):  # from 32: a character is spelt no longer than it need be
        if at not in _SURROGATES:
            goes_on(two + at // _BLOCK, at % _BLOCK, int(one + block[at]))
    goes_on(slice(two_of_four, three), slice(0, _BLOCK), one + thirds)
    for at, which in enumerate(third.reshape(-1), start=16):
        goes_on(three + at // _BLOCK, at % _BLOCK, int(two_of_four + which))
    return OpenCharacters(to_QH, symbol_QH, _reach(to_QH, symbol_QH))


def _reach(to_QH: Ints, symbol_QH: Ints) -> NDArray[np.bool_]:
    reach_QY = np.stack([(symbol_QH == symbol).any(1) for symbol in (WORD, SIGN, WHITE)], axis=1)
    for _ in range(3):  # no character has more than four bytes
        reach_QY |= (reach_QY[to_QH] & (symbol_QH == OPEN)[:, :, None]).any(1)
    return reach_QY
