"""Random bits that are a pure function of their key: one after the other, or for whole arrays of keys at once."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]
_STEP = np.uint64(0x9E3779B97F4A7C15)


def philox(seed: int, of: int, *, purpose: int = 0, row: int = 0) -> np.random.Philox:
    """A counter-based generator (Salmon et al. 2011) keyed by the seed and by what it draws for, as an epoch.

    `purpose` and `row` tell apart what is drawn for one and the same key. Of an epoch: 0 the order of rows, 1 choices
    of a row, 2 lengths of chunks or which words a tagger does not see, 3 the order of windows. Whoever wants numbers
    that no version of numpy changes takes `random_raw`.
    """
    key, counter = (np.array(numbers, dtype=np.uint64) for numbers in ([seed, of], [0, 0, row, purpose]))
    return np.random.Philox(key=key, counter=counter)


def keyed_bits(seed: int, epoch: int, purpose: int, *keys: NDArray[np.integer[Any]]) -> Bits:
    """64 bits for each place of the keys, arrays of one shape: the same whenever, and beside whatever, they are drawn.

    `purpose` tells apart what is drawn for one and the same place.
    """
    bits = np.zeros(1, dtype=np.uint64)
    for number in (seed, epoch, purpose):
        bits = _mixed(bits + np.uint64(number % (1 << 64)))
    for key in keys:
        bits = _mixed(bits + key.astype(np.uint64))
    return bits


def shares(bits: Bits) -> NDArray[np.float64]:
    """Numbers of [0, 1), as finely told apart as floats there are."""
    numbers: NDArray[np.float64] = (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers


def _mixed(x: Bits) -> Bits:
    """A step of SplitMix64 (Steele et al. 2014): each bit of what comes out hangs on all that went in."""
    x = x + _STEP
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
