"""Spans of words against those that are right: precision, recall and F1, by type and over all; accuracy of tags.

A span counts only where its type and both its ends match (conlleval, seqeval). F1 = 2PR / (P + R); what would be
divided by 0 is 0.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence, Interval, percentiles, resamples, resampling, wilson_of_lines
from saccade.metrics.score import Score

SpanLike = tuple[str, int, int]
"""Type, begin, end."""


@dataclass(frozen=True)
class Quality:
    """Shares, from 0 to 1."""

    precision: float
    recall: float
    f1: float
    gold: int
    """How many there are to be found (`support`)."""
    found: int
    right: int


@dataclass(frozen=True)
class SpanReport:
    types: dict[str, Quality]
    """By name."""
    micro: Quality
    """All spans counted alike: the F1 that is meant where nothing else is said."""
    macro: Quality
    """The mean of the types."""
    weighted: Quality
    """The mean of the types, each by how many there are to be found."""
    sentences: int
    """How many were scored."""
    counted_2M: NDArray[np.int64]
    """Of everything that was counted, its sentence and its cell: that of type t which is right is cell 3t, which is
    found 3t + 1, and which is to be found 3t + 2."""

    def score(self, *, name: str = "span F1", confidence: Confidence = True) -> Score:
        """F1 over all spans, 0 to 100; its interval from resampled sentences (percentile bootstrap)."""
        return self._score(name, self.micro.f1, "f1", self._intervals(confidence, types=False))

    def scores(self, *, confidence: Confidence = True) -> dict[str, Score]:
        """`f1`, `precision` and `recall` over all spans, and `f1_TYPE` of every type; all of the same resamples.

        As everywhere here, what would be divided by 0 is 0: so is the F1 of a type in a resample that it does not
        occur in, and the interval of a rare type is a wide one.
        """
        bounds = self._intervals(confidence)
        found = {
            "f1": self._score("span F1", self.micro.f1, "f1", bounds),
            "precision": self._score("span precision", self.micro.precision, "precision", bounds),
            "recall": self._score("span recall", self.micro.recall, "recall", bounds),
        }
        for type_, quality in self.types.items():
            key = f"f1_{type_}"
            found[key] = self._score(f"span F1, {quality.gold:,} {type_}", quality.f1, key, bounds)
        return found

    def _score(self, name: str, value: float, key: str, bounds: dict[str, Interval]) -> Score:
        low, high = bounds.get(key, Interval(math.nan, math.nan))
        return Score(name, 100 * value, 100 * low, 100 * high, None, self.sentences)

    def _intervals(self, confidence: Confidence, *, types: bool = True) -> dict[str, Interval]:
        """Percentile bootstrap (Efron 1979). Sums are of what was counted alone: most sentences lack most types."""
        if (how := resampling(confidence, self.sentences)) is None:
            return {}
        of_M, cell_M = self.counted_2M
        cells = 3 * len(self.types)
        drawn = resamples(self.sentences, samples=how.samples, seed=how.seed)
        sums_SK = np.stack([np.bincount(cell_M, weights=drawn_N[of_M], minlength=cells) for drawn_N in drawn])
        sums_ST3 = sums_SK.reshape(how.samples, len(self.types), 3)
        found = dict(zip(("precision", "recall", "f1"), map(percentiles, _shares(sums_ST3.sum(1))), strict=True))
        for number, type_ in enumerate(self.types) if types else ():
            found[f"f1_{type_}"] = percentiles(_shares(sums_ST3[:, number])[2])
        return found


def span_report(gold: Sequence[Iterable[SpanLike]], found: Sequence[Iterable[SpanLike]]) -> SpanReport:
    """Of the spans of each sentence."""
    _check("span_report", gold, found)
    pairs = [(set(right), set(guessed)) for right, guessed in zip(gold, found, strict=True)]
    names = sorted({type_ for both in pairs for spans in both for type_, *_ in spans})
    first = {name: 3 * number for number, name in enumerate(names)}
    counted = [
        (number, first[type_] + column)
        for number, (right, guessed) in enumerate(pairs)
        for column, spans in enumerate((right & guessed, guessed, right))
        for type_, *_ in spans
    ]
    counted_2M = np.array(counted, dtype=np.int64).reshape(-1, 2).T
    table = np.bincount(counted_2M[1], minlength=3 * len(names)).reshape(-1, 3)
    shares_3N, total = _shares(table), table.sum(0)
    weights = table[:, 2]
    return SpanReport(
        {name: _quality(shares_3N[:, i], table[i]) for i, name in enumerate(names)},
        _quality(_shares(total[None])[:, 0], total),
        _quality(_mean(shares_3N, None), total),
        _quality(_mean(shares_3N, weights), total),
        len(pairs),
        counted_2M,
    )


def _shares(counts_N3: NDArray[Any]) -> NDArray[np.float64]:
    """Precision, recall and F1 (3, N) of rows of right, found, to be found; by the operations that seqeval takes."""
    right, found, gold = counts_N3.T
    precision, recall = right / np.where(found == 0, 1, found), right / np.where(gold == 0, 1, gold)
    both = precision + recall
    return np.stack([precision, recall, 2 * precision * recall / np.where(both == 0, 1, both)])


def _mean(shares_3N: NDArray[np.float64], weights_N: NDArray[np.int64] | None) -> NDArray[np.float64]:
    """Over types, by their weights; of nothing 0."""
    if not shares_3N.size or (weights_N is not None and not weights_N.any()):
        return np.zeros(3)
    return np.array([np.average(row, weights=weights_N) for row in shares_3N])


def _quality(shares_3: NDArray[np.float64], counts_3: NDArray[np.int64]) -> Quality:
    (precision, recall, f1), (right, found, gold) = shares_3.tolist(), counts_3.tolist()
    return Quality(precision, recall, f1, gold, found, right)


def accuracy(gold: Sequence[Sequence[str]], found: Sequence[Sequence[str]], *, name: str = "accuracy") -> Score:
    """The percentage of tags that are right, over all words."""
    _check(name, gold, found)
    counts = []
    for number, (tags, guessed) in enumerate(zip(gold, found, strict=True), start=1):
        if len(tags) != len(guessed):
            raise UsageError(f"{name}: sentence {number} has {len(tags)} tags, but {len(guessed)} were found.")
        counts.append((sum(one == other for one, other in zip(tags, guessed, strict=True)), len(tags)))
    return share(name, counts)


def share(name: str, counts: Sequence[tuple[int, int]]) -> Score:
    """A percentage of words, of which each sentence has some right and some in all; of nothing it is NaN."""
    right, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    if not total:
        return Score(name, math.nan, math.nan, math.nan, None, 0)
    low, high = wilson_of_lines(np.array(counts))
    return Score(name, 100 * (right / total), 100 * low, 100 * high, None, total)


def _check(name: str, gold: Sequence[Any], found: Sequence[Any]) -> None:
    if len(gold) != len(found):
        raise UsageError(
            f"{name}: sentences must pair up; there are {len(gold):,} to be found and {len(found):,} that were found."
        )
