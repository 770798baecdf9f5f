"""Every row once an epoch, within the budget, in an order that depends on nothing but seed and epoch."""

import threading
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from saccade.data.batching import Cursor, Plan, batches, collate, jobs, padding_share, prefetch
from saccade.data.files import Counts
from saccade.data.store import Store, write_store
from saccade.errors import UsageError
from saccade.nn import masks
from saccade.types import END, Tokens

Lengths = NDArray[np.int32]
some_lengths = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=120).map(
    lambda pairs: np.array(pairs, dtype=np.int32)
)
budgets = st.integers(1, 200)
seeds = st.integers(0, 2**64 - 1)


def many_lengths(n: int) -> Lengths:
    return np.random.default_rng(0).integers(1, 60, (n, 2)).astype(np.int32)


class Letters:
    size = 300

    def encode_flat(self, texts: list[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        ids = [ord(each) + 4 for text in texts for each in text]
        return np.array(ids, dtype=np.uint32), np.array([len(text) for text in texts])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    lengths = np.random.default_rng(1).integers(1, 20, (150, 2)).tolist()
    rows = [("abcdefghijklmnopqrst"[:s], "ABCDEFGHIJKLMNOPQRST"[-t:]) for s, t in lengths]
    folder: Path = tmp_path_factory.mktemp("data") / "store"
    return write_store(
        folder, rows, Letters(), Letters(), max_length=99, on_long="drop", counts=Counts(), keep_text=True
    )


# ---- the plan


@given(some_lengths, budgets, seeds, st.integers(0, 1000), st.one_of(st.none(), st.integers(1, 9)))
def test_every_row_once_and_within_the_budget(
    lengths: Lengths, budget: int, seed: int, epoch: int, most: int | None
) -> None:
    plan = Plan(lengths, budget, seed, batch_sentences=most).epoch(epoch)
    cut = [plan[k] for k in range(len(plan))]
    assert sorted(np.concatenate(cut).tolist()) == list(range(len(lengths)))
    for rows in cut:
        assert len(rows) == 1 or len(rows) * lengths[rows].max() <= budget
        assert len(rows) >= 1
        assert most is None or len(rows) <= most
    with pytest.raises(IndexError):
        plan[len(plan)]


@given(some_lengths, budgets)
def test_batches_of_a_pool_are_as_full_as_they_can_be(lengths: Lengths, budget: int) -> None:
    """Brute force: take rows in order of length for as long as they fit."""
    plan = Plan(lengths, budget, seed=5)
    assume(plan._pool >= len(lengths))
    expected: list[list[int]] = []
    widths = sorted(lengths.max(axis=1).tolist())
    for width in widths:
        if expected and (len(expected[-1]) + 1) * width <= budget:
            expected[-1].append(width)
        else:
            expected.append([width])
    epoch = plan.epoch(0)
    got = sorted(sorted(lengths[epoch[k]].max(axis=1).tolist()) for k in range(len(epoch)))
    assert got == sorted(expected)


def test_the_order_is_a_function_of_seed_and_epoch_alone() -> None:
    lengths = many_lengths(3000)

    def order(seed: int, epoch: int) -> list[list[int]]:
        plan = Plan(lengths, 500, seed).epoch(epoch)
        return [plan[k].tolist() for k in range(len(plan))]

    assert order(1, 2) == order(1, 2)
    assert len({str(order(seed, epoch)) for seed in (0, 1, 2) for epoch in (0, 1, 2)}) == 9
    plan = Plan(lengths, 500, 1)
    plan.epoch(0)  # looking at one epoch changes nothing for another
    assert plan.epoch(2)[0].tolist() == order(1, 2)[0]


def test_the_order_stays_what_it_is() -> None:
    """A resumed run may have another numpy: the order must not move with it."""
    plan = Plan(np.array([[n % 7 + 1, n % 5 + 1] for n in range(12)]), 12, seed=7).epoch(3)
    assert [plan[k].tolist() for k in range(len(plan))] == [[9, 5], [6], [0, 1, 2, 7], [11, 4], [8, 3, 10]]


def test_batches_are_mixed_over_the_whole_epoch() -> None:
    lengths = many_lengths(20_000)
    plan = Plan(lengths, 1000, seed=0).epoch(0)
    widths = np.array([lengths[plan[k]].max() for k in range(len(plan))], dtype=float)
    assert abs(np.corrcoef(widths[:-1], widths[1:])[0, 1]) < 0.1  # neighbours in time are not alike in length


@given(some_lengths, budgets, seeds, st.one_of(st.none(), st.integers(1, 9)))
def test_the_largest_batches_are_those_of_most_places(
    lengths: Lengths, budget: int, seed: int, most: int | None
) -> None:
    epoch = Plan(lengths, budget, seed=seed, batch_sentences=most).epoch(0)
    shapes = [(len(epoch[k]), int(lengths[epoch[k]].max())) for k in range(len(epoch))]
    assert epoch.widths.tolist() == [width for _, width in shapes]
    found = [(len(rows), int(lengths[rows].max())) for rows in epoch.largest()]
    assert max(n * w for n, w in found) == max(n * w for n, w in shapes)
    assert max(n * w * w for n, w in found) == max(n * w * w for n, w in shapes)


def test_bucketing_saves_most_of_the_padding() -> None:
    lengths = np.random.default_rng(0).integers(5, 60, (20_000, 1)).repeat(2, axis=1).astype(np.int32)
    plan = Plan(lengths, 2000, seed=0)
    epoch = plan.epoch(1)
    batched = [lengths[epoch[k]] for k in range(len(epoch))]
    positions = sum(len(each) * int(each.max(axis=0).sum()) for each in batched)
    assert padding_share(lengths, plan, 1) == pytest.approx(1 - lengths.sum() / positions)
    assert padding_share(lengths, plan, 1) < 0.03  # a random order would waste about 45 %


@pytest.mark.parametrize(
    ("lengths", "budget", "seed", "most", "reason"),
    [
        (np.ones((0, 2)), 9, 0, None, r"n > 0; it has \(0, 2\)"),
        (np.ones(3), 9, 0, None, r"shape \(n, 2\)"),
        (np.ones((3, 2)), 0, 0, None, "batch_tokens must be at least 1; it is 0"),
        (np.ones((3, 2)), 9, -1, None, "seed must be"),
        (np.ones((3, 2)), 9, 0, 0, "batch_sentences must be at least 1"),
    ],
)
def test_a_plan_that_makes_no_sense_is_refused(
    lengths: NDArray[np.float64], budget: int, seed: int, most: int | None, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason):
        Plan(lengths.astype(np.int32), budget, seed, batch_sentences=most)


# ---- the stream


@settings(deadline=None)
@given(some_lengths, budgets, st.integers(1, 5), st.integers(1, 4))
def test_ranks_deal_out_the_one_stream(lengths: Lengths, budget: int, world: int, rounds: int) -> None:
    plan = Plan(lengths, budget, seed=3)
    alone = [(job.rows.tolist(), job.epoch) for job in islice(jobs(plan), world * rounds)]
    ranks = [list(islice(jobs(plan, rank=rank, world=world), rounds)) for rank in range(world)]
    dealt = [(job.rows.tolist(), job.epoch) for turn in zip(*ranks, strict=True) for job in turn]
    assert dealt == alone
    for turn in zip(*ranks, strict=True):
        assert len({job.following for job in turn}) == 1  # all ranks save the same position


@settings(deadline=None)
@given(some_lengths, budgets, st.integers(1, 30), st.sampled_from([(1, 1), (1, 2), (2, 1), (2, 3)]))
def test_resumed_is_uninterrupted(lengths: Lengths, budget: int, stop: int, worlds: tuple[int, int]) -> None:
    plan = Plan(lengths, budget, seed=9)
    before, after = worlds
    stopped = list(islice(jobs(plan, world=before), stop))[-1].following
    through = [job.rows.tolist() for job in islice(jobs(plan), before * stop + 12)][before * stop :]
    fresh = Plan(lengths, budget, seed=9)
    ranks = [list(islice(jobs(fresh, stopped, rank=rank, world=after), 12 // after)) for rank in range(after)]
    assert [job.rows.tolist() for turn in zip(*ranks, strict=True) for job in turn] == through


def test_a_position_that_is_not_in_the_plan_is_refused() -> None:
    plan = Plan(many_lengths(10), 200, seed=0)
    with pytest.raises(UsageError, match="the data or the batch size are not those"):
        next(jobs(plan, Cursor(0, 999)))
    with pytest.raises(UsageError, match="rank is 2 and world is 2"):
        next(jobs(plan, rank=2, world=2))
    end = next(jobs(plan, Cursor(0, len(plan.epoch(0)))))
    assert end.rows.tolist() == plan.epoch(1)[0].tolist()


# ---- batches


@settings(deadline=None)
@given(rows=st.lists(st.integers(0, 149), min_size=1, max_size=20))
def test_collate_is_the_plain_one_made_fast(store: Store, rows: list[int]) -> None:
    batch = collate(store, np.array(rows, dtype=np.int32))
    for fast, one in ((batch.source, store.source), (batch.target, store.target)):
        plain = Tokens.of([one(i) for i in rows])
        assert torch.equal(masks.pad(fast.ids, fast.layout), plain.ids)
        torch.testing.assert_close(fast.layout.lengths_B, plain.layout.lengths_B, rtol=0, atol=0)
        assert (fast.layout.longest, fast.layout.even) == (plain.layout.longest, plain.layout.even)
    assert batch.index == tuple(rows)


def contents(stream: Iterator[tuple[Cursor, object]], n: int) -> list[str]:
    return [str(each) for each in islice(stream, n)]


@pytest.mark.parametrize("encoded", [False, True])
def test_workers_change_nothing(store: Store, encoded: bool) -> None:
    plan = Plan(store.lengths, 90, seed=4)
    encode = (lambda s, t, random: (random.integers(4, 99, len(s)).tolist(), [len(t)])) if encoded else None
    inline = contents(batches(store, plan, encode=encode), 120)
    assert len(plan.epoch(0)) < 120  # the stream runs on into the next epoch
    for workers in (1, 4):
        assert contents(batches(store, plan, workers=workers, encode=encode), 120) == inline


def test_rows_encoded_afresh_differ_by_epoch_and_not_by_company(store: Store) -> None:
    def drawn(budget: int, epoch: int) -> dict[int, list[int]]:
        plan = Plan(store.lengths, budget, seed=4)
        stream = batches(
            store,
            plan,
            cursor=Cursor(epoch, 0),
            encode=lambda source, target, random: (random.integers(4, 250, 8).tolist(), [ord(each) for each in target]),
        )
        rows = {}
        for _, batch in islice(stream, len(plan.epoch(epoch))):
            for b, index in enumerate(batch.index):
                rows[index] = batch.source.rows(b, b + 1).ids.tolist()
                text = [*map(ord, store.text(index)[1]), END]
                assert batch.target.rows(b, b + 1).ids.tolist() == text
        return rows

    first = drawn(90, 0)
    assert sorted(first) == list(range(len(store)))
    assert all(row[-1] == END for row in first.values())
    assert first == drawn(300, 0)
    again = drawn(90, 1)
    assert all(first[i] != again[i] for i in first)
    assert len({str(row) for row in first.values()}) == len(first)


def test_rows_encoded_afresh_keep_to_the_longest_length(tmp_path: Path) -> None:
    store = write_store(
        tmp_path / "s",
        [("ab", "c")],
        Letters(),
        Letters(),
        max_length=3,
        on_long="drop",
        counts=Counts(),
        keep_text=True,
    )
    plan = Plan(store.lengths, 9, seed=0)
    _, batch = next(batches(store, plan, encode=lambda source, target, random: ([4] * 9, [5])))
    assert batch.source.ids.tolist() == [4, 4, 4, END]
    assert batch.target.ids.tolist() == [5, END]


# ---- prefetching


def fails_at_three(n: int) -> int:
    if n == 3:
        raise ValueError("three")
    return n


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("fails_in", ["finding the work", "doing it"])
def test_an_error_comes_up_in_its_turn(workers: int, fails_in: str) -> None:
    if fails_in == "doing it":
        stream = prefetch(iter(range(9)), fails_at_three, workers=workers)
    else:
        stream = prefetch(map(fails_at_three, range(9)), int, workers=workers)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(stream)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_abandoned_stream_leaves_no_thread_and_does_not_run_ahead(workers: int) -> None:
    taken: list[int] = []

    def work() -> Iterator[int]:
        for n in range(10**9):
            taken.append(n)
            yield n

    before = threading.active_count()
    stream = prefetch(work(), lambda n: n, workers=workers)
    assert [next(stream), next(stream)] == [0, 1]
    stream.close()
    assert threading.active_count() == before
    assert len(taken) <= 2 + 2 * workers


@given(st.integers(0, 30), st.integers(0, 4))
@settings(deadline=None)
def test_prefetch_is_map(n: int, workers: int) -> None:
    assert list(prefetch(iter(range(n)), lambda i: i * i, workers=workers)) == [i * i for i in range(n)]
