"""The colours of attention, from 0 to 1: the same in every picture.

By day the nine blues of ColorBrewer (Harrower and Brewer 2003), which print well and are read alike by colour-blind
eyes; by night blues again, from the darkness of the page up to white.
"""

from typing import Any

import numpy as np

LIGHT = ("#f7fbff", "#deebf7", "#c6dbef", "#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#08519c", "#08306b")
DARK = ("#171e29", "#173a6b", "#1b5498", "#2a70bd", "#4a90d2", "#74afe3", "#a3cbef", "#d2e6f8", "#ffffff")
GOLD = "#e8590c"
"""The outline of a known alignment: the one warm colour, so that it is seen on every blue."""


def ramp(stops: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """256 colours (256, 3), evenly from the first stop to the last."""
    corners = np.array([[int(stop[i : i + 2], 16) for i in (1, 3, 5)] for stop in stops], dtype=np.float64)
    at = np.linspace(0, len(stops) - 1, 256)
    mixed = np.stack([np.interp(at, np.arange(len(stops)), corners[:, channel]) for channel in range(3)], axis=1)
    return np.rint(mixed).astype(np.uint8)
