"""Lines and words in groups: by length, difficulty, how often a word is seen; and n-grams that tell systems apart.

Shapes: N lines.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.lines import References, paired

FREQUENCIES = (1, 2, 5, 10, 100, 1000)
"""Where a group of word frequencies begins: 0, 1, 2–4, 5–9, 10–99, 100–999, 1,000 and more."""
MOST = 5
"""Groups of about as many lines."""
_WORDS = re.compile(r"\w+|[^\w\s]")


@dataclass(frozen=True)
class Bucket:
    """Some of the lines, by what they have in common."""

    label: str
    rows: tuple[int, ...]


def words_of(text: str) -> list[str]:
    """Runs of letters and digits, and single other signs; letters as they are written."""
    return _WORDS.findall(text)


# ---- lines


def by_value(values: Sequence[int] | np.ndarray[Any, Any], most: int = MOST) -> list[Bucket]:
    """Lines by a whole number, such as their length, in at most so many groups of about as many lines.

    Lines with equal numbers stay together. A group is named by its least and its largest number.
    """
    if most < 1:
        raise UsageError(f"buckets: there must be at least 1; got {most}.")
    values_N = np.asarray(values)
    held = Counter(values_N.tolist())
    found: list[Bucket] = []
    left, groups, some = len(values_N), most, list[int]()
    for number in sorted(held):
        # A number is taken in while that brings the group nearer to its even share of what is left.
        size = sum(held[each] for each in some)
        if some and size + held[number] / 2 > left / groups and groups > 1:
            found.append(_bucket(values_N, some))
            left, groups, some = left - size, groups - 1, []
        some.append(number)
    return [*found, _bucket(values_N, some)] if some else found


def _bucket(values_N: np.ndarray[Any, Any], numbers: Sequence[int]) -> Bucket:
    rows = np.flatnonzero(np.isin(values_N, numbers))
    label = f"{numbers[0]:,}" if len(numbers) == 1 else f"{numbers[0]:,}–{numbers[-1]:,}"
    return Bucket(label, tuple(rows.tolist()))


def by_difficulty(scores_MN: np.ndarray[Any, Any], *, less_is_better: bool = False, most: int = MOST) -> list[Bucket]:
    """Lines by the mean of their scores over all M systems, hardest first, in groups of as many lines.

    All systems weigh alike, so none is favoured; but where one is much better, its lines are among the easy ones.
    Equal lines are taken in their order.
    """
    mean_N = np.asarray(scores_MN, dtype=np.float64).mean(0)
    order = np.argsort(-mean_N if less_is_better else mean_N, kind="stable")
    parts = [part for part in np.array_split(order, min(most, len(order))) if len(part)]
    names = _difficulties(len(parts))
    return [Bucket(name, tuple(sorted(part.tolist()))) for name, part in zip(names, parts, strict=True)]


def _difficulties(count: int) -> list[str]:
    if count == 1:
        return ["all"]
    return ["hardest", *(f"{place} of {count}" for place in range(2, count)), "easiest"]


# ---- words


@dataclass(frozen=True)
class WordScore:
    """How well words of one group of frequencies are found."""

    label: str
    found: int
    """Words of outputs that stand in their reference, each as often as in both."""
    written: int
    """Words of outputs."""
    right: int
    """Words of references."""

    @property
    def f1(self) -> float:
        """0 to 100; 0 where there are none."""
        return 200 * self.found / (self.written + self.right) if self.written + self.right else 0.0


def by_frequency(
    outputs: Sequence[str],
    references: References,
    seen: Counter[str],
    edges: Sequence[int] = FREQUENCIES,
) -> list[WordScore]:
    """Words by how often they were seen; of several references the one that shares most words with the output.

    Groups with no word in any reference and output are left out.
    """
    labels = frequency_labels(edges)
    counts = np.zeros((len(labels), 3), dtype=np.int64)
    for output, right in paired("words by frequency", outputs, references):
        ours = Counter(words_of(output))
        theirs = max((Counter(words_of(each)) for each in right), key=lambda each: _overlap(ours, each))
        for column, words in enumerate((ours & theirs, ours, theirs)):
            for word, count in words.items():
                counts[_place(seen[word], edges), column] += count
    return [WordScore(label, *row) for label, row in zip(labels, counts.tolist(), strict=True) if any(row)]


def tags_by_frequency(
    sentences: Sequence[Sequence[str]],
    gold: Sequence[Sequence[str]],
    tagged: Sequence[Sequence[str]],
    seen: Counter[str],
    edges: Sequence[int] = FREQUENCIES,
) -> list[WordScore]:
    """Tags of words by how often the words were seen: found are those that are right, so that F1 is the accuracy."""
    labels = frequency_labels(edges)
    counts = np.zeros((len(labels), 2), dtype=np.int64)
    for words, right, given in zip(sentences, gold, tagged, strict=True):
        for word, one, other in zip(words, right, given, strict=True):
            counts[_place(seen[word], edges)] += (one == other, 1)
    rows = zip(labels, counts.tolist(), strict=True)
    return [WordScore(label, right, total, total) for label, (right, total) in rows if total]


def _overlap(one: Counter[str], other: Counter[str]) -> float:
    return 2 * (one & other).total() / max(1, one.total() + other.total())


def _place(count: int, edges: Sequence[int]) -> int:
    return sum(count >= edge for edge in edges)


def frequency_labels(edges: Sequence[int]) -> list[str]:
    if list(edges) != sorted(set(edges)) or not edges or edges[0] < 1:
        raise UsageError(f"frequencies must rise and begin at 1 or more; got {', '.join(map(str, edges))}.")
    begins = [0, *edges]
    labels = [f"{low}" if high == low + 1 else f"{low:,}–{high - 1:,}" for low, high in pairwise(begins)]
    return [*labels, f"≥ {edges[-1]:,}"]


def count_words(texts: Iterable[str]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for text in texts:
        seen.update(words_of(text))
    return seen


# ---- n-grams


@dataclass(frozen=True)
class NgramDifference:
    """An n-gram that one system gets right more often than the other."""

    ngram: str
    system: int
    """How often the system writes it where the reference has it, each as often as in both."""
    baseline: int
    share: float
    """(system + 1) / (system + baseline + 2): 0.5 where both are alike (Neubig et al. 2019)."""


def ngram_differences(
    baseline: Sequence[str], system: Sequence[str], references: References, *, longest: int = 4, count: int = 10
) -> tuple[list[NgramDifference], list[NgramDifference]]:
    """The n-grams of words that the system gets right more often than the baseline, and those it does less often."""
    ours, theirs = Counter[tuple[str, ...]](), Counter[tuple[str, ...]]()
    for one, (other, right) in zip(baseline, paired("n-grams", system, references), strict=True):
        if one == other:
            continue
        there = Counter[tuple[str, ...]]()
        for each in right:
            there |= _ngrams(each, longest)
        theirs.update(_ngrams(one, longest) & there)
        ours.update(_ngrams(other, longest) & there)
    every = [
        NgramDifference(" ".join(gram), ours[gram], theirs[gram], (ours[gram] + 1) / (ours[gram] + theirs[gram] + 2))
        for gram in ours.keys() | theirs.keys()
    ]
    most = sorted(every, key=lambda each: (-each.share, -len(each.ngram.split()), each.ngram))
    least = sorted(every, key=lambda each: (each.share, -len(each.ngram.split()), each.ngram))
    return (
        [each for each in most[:count] if each.system > each.baseline],
        [each for each in least[:count] if each.system < each.baseline],
    )


def _ngrams(text: str, longest: int) -> Counter[tuple[str, ...]]:
    words = words_of(text)
    return Counter(tuple(words[i : i + n]) for n in range(1, longest + 1) for i in range(len(words) - n + 1))
