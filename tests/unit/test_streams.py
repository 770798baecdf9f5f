"""Streams and windows: every token once, in order, the same from every position."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.data.batching import Cursor
from saccade.data.streams import Streams, Windows, varied_lengths
from saccade.errors import UsageError
from saccade.types import END, PAD, Batch, Tokens


def rows(side: Tokens) -> list[list[int]]:
    """Of a padded or a packed batch."""
    if side.layout.offsets_B is not None:
        cuts = side.layout.offsets_B.tolist()[1:]
        return [part.tolist() for part in np.split(side.ids.numpy(), cuts)]
    return [ids[:length] for ids, length in zip(side.ids.tolist(), side.layout.lengths_B.tolist(), strict=True)]


def joined(chunks: list[Batch], streams: int) -> tuple[list[list[int]], list[list[int]]]:
    read: list[list[int]] = [[] for _ in range(streams)]
    after: list[list[int]] = [[] for _ in range(streams)]
    for chunk in chunks:
        for b, (one, other) in enumerate(zip(rows(chunk.source), rows(chunk.target), strict=True)):
            read[b] += one
            after[b] += other
    return read, after


@given(tokens=st.integers(1, 300), streams=st.integers(1, 9), steps=st.integers(1, 40), varied=st.booleans())
def test_every_token_is_predicted_once_from_the_one_before_it(
    tokens: int, streams: int, steps: int, varied: bool
) -> None:
    text = np.arange(10, 10 + max(tokens, streams))
    chunks = list(Streams(text, streams, steps, varied=varied, seed=4).once())
    read, after = joined(chunks, streams)
    assert [token for row in after for token in row] == text.tolist()
    assert [token for row in read for token in row] == [END, *text[:-1].tolist()]
    lengths = [len(row) for row in after]
    assert max(lengths) - min(lengths) <= 1
    assert sum(chunk.tokens for chunk in chunks) == len(text)
    assert [chunk.begins for chunk in chunks] == [True] + [False] * (len(chunks) - 1)
    assert all(len(row) > 0 for chunk in chunks for row in rows(chunk.target))
    for chunk in chunks[:-1]:
        assert chunk.source.layout.even
        longest = chunk.source.layout.longest
        assert longest >= min(5, steps) if varied else longest == steps
        assert chunk.rate == (longest / steps if varied else 1.0)


def same(one: tuple[Cursor, Batch], other: tuple[Cursor, Batch]) -> bool:
    batches = [each for _, each in (one, other)]
    equal = all(rows(a) == rows(b) for a, b in zip(*((x.source, x.target) for x in batches), strict=True))
    return equal and one[0] == other[0] and one[1].begins == other[1].begins


@pytest.mark.parametrize("varied", [False, True])
def test_from_any_position_it_goes_on_the_same(varied: bool) -> None:
    streams = Streams(np.arange(10, 211), 4, 7, varied=varied, seed=2)
    expected = list(islice(streams.chunks(), 40))
    assert expected[-1][0].epoch > 1
    for k in range(1, 40):
        assert all(map(same, expected[k:], streams.chunks(expected[k - 1][0])))


def test_varied_chunks_differ_from_epoch_to_epoch_and_by_seed() -> None:
    text = np.arange(5000)

    def edges(seed: int, epoch: int) -> list[int]:
        found: list[int] = Streams(text, 1, 35, varied=True, seed=seed).edges(epoch).tolist()
        return found

    assert edges(0, 0) == edges(0, 0)
    assert edges(0, 0) != edges(0, 1)
    assert edges(0, 0) != edges(1, 0)


def test_varied_lengths_are_distributed_as_in_the_paper() -> None:
    """N(70, 5), once in 20 N(35, 5): means and spreads of 100,000, within four standard errors."""
    lengths = varied_lengths(70, 1, 0, 100_000)
    assert np.array_equal(lengths[:50], varied_lengths(70, 1, 0, 50))  # chunk i does not depend on how many there are
    short = lengths < 53
    assert short.mean() == pytest.approx(0.05, abs=0.003)
    assert lengths[~short].mean() + 0.5 == pytest.approx(70, abs=0.07)
    assert lengths[~short].std() == pytest.approx(5, abs=0.05)
    assert lengths[short].mean() + 0.5 == pytest.approx(35, abs=0.3)
    assert varied_lengths(8, 1, 0, 1000).min() == 5
    assert varied_lengths(2, 1, 0, 1000).min() == 2


def test_ranks_share_the_streams() -> None:
    streams = Streams(np.arange(10, 131), 6, 7)
    for chunks in islice(zip(streams.chunks(), *(streams.chunks(rank=r, world=3) for r in range(3)), strict=False), 9):
        (cursor, alone), *shares = chunks
        assert [row for _, share in shares for row in rows(share.target)] == rows(alone.target)
        assert all(share[0] == cursor for share in shares)
        assert sum(share.tokens for _, share in shares) == alone.tokens


# ---- windows


@given(tokens=st.integers(1, 300), length=st.integers(1, 40), windows=st.integers(1, 9), context=st.integers(0, 50))
def test_windows_predict_every_token_once(tokens: int, length: int, windows: int, context: int) -> None:
    text = np.arange(10, 10 + tokens)
    batches = list(Windows(text, length, windows, context=context).once())
    predicted = [token for batch in batches for row in rows(batch.target) for token in row if token != PAD]
    assert predicted == text.tolist()
    for batch in batches:
        assert batch.source.layout.is_packed
        for read, after in zip(rows(batch.source), rows(batch.target), strict=True):
            assert len(read) <= length + context
            for before, token in zip(read, after, strict=True):
                assert token in (PAD, before + 1) or (before, token) == (END, 10)
            assert after == sorted(after)  # context first, and nothing of it predicted
            assert len([token for token in after if token == PAD]) <= context


@given(tokens=st.integers(1, 300), length=st.integers(1, 40), windows=st.integers(1, 9), epoch=st.integers(0, 99))
def test_varied_windows_predict_every_token_once_an_epoch(tokens: int, length: int, windows: int, epoch: int) -> None:
    text = np.arange(10, 10 + tokens)
    made = Windows(text, length, windows, seed=5, varied=True)
    plan = made.epoch(epoch)
    read = [row for k in range(len(plan)) for row in rows(made.collate(plan[k]).source)]
    after = [row for k in range(len(plan)) for row in rows(made.collate(plan[k]).target)]
    assert sorted(token for row in after for token in row) == text.tolist()
    assert all(0 < len(row) <= length for row in after)
    for given_row, row in zip(read, after, strict=True):
        assert given_row == [END if row[0] == 10 else row[0] - 1, *row[:-1]]


def test_varied_windows_are_cut_elsewhere_in_every_epoch_and_go_on_the_same_from_any_position() -> None:
    windows = Windows(np.arange(10, 110), 7, 4, seed=3, varied=True)
    cuts = [{int(begin) % 7 for begin in windows.epoch(number).rows} for number in range(40)]
    assert all(len(each) == 1 for each in cuts)
    assert set.union(*cuts) == set(range(7))
    expected = [(cursor, batch.index) for cursor, batch in islice(windows.batches(), 12)]
    for k in range(1, 12):
        got = [(cursor, batch.index) for cursor, batch in islice(windows.batches(expected[k - 1][0]), 12 - k)]
        assert got == expected[k:]


def test_windows_come_in_an_order_of_the_epoch_from_any_position() -> None:
    windows = Windows(np.arange(10, 110), 7, 4, seed=3)

    def indices(batch: Batch) -> tuple[int, ...]:
        return batch.index

    expected = [(cursor, indices(batch)) for cursor, batch in islice(windows.batches(), 12)]
    epochs = [sorted(i for _, index in expected[k : k + 4] for i in index) for k in (0, 4, 8)]
    assert epochs == [list(range(0, 100, 7))] * 3  # where each begins
    assert expected[0][1] != expected[4][1]
    for k in range(1, 12):
        got = [(cursor, indices(batch)) for cursor, batch in islice(windows.batches(expected[k - 1][0]), 12 - k)]
        assert got == expected[k:]
    ahead = [(cursor, indices(batch)) for cursor, batch in islice(windows.batches(workers=2), 12)]
    assert ahead == expected
    both = [islice(windows.batches(rank=rank, world=2), 6) for rank in range(2)]
    assert [indices(batch) for pair in zip(*both, strict=True) for _, batch in pair] == [each[1] for each in expected]


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Streams(np.arange(3), 4, 5), "3 tokens, fewer than the 4 streams"),
        (lambda: Streams(np.arange(3), 0, 5), "at least 1; they are 0 and 5"),
        (lambda: Streams(np.arange(3), 1, 0), "at least 1; they are 1 and 0"),
        (lambda: next(Streams(np.arange(9), 2, 5).chunks(Cursor(0, 1))), "chunk 1 of epoch 0, which has 1 chunks"),
        (lambda: next(Streams(np.arange(9), 3, 5).chunks(rank=0, world=2)), "world must divide the streams"),
        (lambda: Windows(np.arange(0), 4, 5), "no tokens"),
        (lambda: Windows(np.arange(3), 4, 5, context=-1), "context at least 0"),
    ],
)
def test_what_cannot_be_is_told(make: Any, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        make()
