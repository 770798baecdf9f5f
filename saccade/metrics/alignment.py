"""Attention scored against a known alignment: does the model look where the word comes from?

Shapes: T target length, S source length. Gold is, for each target position, the source positions it comes from; a
position that comes from nowhere (an end marker, an inserted word) has none and is not scored.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.errors import UsageError


@dataclass(frozen=True)
class AlignmentScore:
    """Shares in 0 to 1, less is better; NaN where `scored` is 0."""

    argmax_error: float
    """The share of target positions whose most attended source position is not in gold. Ties are broken evenly."""
    mass_error: float
    """The mean share of attention that lies outside gold."""
    chance_argmax_error: float
    """What choosing a source position at random gets: 1 − |gold| / S on average."""
    chance_mass_error: float
    """What uniform attention gets: the same number, since every position holds 1 / S of the mass."""
    scored: int
    """How many target positions have gold."""


def alignment_error(weights_TS: np.ndarray[Any, Any], gold: Sequence[Sequence[int]]) -> AlignmentScore:
    """The errors of one attention matrix, whose rows are target positions."""
    weights_TS = np.asarray(weights_TS, dtype=np.float64)
    _check(weights_TS, gold)
    source = weights_TS.shape[1]
    argmax, mass, chance = [], [], []
    for weights_S, positions in zip(weights_TS, gold, strict=True):
        if not positions:
            continue
        right = sorted(set(positions))
        # A tie is a random choice among equals: attention that is uniform then gets chance, not the first column.
        most_S = weights_S == weights_S.max()
        argmax.append(1.0 - most_S[right].sum() / most_S.sum())
        mass.append(1.0 - weights_S[right].sum())
        chance.append(1.0 - len(right) / source)
    return AlignmentScore(_mean(argmax), _mean(mass), _mean(chance), _mean(chance), len(chance))


def combine(scores: Sequence[AlignmentScore]) -> AlignmentScore:
    """The errors over all examples together: every scored target position counts once."""
    counted = [score for score in scores if score.scored]
    total = sum(score.scored for score in counted)

    def pooled(values: Sequence[float]) -> float:
        return sum(v * s.scored for v, s in zip(values, counted, strict=True)) / total if total else math.nan

    return AlignmentScore(
        pooled([score.argmax_error for score in counted]),
        pooled([score.mass_error for score in counted]),
        pooled([score.chance_argmax_error for score in counted]),
        pooled([score.chance_mass_error for score in counted]),
        total,
    )


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else math.nan


def _check(weights_TS: np.ndarray[Any, Any], gold: Sequence[Sequence[int]]) -> None:
    if weights_TS.ndim != 2:
        raise UsageError(f"weights: an attention matrix is (target, source); got shape {weights_TS.shape}.")
    target, source = weights_TS.shape
    if len(gold) != target:
        raise UsageError(f"gold: needs one entry for each of the {target} target positions; got {len(gold)}.")
    if not (np.isfinite(weights_TS).all() and (weights_TS >= 0).all() and (weights_TS.sum(1) <= 1 + 1e-3).all()):
        raise UsageError("weights: attention must be finite, not negative, and sum to at most 1 in every row.")
    for t, positions in enumerate(gold):
        for s in positions:
            if not 0 <= s < source:
                raise UsageError(f"gold: source positions run from 0 to {source - 1}; target position {t} has {s}.")
