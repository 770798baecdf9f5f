"""How varied outputs are: distinct-n (Li et al. 2016)."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise

from saccade.errors import UsageError
from saccade.metrics.score import Score

_WORDS = re.compile(r"\w+|[^\w\s]")


def distinct_1(hypotheses: Sequence[str]) -> Score:
    """Different words per 100 words that were written."""
    return _distinct(1, hypotheses)


def distinct_2(hypotheses: Sequence[str]) -> Score:
    """Different pairs of neighbouring words per 100 words that were written."""
    return _distinct(2, hypotheses)


def _distinct(n: int, hypotheses: Sequence[str]) -> Score:
    """As in the paper, divided by the number of words, not of n-grams; n-grams do not reach from line to line.

    No interval: a resample holds lines twice, which makes it less varied than any text of its size.
    """
    if isinstance(hypotheses, str) or not hypotheses:
        raise UsageError(f"distinct_{n}: hypotheses must be a list of at least one line.")
    seen: set[tuple[str, ...]] = set()
    total = 0
    for line in hypotheses:
        words = _WORDS.findall(line.lower())
        total += len(words)
        seen.update(pairwise(words) if n == 2 else ((word,) for word in words))
    value = 100 * len(seen) / total if total else 0.0
    return Score(f"distinct-{n}", value, math.nan, math.nan, "case:lc|tok:words|per:words", len(hypotheses))
