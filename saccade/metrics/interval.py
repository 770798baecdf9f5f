"""How far a measured number may be from the true one: confidence intervals."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from saccade.errors import UsageError

_RESAMPLED_AT_ONCE = 2**22  # draws held in memory together: 32 MiB of indices


RESAMPLES, SEED = 1000, 12345


class Interval(NamedTuple):
    low: float
    high: float


@dataclass(frozen=True)
class Resampling:
    """How often what was scored is drawn anew, and by which random numbers; sacrebleu's, where nothing else is said."""

    samples: int = RESAMPLES
    seed: int = SEED

    def __post_init__(self) -> None:
        if self.samples < 100:
            raise UsageError(f"samples: {self.samples} resamples have no tails; there must be at least 100.")
        if self.seed < 0:
            raise UsageError(f"seed is {self.seed}; it must not be less than 0.")


Confidence = bool | Resampling
"""Whether a score comes with an interval, and of which resamples."""


def resampling(confidence: Confidence, lines: int) -> Resampling | None:
    """None where no interval is asked for, or none can be estimated: one line says nothing about another."""
    if lines < 2 or confidence is False:
        return None
    return Resampling() if confidence is True else confidence


def wilson(successes: float, n: float, *, confidence: float = 0.95) -> Interval:
    """The interval of a share, by Wilson (1927): it stays inside [0, 1] and has a width even at 0 of n and n of n."""
    _check_confidence(confidence)
    if n < 1 or not 0 <= successes <= n:
        raise UsageError(f"wilson: successes must lie between 0 and n, and n be at least 1; got {successes} of {n}.")
    z = NormalDist().inv_cdf(0.5 + confidence / 2)
    share = successes / n
    centre = (share + z * z / (2 * n)) / (1 + z * z / n)
    reach = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    # At the ends one bound is 0 or 1 exactly; the two equal terms are rounded apart.
    low = 0.0 if successes == 0 else centre - reach
    high = 1.0 if successes == n else centre + reach
    return Interval(low, high)


def wilson_of_lines(counts_N2: np.ndarray[Any, Any], *, confidence: float = 0.95) -> Interval:
    """The interval of a share of words, of which each line has some right and some in all; it has one at least.

    Words of one line are not independent. Wilson's interval is taken at the number of independent words whose share
    would vary as much as this one does from line to line (the effective sample size, Kish 1965; for intervals of shares
    Korn & Graubard 1998), never more than there are. Of lines of one word each it is Wilson's own.
    """
    right_N, total_N = np.asarray(counts_N2, dtype=np.float64).T
    right, total = float(right_N.sum()), float(total_N.sum())
    if not 0 < right < total:  # nothing varies
        return wilson(right, total, confidence=confidence)
    share = right / total
    between_lines = float(((right_N - share * total_N) ** 2).sum()) / total**2
    n = max(1.0, total * min(1.0, share * (1 - share) / total / between_lines)) if between_lines else total
    return wilson(share * n, n, confidence=confidence)


def bootstrap_mean(
    values: Sequence[float] | np.ndarray[Any, Any],
    *,
    samples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = SEED,
) -> Interval:
    """The interval of a mean: percentiles of the means of `samples` resamples (Efron 1979); one seed, one answer."""
    _check_confidence(confidence)
    values_N = np.asarray(values, dtype=np.float64)
    if values_N.ndim != 1 or len(values_N) < 2 or not np.isfinite(values_N).all():
        raise UsageError(
            f"bootstrap_mean: values must be a flat list of at least two finite numbers; got shape {values_N.shape}."
        )
    if samples < 100:
        raise UsageError(f"bootstrap_mean: samples must be at least 100 to have tails; got {samples}.")
    generator = np.random.default_rng(seed)
    at_once = max(1, _RESAMPLED_AT_ONCE // len(values_N))
    means = [
        values_N[generator.integers(len(values_N), size=(min(at_once, samples - done), len(values_N)))].mean(1)
        for done in range(0, samples, at_once)
    ]
    return percentiles(np.concatenate(means), confidence=confidence)


def bootstrap_sums(
    counts_NK: np.ndarray[Any, Any],
    value_of: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]],
    *,
    samples: int = RESAMPLES,
    confidence: float = 0.95,
    seed: int = SEED,
) -> Interval:
    """The interval of a number that is made of sums over the lines, such as an error rate or an F1.

    Lines are resampled as by `bootstrap_mean`; `value_of` takes the sums (samples, K) of their K counts each.
    """
    _check_confidence(confidence)
    counts_NK = np.asarray(counts_NK, dtype=np.float64)
    if counts_NK.ndim != 2 or len(counts_NK) < 2 or not np.isfinite(counts_NK).all():
        raise UsageError(
            f"bootstrap_sums: counts must be a table of at least two lines of finite numbers; got {counts_NK.shape}."
        )
    if samples < 100:
        raise UsageError(f"bootstrap_sums: samples must be at least 100 to have tails; got {samples}.")
    return percentiles(value_of(resampled_sums(counts_NK, samples=samples, seed=seed)), confidence=confidence)


def resampled_sums(
    counts_NK: np.ndarray[Any, Any], *, samples: int = RESAMPLES, seed: int = SEED
) -> np.ndarray[Any, Any]:
    """(samples, K): what the counts of the lines come to in each resample."""
    return np.stack([drawn_N @ counts_NK for drawn_N in resamples(len(counts_NK), samples=samples, seed=seed)])


def resamples(lines: int, *, samples: int = RESAMPLES, seed: int = SEED) -> Iterator[np.ndarray[Any, Any]]:
    """How often each line stands in each resample: of one seed and one number of lines always the same."""
    generator = np.random.default_rng(seed)
    for _ in range(samples):
        yield np.bincount(generator.integers(lines, size=lines), minlength=lines)


def percentiles(resampled: np.ndarray[Any, Any], *, confidence: float = 0.95) -> Interval:
    """The middle of what the resamples came to."""
    _check_confidence(confidence)
    tail = (1 - confidence) / 2
    low, high = np.quantile(resampled, [tail, 1 - tail])
    return Interval(float(low), float(high))


def _check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise UsageError(f"confidence must lie between 0 and 1, such as 0.95; got {confidence}.")
