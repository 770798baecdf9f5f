"""One long text → what language models read: streams in chunks that follow one another, or windows by themselves.

A token's neighbour before it is always given: the text is shifted by one place behind END, as if a line had ended
before it. So every token is predicted exactly once, however the text is cut, and nothing of it is dropped.
Shapes: B streams, T tokens of a chunk.
"""

import math
from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from saccade.config import Section
from saccade.data.batching import BEGINNING, Cursor, EpochPlan, jobs, prefetch
from saccade.errors import UsageError
from saccade.keyed import philox, shares
from saccade.types import END, PAD, Batch, Tokens

Text = NDArray[np.integer[Any]]  # one row of token ids; it may lie on the disk
Edges = NDArray[np.int64]

SHORT_SHARE, SPREAD, SHORTEST = 0.05, 5.0, 5  # of varied chunks, as in Merity et al. (2018)
LENGTHS, ORDER, SHIFT = 2, 3, 4
"""What random numbers are for: they are keyed by it, beside seed and epoch."""


class StreamsConfig(Section):
    """For models that carry a state on: recurrent ones, and those of a fixed window."""

    kind: Literal["streams"] = "streams"
    """The text is cut into streams that are read side by side; what a model knows at the end of a chunk it keeps."""
    streams: int = Field(20, ge=1)
    """How many: the rows of a batch."""
    steps: int = Field(35, ge=1)
    """Tokens of each stream that an update reads, and that gradients go back through (truncated BPTT)."""
    varied: bool = False
    """Draw the steps anew each time, around this number or half of it, and the rate with them (Merity et al. 2018)."""
    validation: int = Field(10, ge=1)
    """Streams that validation reads side by side while training; `evaluate` always reads one."""


class WindowsConfig(Section):
    """For the Transformer, which carries nothing on; others may be trained so, too."""

    kind: Literal["windows"] = "windows"
    """The text is cut into windows that know nothing of each other; `train.batch_tokens` of them are a batch."""
    length: int = Field(256, ge=1)
    """Tokens of a window."""
    varied: bool = False
    """Cut the training text at other places in every epoch, so that a token does not always stand at the same one."""
    context: int = Field(0, ge=0)
    """Where a text is scored, only what stands behind so many of a window's tokens is predicted, and windows overlap:
    every token knows at least so many before it, and none stands further than in training."""

    @model_validator(mode="after")
    def _predicts_something(self) -> "WindowsConfig":
        if self.context >= self.length:
            raise ValueError(
                f"context is {self.context} and length {self.length}: of a window's tokens the context is read alone, "
                "so there must be fewer"
            )
        return self

    @property
    def own(self) -> int:
        """Tokens of a window that it predicts where a text is scored."""
        return self.length - self.context


ReadConfig = Annotated[StreamsConfig | WindowsConfig, Field(discriminator="kind")]


class Streams:
    """A text cut into B streams, read side by side, `steps` tokens at a time: chunk k + 1 goes on where k ended.

    The streams are as long as each other but for one token. With `varied` a chunk's length is drawn anew (Merity et al.
    2018): around `steps`, or with a chance of 1 in 20 around half of it, so that chunks do not always end at the same
    tokens. Where chunks begin is a pure function of (seed, epoch): whoever knows the cursor goes on the same.
    """

    def __init__(self, text: Text, streams: int, steps: int, *, varied: bool = False, seed: int = 0) -> None:
        if streams < 1 or steps < 1:
            raise UsageError(f"streams and steps must be at least 1; they are {streams} and {steps}.")
        if len(text) < streams:
            raise UsageError(f"the text has {len(text):,} tokens, fewer than the {streams:,} streams asked for.")
        self.text, self.steps, self.varied, self.seed = text, steps, varied, seed
        self._cuts = np.arange(streams + 1, dtype=np.int64) * len(text) // streams

    def edges(self, epoch: int) -> Edges:
        """Where the chunks of an epoch begin in their stream, and where the last ends."""
        lengths = np.diff(self._cuts)
        shortest, longest = int(lengths.min()), int(lengths.max())
        begins = np.arange(0, shortest, self.steps, dtype=np.int64)
        if self.varied:
            begins = self._varied_begins(epoch, shortest)
        return np.append(begins, longest)  # a stream that has one token more has it in the last chunk

    def _varied_begins(self, epoch: int, shortest: int) -> Edges:
        count = 16 + 2 * shortest // self.steps
        while True:
            ends = varied_lengths(self.steps, self.seed, epoch, count).cumsum()
            if ends[-1] >= shortest:  # else the same ones and more
                return np.concatenate([[0], ends[ends < shortest]])
            count *= 2

    def chunks(
        self, cursor: Cursor = BEGINNING, *, rank: int = 0, world: int = 1
    ) -> Generator[tuple[Cursor, Batch], None, None]:
        """Chunks from the cursor on, without end, each with the position behind it.

        Row b of a chunk is stream b; it `begins` where there is nothing to carry over, and with `varied` its `rate` is
        its length against the usual one. Of `world` equal shares of the streams, those of `rank`.
        """
        rows = self._rows(rank, world)
        epoch, k = cursor.epoch, cursor.batch
        edges = self.edges(epoch)
        if not 0 <= k < len(edges) - 1:
            raise UsageError(
                f"the position is chunk {k:,} of epoch {epoch}, which has {len(edges) - 1:,} chunks: "
                "the text, the streams or the steps are not those the position was taken with."
            )
        while True:
            chunk = self._chunk(rows, int(edges[k]), int(edges[k + 1]))
            k += 1
            if k == len(edges) - 1:
                epoch, k = epoch + 1, 0
                edges = self.edges(epoch)
            yield Cursor(epoch, k), chunk

    def once(self) -> Iterator[Batch]:
        """The whole text, from its beginning to its end: for validation."""
        edges = self.edges(0).tolist()
        rows = self._rows(0, 1)
        return (self._chunk(rows, begin, end) for begin, end in pairwise(edges))

    def largest(self) -> Batch:
        """The longest chunk of the first epoch."""
        edges = self.edges(0)
        k = int(np.diff(edges).argmax())
        return self._chunk(self._rows(0, 1), int(edges[k]), int(edges[k + 1]))

    def _rows(self, rank: int, world: int) -> range:
        streams = len(self._cuts) - 1
        if not 0 <= rank < world or streams % world:
            raise UsageError(
                f"rank must be between 0 and world - 1, and world must divide the streams; rank is {rank}, world is "
                f"{world} and there are {streams} streams."
            )
        return range(rank * streams // world, (rank + 1) * streams // world)

    def _chunk(self, rows: range, begin: int, end: int) -> Batch:
        bounds = [(self._cuts[b] + begin, min(self._cuts[b] + end, self._cuts[b + 1])) for b in rows]
        pairs = [shifted(self.text, int(first), int(last)) for first, last in bounds]
        rate = (end - begin) / self.steps if self.varied else 1.0
        source, target = Tokens.of([given for given, _ in pairs]), Tokens.of([after for _, after in pairs])
        return Batch(source, target, begins=begin == 0, rate=rate)


class Windows:
    """A text cut into windows of `length` tokens, which know nothing of each other: what a Transformer is trained on.

    Each epoch has its own order, a pure function of (seed, epoch). With `varied` also its own cuts: the first window is
    shorter by a number that is drawn, so that all others begin elsewhere. With `context` a window also reads so many
    tokens before its own, which are not predicted again (their target is PAD): for evaluation, where the first tokens
    of a window would else be predicted from nearly nothing.
    """

    def __init__(
        self, text: Text, length: int, windows: int, *, seed: int = 0, context: int = 0, varied: bool = False
    ) -> None:
        """`windows` of them are one batch."""
        if length < 1 or windows < 1 or context < 0:
            raise UsageError(
                f"length and windows must be at least 1 and context at least 0; they are {length}, {windows} and "
                f"{context}."
            )
        if not len(text):
            raise UsageError("the text has no tokens.")
        self.text, self.length, self.windows, self.seed, self.context = text, length, windows, seed, context
        self.varied = varied

    def epoch(self, number: int) -> EpochPlan:
        """A row is where a window's own tokens begin, which may be before the text."""
        begins = np.arange(-self._shift(number), len(self.text), self.length, dtype=np.int64)
        order = np.argsort(_bits(len(begins), self.seed, number, ORDER), kind="stable")
        return self._plan(begins[order])

    def _shift(self, epoch: int) -> int:
        return int(_bits(1, self.seed, epoch, SHIFT)[0] % self.length) if self.varied else 0

    def _plan(self, begins: NDArray[np.int64]) -> EpochPlan:
        starts = np.arange(0, len(begins), self.windows, dtype=np.int64)
        ends = np.minimum(starts + self.windows, len(begins))
        widths = np.full(len(starts), min(len(self.text), self.length + self.context), dtype=np.int32)
        return EpochPlan(begins, starts, ends, widths)

    def batches(
        self, cursor: Cursor = BEGINNING, *, rank: int = 0, world: int = 1, workers: int = 0
    ) -> Generator[tuple[Cursor, Batch], None, None]:
        """Packed batches without end, each with the position behind it."""
        work = jobs(self, cursor, rank=rank, world=world)
        return prefetch(work, lambda job: (job.following, self.collate(job.rows)), workers=workers)

    def once(self) -> Iterator[Batch]:
        """The whole text, from its beginning to its end: for validation."""
        plan = self._plan(np.arange(0, len(self.text), self.length, dtype=np.int64))
        return (self.collate(plan[k]) for k in range(len(plan)))

    def largest(self) -> Batch:
        """A batch of whole windows; only those before the last are sure to be."""
        return next(self.once())

    def collate(self, rows: NDArray[np.integer[Any]]) -> Batch:
        pairs = [self._window(int(begin)) for begin in rows]
        batch = Batch(Tokens.of([given for given, _ in pairs]), Tokens.of([after for _, after in pairs]))
        return Batch(batch.source, batch.target, tuple(rows.tolist())).packed()

    def _window(self, begin: int) -> tuple[Text, Text]:
        own, end = max(0, begin), min(begin + self.length, len(self.text))
        begin = max(0, own - self.context)
        given, after = shifted(self.text, begin, end)
        return given, np.concatenate([np.full(own - begin, PAD), after[own - begin :]])


def shifted(text: Text, begin: int, end: int) -> tuple[Text, Text]:
    """The tokens of a stretch, and before them the same one place earlier; END stands before the text."""
    after = np.asarray(text[begin:end], dtype=np.int64)
    first = END if begin == 0 else int(text[begin - 1])
    return np.concatenate([np.array([first]), after[:-1]]), after


def varied_lengths(steps: int, seed: int, epoch: int, count: int) -> Edges:
    """max(5, N(base, 5)) with base = steps, or half of it once in 20; of chunk i by (seed, epoch, i) alone."""
    u = shares(_bits(3 * count, seed, epoch, LENGTHS)).reshape(count, 3)
    base = np.where(u[:, 0] < SHORT_SHARE, max(1, steps // 2), steps)
    normal = np.sqrt(-2 * np.log1p(-u[:, 1])) * np.cos(2 * math.pi * u[:, 2])  # Box & Muller (1958)
    lengths: Edges = np.maximum(min(SHORTEST, steps), (base + SPREAD * normal).astype(np.int64))
    return lengths


def _bits(count: int, seed: int, epoch: int, purpose: int) -> NDArray[np.uint64]:
    bits: NDArray[np.uint64] = philox(seed, epoch, purpose=purpose).random_raw(count)
    return bits
