"""How often the better of two texts is found the more probable one, by what they differ in."""

from collections.abc import Sequence

from saccade.errors import UsageError
from saccade.metrics.interval import wilson
from saccade.metrics.score import Score

OVERALL = "all"


def contrast(good: Sequence[float], bad: Sequence[float], phenomena: Sequence[str]) -> dict[str, Score]:
    """By phenomenon, in the order they first came, and at the end of all: the share of pairs ranked right, in percent.

    `good` and `bad` are log-probabilities. A tie is not right: a model that tells nothing apart must not look well.
    """
    if not len(good) == len(bad) == len(phenomena):
        raise UsageError(f"contrast: there are {len(good)} good, {len(bad)} bad and {len(phenomena)} phenomena.")
    if not phenomena:
        raise UsageError("contrast: there are no pairs to rank.")
    right = [one > other for one, other in zip(good, bad, strict=True)]
    found = {}
    for name in dict.fromkeys(phenomena):
        if name != OVERALL:
            found[name] = _accuracy(name, [each for each, of in zip(right, phenomena, strict=True) if of == name])
    return found | {OVERALL: _accuracy(OVERALL, right)}


def _accuracy(name: str, right: Sequence[bool]) -> Score:
    low, high = wilson(sum(right), len(right))
    return Score(name, 100 * sum(right) / len(right), 100 * low, 100 * high, None, len(right))
