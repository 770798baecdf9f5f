"""Film reviews whose sentiment is a matter of order and negation; generated, no download.

One sentence in four is a plain clause. Of the others the verdict is one of two clauses, and the other its opposite:
`A, but B` and `although A, B` and `B, although A` all say B. A clause may be negated; its words are good or bad by
themselves. So a sentence whose two clauses change places holds the same words and has the other label: on those no bag
of words is better than a coin, and so on all it is right at most five times in eight.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from pydantic import Field

from saccade.config import Section
from saccade.data.draws import Draws
from saccade.errors import UsageError

LABELS = ("negative", "positive")
GOOD = ("brilliant", "charming", "clever", "fresh", "funny", "good", "great", "moving")
BAD = ("awful", "bad", "boring", "clumsy", "dull", "flat", "silly", "weak")
SUBJECTS = (
    "acting", "camera", "cast", "dialogue", "ending", "humour", "music", "opening", "pacing", "plot", "score", "story",
)  # fmt: skip
NEGATIONS = ("not", "never", "hardly", "by no means", "far from", "anything but")
DEGREES = ("", "", "quite ", "really ", "very ")
SENTENCES = ("{verdict}", "{other}, but {verdict}", "although {other}, {verdict}", "{verdict}, although {other}")
NEGATED_IN = 3
"""One clause in so many is negated."""
OVERALL = "overall, "


class ReviewsData(Section):
    """Generated film reviews, positive or negative, where order and negation decide."""

    kind: Literal["reviews"] = "reviews"
    """Generated film reviews."""
    train: int = Field(default=20_000, ge=1)
    """Reviews to train on."""
    valid: int = Field(default=1_000, ge=1)
    """Reviews to validate on; their verdicts occur in no other split, not even with their clauses in another order."""
    test: int = Field(default=1_000, ge=1)
    """Reviews to test on; their verdicts occur in no other split."""
    sentences: int = Field(default=1, ge=1)
    """Sentences of a review. Of several, the one that begins with `overall` decides; it stands anywhere."""
    seed: int = 1
    """Another seed is another draw of reviews; which verdict belongs to which split stays."""


@dataclass(frozen=True)
class Review:
    text: str
    label: str


def example(data: ReviewsData, split: str, index: int) -> Review:
    """The review at `index`: a pure function of the settings, the split and the index."""
    if split not in ("train", "valid", "test"):
        raise UsageError(f"split is {split!r}; it must be one of train, valid, test.")
    draw = Draws(f"reviews/{data.seed}/{split}/{index}")
    verdict = draw.below(data.sentences)
    told, label = [], 0
    for number in range(data.sentences):
        decides = number == verdict
        positive, sentence = _sentence(draw, split if decides else None)
        label = positive if decides else label
        marked = OVERALL + sentence if decides and data.sentences > 1 else sentence
        told.append(marked[0].upper() + marked[1:] + ".")
    return Review(" ".join(told), LABELS[label])


def examples(data: ReviewsData, split: str) -> Iterator[Review]:
    count: int = getattr(data, split)
    return (example(data, split, index) for index in range(count))


def _sentence(draw: Draws, split: str | None) -> tuple[int, str]:
    """1 where it is positive, and the sentence; its clauses belong to the split, where one is named."""
    while True:
        positive = draw.below(2)
        first = draw.below(len(SUBJECTS))
        second = (first + 1 + draw.below(len(SUBJECTS) - 1)) % len(SUBJECTS)
        verdict, other = _clause(draw, first, positive), _clause(draw, second, 1 - positive)
        form = draw.of(SENTENCES)
        told = (verdict, other) if "{other}" in form else (verdict,)
        if split is None or split_of(*told) == split:
            return positive, form.format(verdict=verdict, other=other)


def _clause(draw: Draws, subject: int, positive: int) -> str:
    negated = int(draw.below(NEGATED_IN) == 0)
    word = draw.of(GOOD if positive != negated else BAD)
    degree = f"{draw.of(NEGATIONS)} " if negated else draw.of(DEGREES)
    return f"the {SUBJECTS[subject]} is {degree}{word}"


def split_of(*clauses: str) -> str:
    """The split that clauses belong to, in either order, for every seed: about 90 % train, 5 % valid, 5 % test."""
    digest = blake2b("/".join(sorted(clauses)).encode(), digest_size=8, key=b"saccade reviews").digest()
    return {0: "valid", 1: "test"}.get(int.from_bytes(digest, "little") % 20, "train")
