"""Word alignments as sets of links: read and written in Pharaoh's format, and scored against those that people drew.

A link is (i, j): word i of the source and word j of the target belong together, both counted from 0. Pharaoh's format
(Koehn 2004) has a line for each pair of sentences, with `i-j` for each link. Of gold, `i-j` is sure, and `i?j` or `ipj`
possible: an annotator would let it pass.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence, bootstrap_sums, resampling
from saccade.metrics.lines import ratio
from saccade.metrics.score import Score

Link = tuple[int, int]
Links = frozenset[Link]
_LINK = re.compile(r"([0-9]{1,9})([-?p])([0-9]{1,9})")
_NULL = 0
"""Where words are counted from 1, the word that stands for none."""


@dataclass(frozen=True)
class Gold:
    """What is right of one pair of sentences."""

    sure: Links
    possible: Links
    """Those that are sure included, as Och and Ney (2003) have it: S ⊆ P."""
    null: int = 0
    """Links to no word that were left out, where words are counted from 1."""

    @staticmethod
    def of(sure: Iterable[Link], possible: Iterable[Link] = ()) -> "Gold":
        certain = frozenset(sure)
        return Gold(certain, certain | frozenset(possible))

    def swapped(self) -> "Gold":
        """The other way round: target to source."""
        return Gold(swapped(self.sure), swapped(self.possible), self.null)


def swapped(links: Iterable[Link]) -> Links:
    return frozenset((j, i) for i, j in links)


def write_links(links: Iterable[Link]) -> str:
    """Pharaoh's line, sorted by source word, then target word."""
    return " ".join(f"{i}-{j}" for i, j in sorted(links))


def read_links(line: str, place: str = "alignment") -> Links:
    """What `write_links` wrote; `place` names the line in errors."""
    gold = read_gold(line, place)
    if gold.possible != gold.sure:
        raise UsageError(f"{place}: has a possible link, `i?j` or `ipj`; only gold has these. Write `i-j`.")
    return gold.sure


def read_gold(line: str, place: str = "gold", *, first: int = 0) -> Gold:
    """A line of gold; `first` is the number of the first word, 0 or 1. From 1 on, 0 stands for no word.

    A link that stands there both as sure and as possible is sure.
    """
    links: dict[str, set[Link]] = {"-": set(), "?": set(), "p": set()}
    null = 0
    for given in line.split():
        found = _LINK.fullmatch(given)
        if found is None:
            raise UsageError(
                f"{place}: {given[:20]!r} is no link; write `i-j`, or `i?j` or `ipj` for a possible one, with i a word "
                f"of the source and j one of the target, counted from {first}."
            )
        i, kind, j = int(found[1]), found[2], int(found[3])
        if first > 0 and _NULL in (i, j):
            null += 1
        else:
            links[kind].add((i - first, j - first))
    gold = Gold.of(links["-"], links["?"] | links["p"])
    return Gold(gold.sure, gold.possible, null)


def check_range(links: Iterable[Link], source: int, target: int, place: str) -> None:
    """Refuse links to words that are not there."""
    for i, j in sorted(links):
        if i >= source or j >= target:
            raise UsageError(
                f"{place}: the link {i}-{j} (counted from 0) lies outside of the pair, which has {source} source and "
                f"{target} target words. If the file counts from 1 or has the target first, say so."
            )


def alignment_scores(
    found: Sequence[Links], gold: Sequence[Gold], *, confidence: Confidence = True
) -> dict[str, Score]:
    """Alignment error rate, precision and recall (Och and Ney 2003) over all pairs together, in percent.

    With A the links found, S the sure and P ⊇ S the possible ones, each summed over the pairs:
    AER = 1 − (|A ∩ S| + |A ∩ P|) / (|A| + |S|), precision = |A ∩ P| / |A|, recall = |A ∩ S| / |S|. Where S = P, AER is
    1 − F1. Intervals: bootstrap over the pairs.
    """
    if len(found) != len(gold):
        raise UsageError(f"there are {len(found):,} alignments and {len(gold):,} lines of gold; they must pair up.")
    if not any(each.possible for each in gold):
        raise UsageError("gold: has no link; there is nothing that alignments could be measured by.")
    counts_NK = np.array(
        [[len(a & g.sure), len(a & g.possible), len(a), len(g.sure)] for a, g in zip(found, gold, strict=True)],
        dtype=np.float64,
    )
    possible = sum(len(each.possible - each.sure) for each in gold)
    signature = f"found:{counts_NK[:, 2].sum():.0f}|sure:{counts_NK[:, 3].sum():.0f}|possible:{possible}"

    def score(name: str, value_of: Callable[[Any], Any]) -> Score:
        value = float(value_of(counts_NK.sum(0, keepdims=True))[0])
        low = high = math.nan
        if how := resampling(confidence, len(found)):
            low, high = bootstrap_sums(counts_NK, value_of, samples=how.samples, seed=how.seed)
        return Score(name, 100 * value, 100 * low, 100 * high, signature, len(found))

    return {
        "aer": score("AER", _aer),
        "precision": score("precision", lambda sums_SK: ratio(sums_SK[:, [1, 2]])),
        "recall": score("recall", lambda sums_SK: ratio(sums_SK[:, [0, 3]])),
    }


def _aer(sums_SK: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Nothing found where nothing is sure is without error."""
    of_S = sums_SK[:, 2] + sums_SK[:, 3]
    right_S = np.where(of_S > 0, sums_SK[:, 0] + sums_SK[:, 1], 1.0)
    return 1.0 - right_S / np.where(of_S > 0, of_S, 1.0)
