"""What is in the data, and what is wrong with it: a full pass over every split before any training."""

import heapq
import math
from array import array
from collections import Counter
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.data.files import Counts, Pair
from saccade.data.parses import depth_of
from saccade.data.splits import DataConfig, Split, has_split, split_pairs
from saccade.errors import UsageError

FAR = 3.0
"""A pair is an outlier when one side is this many times longer than the split's typical pair would have it."""
EXAMPLES = 5
_SPLITS: tuple[Split, ...] = ("train", "valid", "test")
Hashes = NDArray[np.uint64]


@dataclass(frozen=True)
class Lengths:
    """How long the texts of one side are."""

    mean: float
    p50: int
    p99: int
    max: int

    @staticmethod
    def of(histogram: Counter[int]) -> "Lengths":
        """From how many texts have each length. The percentiles are nearest-rank: lengths that occur."""
        if not histogram:
            return Lengths(0.0, 0, 0, 0)
        lengths = np.array(sorted(histogram))
        up_to = np.cumsum([histogram[length] for length in lengths.tolist()])
        p50, p99 = (int(lengths[np.searchsorted(up_to, math.ceil(share * up_to[-1]))]) for share in (0.50, 0.99))
        total = sum(length * count for length, count in histogram.items())
        return Lengths(total / int(up_to[-1]), p50, p99, int(lengths[-1]))


@dataclass(frozen=True)
class Side:
    """The lengths of the source or the target texts."""

    characters: Lengths
    words: Lengths
    """Words are what white space separates."""


@dataclass(frozen=True)
class SplitReport:
    """What one split holds."""

    counts: Counts
    source: Side
    target: Side
    duplicates: int
    """Pairs that occurred before in the same split."""
    seen_in_train: int
    """Pairs whose source is also a source of the training data; 0 for the training data itself."""
    outliers: int
    """Pairs whose sides' lengths do not go together."""
    outlier_places: tuple[str, ...]
    """The most extreme ones."""
    tree_depths: Lengths | None = None
    """Of the sources' dependency trees, edges from the root to the lowest word; None for data without a parse."""


@dataclass(frozen=True)
class Report:
    """The whole data set."""

    splits: dict[str, SplitReport]
    problems: tuple[str, ...]
    """What training would refuse, each with its place and what to do."""

    @property
    def usable(self) -> bool:
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"problems": list(self.problems), "usable": self.usable}


def check(data: DataConfig, base: Path) -> Report:
    """Read every split to its end and tell what is there; problems are collected, not only the first one raised."""
    problems: list[str] = []
    train_sources: Hashes = np.empty(0, dtype=np.uint64)
    splits: dict[str, SplitReport] = {}
    for name in _SPLITS:
        if not has_split(data, name):
            continue
        survey = _Survey()
        found: list[str] = []
        try:
            for pair in split_pairs(data, name, base=base, counts=survey.counts, problems=found):
                survey.add(pair)
        except UsageError as error:
            found.append(str(error))
        if not survey.counts.kept and not found:
            found.append(f"no usable sentence pair: {' '.join(survey.counts.sentences())}")
        # What is held out of the training data stands in the same files: their faults are told once.
        held_out = name == "valid" and getattr(data, name, None) is None
        new = [problem for problem in found if not (held_out and f"train: {problem}" in problems)]
        problems += [f"{name}: {problem}" for problem in new]
        sources = np.frombuffer(survey.source_hashes, dtype=np.uint64)
        splits[name] = survey.report(seen_in_train=int(np.isin(sources, train_sources).sum()))
        if name == "train":
            train_sources = np.unique(sources)
    return Report(splits, tuple(problems))


class _Survey:
    """What is remembered of the pairs of a split: histograms, hashes and ratios, not the text."""

    def __init__(self) -> None:
        self.counts = Counts()
        self.histograms: tuple[Counter[int], ...] = (Counter(), Counter(), Counter(), Counter())
        self.depths: Counter[int] = Counter()
        self.source_hashes, self.pair_hashes = array("Q"), array("Q")
        self.log_ratios = array("d")
        self.most: list[tuple[float, int, str]] = []
        self.least: list[tuple[float, int, str]] = []

    def add(self, pair: Pair) -> None:
        source, target, place, heads = pair
        lengths = (len(source), len(target), len(source.split()), len(target.split()))
        for histogram, length in zip(self.histograms, lengths, strict=True):
            histogram[length] += 1
        if heads is not None:
            self.depths[depth_of(heads)] += 1
        self.source_hashes.append(_hash(source))
        self.pair_hashes.append(_hash(f"{len(source)} {source}{target}"))
        ratio = math.log((lengths[0] + 5) / (lengths[1] + 5))  # + 5, so that "Ja." for "Yes, I do." is no outlier
        self.log_ratios.append(ratio)
        _keep_largest(self.most, (ratio, -len(self.log_ratios), place))
        _keep_largest(self.least, (-ratio, -len(self.log_ratios), place))

    def report(self, *, seen_in_train: int) -> SplitReport:
        source_characters, target_characters, source_words, target_words = map(Lengths.of, self.histograms)
        ratios = np.frombuffer(self.log_ratios, dtype=np.float64)
        typical = float(np.median(ratios)) if len(ratios) else 0.0
        is_far = np.abs(ratios - typical) > math.log(FAR)
        extremes = [(ratio - typical, number, place) for ratio, number, place in self.most]
        extremes += [(ratio + typical, number, place) for ratio, number, place in self.least]
        far = {place: None for ratio, _, place in sorted(extremes, reverse=True) if ratio > math.log(FAR)}
        return SplitReport(
            counts=self.counts,
            source=Side(source_characters, source_words),
            target=Side(target_characters, target_words),
            duplicates=len(self.pair_hashes) - len(np.unique(np.frombuffer(self.pair_hashes, dtype=np.uint64))),
            seen_in_train=seen_in_train,
            outliers=int(is_far.sum()),
            outlier_places=tuple(far)[:EXAMPLES],
            tree_depths=Lengths.of(self.depths) if self.depths else None,
        )


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def _keep_largest(heap: list[tuple[float, int, str]], item: tuple[float, int, str]) -> None:
    if len(heap) < EXAMPLES:
        heapq.heappush(heap, item)
    elif item > heap[0]:
        heapq.heapreplace(heap, item)
