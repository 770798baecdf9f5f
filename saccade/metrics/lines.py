"""Outputs beside what is right for them, line by line; and a score of what was counted on each line."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence, bootstrap_mean, bootstrap_sums, resampling, wilson
from saccade.metrics.score import Score

References = Sequence[str | Sequence[str]]
"""For each output what is right: one line, or several that are equally right."""
Counts = np.ndarray[Any, Any]


def paired(name: str, hypotheses: Sequence[str], references: References) -> list[tuple[str, tuple[str, ...]]]:
    """Each output with all that is right for it; `name` is the metric that asks."""
    if isinstance(hypotheses, str) or isinstance(references, str):
        raise UsageError(f"{name}: hypotheses and references must each be a list of lines, not one string.")
    if len(hypotheses) != len(references):
        raise UsageError(
            f"{name}: hypotheses and references must pair up line by line; got {len(hypotheses):,} hypotheses "
            f"and {len(references):,} references."
        )
    if not hypotheses:
        raise UsageError(f"{name}: there is nothing to score: hypotheses and references are empty.")
    several = [(each,) if isinstance(each, str) else tuple(each) for each in references]
    if not all(several):
        raise UsageError(f"{name}: line {several.index(()) + 1} has no reference; each output needs at least one.")
    return list(zip(hypotheses, several, strict=True))


def how_many(pairs: Sequence[tuple[str, tuple[str, ...]]]) -> str:
    """References of a line, as a signature tells it."""
    numbers = {len(right) for _, right in pairs}
    return f"nrefs:{numbers.pop()}" if len(numbers) == 1 else "nrefs:var"


def score_of_shares(name: str, right: int, count: int, signature: str | None) -> Score:
    """The percentage of lines that are right, with Wilson's interval."""
    low, high = wilson(right, count)
    return Score(name, 100 * right / count, 100 * low, 100 * high, signature, count)


def score_of_means(name: str, values: Sequence[float], signature: str, *, confidence: Confidence) -> Score:
    """The mean of a share on every line, in percent."""
    how = resampling(confidence, len(values))
    low, high = (math.nan, math.nan) if how is None else bootstrap_mean(values, samples=how.samples, seed=how.seed)
    return Score(name, 100 * float(np.mean(values)), 100 * low, 100 * high, signature, len(values))


def score_of_sums(
    name: str,
    counts: Sequence[Sequence[float]],
    share: Callable[[Counts], Counts],
    signature: str,
    *,
    confidence: Confidence,
) -> Score:
    """A share that is made of sums over the lines, in percent: long lines weigh more than short ones."""
    counts_NK = np.array(counts, dtype=np.float64)
    value = float(share(counts_NK.sum(0, keepdims=True))[0])
    low = high = math.nan
    if how := resampling(confidence, len(counts)):
        low, high = bootstrap_sums(counts_NK, share, samples=how.samples, seed=how.seed)
    return Score(name, 100 * value, 100 * low, 100 * high, signature, len(counts))


def ratio(sums_SK: Counts) -> Counts:
    """Of two sums; nothing out of nothing is 0."""
    return _quotient(sums_SK[:, 0], sums_SK[:, 1])


def f1(sums_SK: Counts) -> Counts:
    """2 · found / (right + written) of three sums: found, right, written; 0 where there are none."""
    return _quotient(2 * sums_SK[:, 0], sums_SK[:, 1] + sums_SK[:, 2])


def _quotient(one_S: Counts, other_S: Counts) -> Counts:
    values_S = np.zeros(len(one_S))
    np.divide(one_S, other_S, out=values_S, where=other_S > 0)
    return values_S
