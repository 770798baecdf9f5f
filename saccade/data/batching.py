"""Batches of like-long pairs within a token budget; the order is a pure function of (seed, epoch).

Shapes: n rows of the data set; each row has a source length and a target length, END included.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.columns import Ids, Ragged
from saccade.data.parses import WordsOf, on_tokens
from saccade.data.store import Store
from saccade.errors import UsageError
from saccade.keyed import philox
from saccade.types import END, Batch, Layout, Parse, Tokens

POOL_BATCHES = 512
"""Rows are sorted by length within a pool of about so many batches: little padding, and still a random order."""
RELEASE_EVERY = 8
"""Batches after which the store gives back the memory of what it has read: a page fault maps its neighbours too."""
Rows = NDArray[np.integer[Any]]
Encode = Callable[[str, str, np.random.Generator], tuple[list[int], list[int]]]
JobT = TypeVar("JobT")
MadeT = TypeVar("MadeT")


@dataclass(frozen=True)
class Cursor:
    """A position in the endless stream of batches: the next one to read is `batch` of `epoch`."""

    epoch: int = 0
    batch: int = 0


BEGINNING = Cursor()


@dataclass(frozen=True)
class EpochPlan:
    """Which rows each batch of one epoch holds."""

    rows: Rows
    starts: NDArray[np.int64]
    ends: NDArray[np.int64]
    widths: NDArray[np.int32]
    """The longest side of each batch."""

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, k: int) -> Rows:
        if not 0 <= k < len(self):
            raise IndexError(k)
        return self.rows[self.starts[k] : self.ends[k]]

    def largest(self) -> list[Rows]:
        """The batches that take most memory: of most places, and of most pairs of places, as attention counts them."""
        places = (self.ends - self.starts) * self.widths.astype(np.int64)
        return [self[int(k)] for k in sorted({places.argmax(), (places * self.widths).argmax()})]


class Plan:
    """Cuts the data into batches whose rows times longest side stay within `batch_tokens`.

    A row that is longer than the budget gets a batch of its own.
    """

    def __init__(
        self, lengths: NDArray[np.integer[Any]], batch_tokens: int, seed: int, batch_sentences: int | None = None
    ) -> None:
        if lengths.ndim != 2 or lengths.shape[1] != 2 or not len(lengths):
            raise UsageError(f"lengths must have shape (n, 2) with n > 0; it has {lengths.shape}. Are there any data?")
        if batch_tokens < 1:
            raise UsageError(f"batch_tokens must be at least 1; it is {batch_tokens}.")
        if batch_sentences is not None and batch_sentences < 1:
            raise UsageError(f"batch_sentences must be at least 1; it is {batch_sentences}. Leave it out for no limit.")
        if not 0 <= seed < 1 << 64:
            raise UsageError(f"seed must be between 0 and 2**64 - 1; it is {seed}.")
        self.batch_tokens, self.seed, self.batch_sentences = batch_tokens, seed, batch_sentences
        self._widths = lengths.max(axis=1).astype(np.int32)
        difference = (lengths[:, 0].astype(np.int32) - lengths[:, 1]).astype(np.int32)
        # Back and forth: the last of one width is like the first of the next, so that a batch of both is, too.
        self._shapes = np.where(self._widths % 2 == 0, difference, -difference)
        rows_a_batch = min(batch_tokens / max(1.0, float(self._widths.mean())), batch_sentences or np.inf)
        self._pool = max(1, int(POOL_BATCHES * rows_a_batch))

    def epoch(self, number: int) -> EpochPlan:
        """Shuffle the rows, sort them by length within pools, cut the pools into batches, shuffle the batches."""
        random = philox(self.seed, number)
        rows = _shuffled(len(self._widths), random)
        starts: list[int] = []
        for begin in range(0, len(rows), self._pool):
            pool = rows[begin : begin + self._pool]
            pool = pool[np.lexsort((self._shapes[pool], self._widths[pool]))]  # the last key counts first
            rows[begin : begin + len(pool)] = pool
            starts.extend(begin + cut for cut in self._cuts(self._widths[pool].tolist()))
        first = np.array(starts, dtype=np.int64)
        last = np.append(first[1:], len(rows))
        widths = self._widths[rows[last - 1]]  # within a batch they ascend
        order = _shuffled(len(first), random)
        return EpochPlan(rows, first[order], last[order], widths[order])

    def _cuts(self, widths: Sequence[int]) -> Iterator[int]:
        """Where the batches of a pool begin, given its rows' widths in ascending order."""
        begin = 0
        while begin < len(widths):
            yield begin
            most = min(len(widths), begin + (self.batch_sentences or len(widths)))
            ends = range(begin + 2, most + 1)  # one row is always taken; a batch's cost can only grow with its end
            begin += 1 + bisect_right(ends, self.batch_tokens, key=lambda end: (end - begin) * widths[end - 1])


def _shuffled(n: int, random: np.random.Philox) -> Rows:
    """0 to n − 1 in random order, made from raw bits: numpy may change how `permutation` draws, but not these."""
    bits: NDArray[np.uint64] = random.random_raw(n)
    return np.argsort(bits, kind="stable").astype(np.int32 if n < 1 << 31 else np.int64)


def padding_share(lengths: NDArray[np.integer[Any]], plan: Plan, epoch: int) -> float:
    """Which share of the positions in an epoch's batches, source and target together, is padding."""
    batches = plan.epoch(epoch)
    in_order = np.sort(batches.starts)
    rows_a_batch = np.diff(np.append(in_order, len(batches.rows)))
    longest = sum(np.maximum.reduceat(side[batches.rows], in_order).astype(np.int64) for side in lengths.T)
    return 1.0 - float(lengths.sum(dtype=np.int64)) / float((longest * rows_a_batch).sum())


class Job(NamedTuple):
    """A batch to make."""

    rows: Rows
    epoch: int
    following: Cursor
    """Where to go on once all ranks have done their batch of this round."""


class Planned(Protocol):
    """Whatever says which rows the batches of an epoch hold."""

    def epoch(self, number: int) -> EpochPlan: ...


def jobs(plan: Planned, cursor: Cursor = BEGINNING, *, rank: int = 0, world: int = 1) -> Iterator[Job]:
    """The batches from the cursor on, without end; of each round of `world` batches, the one for `rank`."""
    if not 0 <= rank < world:
        raise UsageError(f"rank must be between 0 and world - 1; rank is {rank} and world is {world}.")
    number, at = cursor.epoch, cursor.batch
    planned = plan.epoch(number)
    if not 0 <= at <= len(planned):
        raise UsageError(
            f"the position is batch {at:,} of epoch {number}, which has {len(planned):,} batches: "
            "the data or the batch size are not those the position was taken with."
        )
    while True:
        for turn in range(world):
            if at == len(planned):
                number, at = number + 1, 0
                planned = plan.epoch(number)
            if turn == rank:
                rows, epoch = planned[at], number
            at += 1
        # a round that ends an epoch is followed by the next epoch's first batch: one name for one position
        following = Cursor(number, at) if at < len(planned) else Cursor(number + 1, 0)
        yield Job(rows, epoch, following)


def collate(store: Store, rows: Rows) -> Batch:
    """The rows as one packed batch: nothing in it is padding."""
    return Batch(_packed(store.sources, rows, store.parses), _packed(store.targets, rows), tuple(rows.tolist()))


def _packed(side: Ragged, rows: Rows, parses: Ragged | None = None) -> Tokens:
    values, lengths = side.take(rows)
    layout = Layout.padded(torch.from_numpy(lengths)).packed()
    parse = None
    if parses is not None:
        both = torch.from_numpy(parses.take(rows)[0].astype(np.int64)).view(-1, 2)
        parse = Parse(*both.T.contiguous())
    return Tokens(torch.from_numpy(values.astype(np.int64)), layout, parse)


def collate_encoded(store: Store, job: Job, encode: Encode, seed: int, words_of: WordsOf | None = None) -> Batch:
    """The rows encoded afresh from their text, as for BPE-dropout (Provilkov et al., 2020): the same each time.

    `words_of` is asked where the store has parses, which are laid on the new tokens.
    """

    def ended(ids: list[int]) -> Ids:
        return np.array([*ids[: store.max_length], END], dtype=np.int64)

    sources, targets, parses = [], [], []
    for row in job.rows.tolist():
        random = np.random.Generator(philox(seed, job.epoch, row=row, purpose=1))
        text = store.text(row)
        source, target = encode(*text, random)
        sources.append(ended(source))
        targets.append(ended(target))
        if store.parses is not None and words_of is not None:
            parses.append(on_tokens(store.heads(row), words_of(text[0], source[: store.max_length])))
    return Batch(Tokens.of(sources, parses or None), Tokens.of(targets), tuple(job.rows.tolist())).packed()


def batches(
    store: Store,
    plan: Plan,
    *,
    cursor: Cursor = BEGINNING,
    rank: int = 0,
    world: int = 1,
    workers: int = 0,
    encode: Encode | None = None,
    words_of: WordsOf | None = None,
) -> Generator[tuple[Cursor, Batch], None, None]:
    """Batches without end, each with the position behind it: to start again there is to go on as if never stopped.

    Neither `workers` nor `world` changes which batches there are or their order. With `encode`, each row is encoded
    from its text when its batch is made; the budget still goes by the lengths in the store. `words_of` is for the
    parses of what is encoded so.
    """

    def make(job: Job) -> tuple[Cursor, Batch]:
        again = None if encode is None else collate_encoded(store, job, encode, plan.seed, words_of)
        made = collate(store, job.rows) if again is None else again
        if job.following.batch % RELEASE_EVERY == 0:
            store.release()
        return job.following, made

    return prefetch(jobs(plan, cursor, rank=rank, world=world), make, workers=workers)


def prefetch(work: Iterator[JobT], make: Callable[[JobT], MadeT], *, workers: int) -> Generator[MadeT, None, None]:
    """`make` of each job, in order; with workers, made ahead of need in that many threads.

    An error comes up where its result would have. Closing the iterator stops the threads.
    """
    if workers == 0:
        yield from map(make, work)
        return
    pending: deque[Future[MadeT]] = deque()
    pool = ThreadPoolExecutor(workers, thread_name_prefix="saccade-batches")
    try:
        more = True
        while more or pending:
            while more and len(pending) < 2 * workers:
                more = _submit_next(pool, work, make, pending)
            if pending:
                yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _submit_next(
    pool: ThreadPoolExecutor, work: Iterator[JobT], make: Callable[[JobT], MadeT], pending: deque[Future[MadeT]]
) -> bool:
    """Start one more job; False when there is none. An error in finding it waits for its turn like any other."""
    try:
        pending.append(pool.submit(make, next(work)))
    except StopIteration:
        return False
    except Exception as error:
        failed: Future[MadeT] = Future()
        failed.set_exception(error)
        pending.append(failed)
        return False
    return True
