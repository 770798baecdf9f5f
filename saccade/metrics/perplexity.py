"""How surprised a language model was by a text, by token, word, character and byte.

Every token is counted, the first one and the ends of lines included (Mikolov et al. 2010 and all since): a line of six
words is seven to be predicted. So the numbers per word and per byte do not depend on how the text was cut into tokens.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence, Interval
from saccade.metrics.score import Score
from saccade.metrics.stretches import HIGHEST, intervals


@dataclass(frozen=True)
class TextCounts:
    """What there is of a text."""

    tokens: int = 0
    """Ends of lines included."""
    words: int = 0
    """What white space separates; and the ends of lines."""
    characters: int = 0
    """An end of a line is one."""
    bytes: int = 0
    """In UTF-8; an end of a line is one."""
    ends: int = 0
    """Ends of lines, or of paragraphs or files where these are what is read as one."""
    frames: int = 0
    """Of music: how many moments in time."""

    def __add__(self, other: "TextCounts") -> "TextCounts":
        mine, theirs = vars(self), vars(other)
        return TextCounts(**{name: mine[name] + theirs[name] for name in mine})

    def with_tokens(self, tokens: int) -> "TextCounts":
        return replace(self, tokens=tokens)


@dataclass(frozen=True)
class Perplexity:
    nll: float
    """Negative log-likelihood of the whole text, in nats."""
    counts: TextCounts
    ends_nll: float = 0.0
    """What of it fell on ends."""
    stretches_NK: np.ndarray[Any, Any] | None = field(default=None, compare=False, repr=False)
    """Of each stretch that ends in END its nats, those of its end, its tokens, words, characters, bytes and frames;
    None where these were not asked for."""

    def __post_init__(self) -> None:
        if self.counts.tokens < 1:
            raise UsageError("perplexity: there is nothing to score: the text has no tokens.")

    def __add__(self, other: "Perplexity") -> "Perplexity":
        return Perplexity(self.nll + other.nll, self.counts + other.counts, self.ends_nll + other.ends_nll)

    @property
    def loss(self) -> float:
        """Nats a token."""
        return self.nll / self.counts.tokens

    @property
    def per_token(self) -> float:
        return _exp(self.loss)

    @property
    def per_word(self) -> float:
        return _exp(self.nll / self.counts.words)

    @property
    def per_byte(self) -> float:
        return _exp(self.nll / self.counts.bytes)

    @property
    def bits_per_character(self) -> float:
        return self.nll / self.counts.characters / math.log(2)

    @property
    def bits_per_byte(self) -> float:
        return self.nll / self.counts.bytes / math.log(2)

    @property
    def nats_per_frame(self) -> float | None:
        """Of music: that pieces end was not asked by those this is compared with, and is not counted."""
        return (self.nll - self.ends_nll) / self.counts.frames if self.counts.frames else None

    def to_dict(self) -> dict[str, Any]:
        numbers: dict[str, Any] = {
            "log_probability": -self.nll,
            "loss": self.loss,
            "perplexity": self.per_token,
            "perplexity_per_word": self.per_word,
            "perplexity_per_byte": self.per_byte,
            "bits_per_character": self.bits_per_character,
            "bits_per_byte": self.bits_per_byte,
        }
        if self.nats_per_frame is not None:
            numbers["nats_per_frame"] = self.nats_per_frame
        shown = {name: value for name, value in vars(self.counts).items() if name != "frames" or value}
        return numbers | {"counts": shown}


def perplexity_scores(found: Perplexity, signature: str, *, confidence: Confidence = True) -> dict[str, Score]:
    """By name; with the intervals of resampled stretches, where these were noted and there are two of them."""
    counts, bounds = found.counts, intervals(found.stretches_NK, confidence)
    rows = {
        "perplexity": (found.per_token, counts.tokens, "tokens", 2),
        "perplexity_per_word": (found.per_word, counts.words, "words", 2),
        "perplexity_per_byte": (found.per_byte, counts.bytes, "bytes", 4),
        "bits_per_character": (found.bits_per_character, counts.characters, "characters", 4),
    }
    if found.nats_per_frame is not None:
        rows["nats_per_frame"] = (found.nats_per_frame, counts.frames, "frames", 4)
    unknown = Interval(math.nan, math.nan)
    return {
        key: Score(key.replace("_", " "), value, *bounds.get(key, unknown), signature, count, places, unit)
        for key, (value, count, unit, places) in rows.items()
    }


def _exp(nats: float) -> float:
    return math.exp(min(nats, HIGHEST))
