"""What each stretch of a text costs a language model: noted as the text is read, and resampled for intervals.

A stretch is what ends in END: a line, a paragraph, a file or a piece of music. Of a running text they are not
independent of each other, so that an interval says how far a number would move on other lines like these, no more.
Shapes: T tokens, N stretches, K numbers of each, S resamples.
"""

import math
from array import array
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from saccade.metrics.interval import Confidence, Interval, percentiles, resampled_sums, resampling

HIGHEST = 700.0
"""Nats from which on a perplexity is no number of a computer's any more."""
MOST_BLOCKS = 20_000
"""Of more stretches neighbours are drawn together: 1,000 resamples of so many take a second, those of millions of lines
would take minutes; and with so many the percentiles are the same but for chance."""
_SIZES = ("words", "characters", "bytes", "frames")


class Sizes:
    """How much there is of each stretch: four numbers of each, whatever its length."""

    def __init__(self) -> None:
        self._ended, self._open = array("q"), Counter[str]()

    def add(self, size: Counter[str], *, ended: bool) -> None:
        """A part of a stretch, which ends with it or goes on."""
        self._open.update(size)
        if ended:
            self._ended.extend(self._open[name] for name in _SIZES)
            self._open.clear()

    def table(self) -> NDArray[np.int64]:
        """Words, characters, bytes and frames; what has no end counts to the last that has one."""
        sizes_NK = np.array(self._ended or [0] * len(_SIZES), dtype=np.int64).reshape(-1, len(_SIZES))
        sizes_NK[-1] += [self._open[name] for name in _SIZES]
        return sizes_NK


def spread(nats_T: NDArray[Any], is_end_T: NDArray[Any], costs_N3: NDArray[np.float64], ended: int) -> None:
    """Add tokens to their stretches, `ended` of which lie behind: their nats, those of the end, and how many they are.

    What has no end counts to the last that has one.
    """
    place_T = np.minimum(ended + np.cumsum(is_end_T) - is_end_T, len(costs_N3) - 1)
    np.add.at(costs_N3, place_T, np.stack([nats_T, nats_T * is_end_T, np.ones_like(nats_T)], axis=-1))


def blocks(stretches_NK: NDArray[Any]) -> NDArray[Any]:
    """At most `MOST_BLOCKS` rows, each the sum of as many neighbours; the last may be of fewer."""
    together = -(-len(stretches_NK) // MOST_BLOCKS)
    return np.add.reduceat(stretches_NK, np.arange(0, len(stretches_NK), together)) if together > 1 else stretches_NK


def intervals(stretches_NK: NDArray[Any] | None, confidence: Confidence) -> dict[str, Interval]:
    """Percentile bootstrap (Efron 1979), all scores of the same resamples; empty where there is nothing to resample.

    K: nats, those of ends, tokens, words, characters, bytes, frames.
    """
    if stretches_NK is None or (how := resampling(confidence, len(stretches_NK))) is None:
        return {}
    sums_SK = resampled_sums(blocks(stretches_NK), samples=how.samples, seed=how.seed)
    nats_S, ends_S, tokens_S, words_S, characters_S, bytes_S, frames_S = sums_SK.T
    resampled = {
        "perplexity": np.exp(np.minimum(nats_S / tokens_S, HIGHEST)),
        "perplexity_per_word": np.exp(np.minimum(nats_S / words_S, HIGHEST)),
        "perplexity_per_byte": np.exp(np.minimum(nats_S / bytes_S, HIGHEST)),
        "bits_per_character": nats_S / characters_S / math.log(2),
    }
    if frames_S.all():  # of a resample without frames nothing could be said
        resampled["nats_per_frame"] = (nats_S - ends_S) / frames_S
    return {key: percentiles(values_S) for key, values_S in resampled.items()}
