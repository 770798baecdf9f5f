"""Where two files that should run in parallel first lose each other, judged by the lengths of their lines."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
LOOK = 10_000_000
"""Longer files are not searched: a bound on the memory this takes."""
STEPS = 32
"""Up to this many surplus lines may be missing one by one; more are taken to be missing in one block."""
SPREAD = 0.2
"""How far the log-ratio of two lengths of true partners usually lies from the corpus's: about a fifth."""


def first_without_partner(longer: Iterable[int], shorter: Iterable[int], *, paired: int, beyond: int) -> int:
    """The line, counted from 1, of the file with `paired + beyond` lines that probably has no partner in the other.

    Given are the lengths of both files' lines; those of a sentence and its translation go together (Gale and Church,
    1993). Partners are taken to be at a distance that grows from 0 to `beyond` lines; the likeliest places where it
    grows are found by dynamic programming.
    """
    if not 0 < paired <= LOOK - beyond:
        return paired + 1
    shifts = list(range(beyond + 1)) if beyond <= STEPS else [0, beyond]
    return _first_shift(_logarithms(longer, paired + beyond), _logarithms(shorter, paired), shifts) + 1


def _logarithms(lengths: Iterable[int], count: int) -> Floats:
    smoothed = np.fromiter(lengths, dtype=np.float64, count=count) + 5  # a one-word line is not far from a two-word one
    return np.log(smoothed, out=smoothed)


def _first_shift(long: Floats, short: Floats, shifts: list[int]) -> int:
    """At which pair the distance first grows, on the cheapest path through all shifts.

    best[i] is the least cost of the first i pairs at the present shift or a smaller one before, and first[i] the
    pair at which that path left shift 0. One more shift, entered at pair p: best'[i] = min over p <= i of
    best[p] + cost' of the pairs p to i, which with running sums is a running minimum.
    """
    typical = float(np.median(long) - np.median(short))
    n = len(short)
    best = _running_cost(long[:n], short, typical)
    first = np.arange(n + 1)
    for step, shift in enumerate(shifts[1:]):
        cost = _running_cost(long[shift : shift + n], short, typical)
        entered = best - cost
        least = np.minimum.accumulate(entered)
        at = np.maximum.accumulate(np.where(entered <= least, np.arange(n + 1), 0))  # of equals the last
        best, first = least + cost, at if step == 0 else first[at]
    return int(first[n])


def _running_cost(long: Floats, short: Floats, typical: float) -> Floats:
    distance = np.abs(long - short - typical) / SPREAD
    return np.concatenate([[0.0], np.cumsum(np.minimum(distance, 5.0))])  # bounded: one odd pair decides nothing
