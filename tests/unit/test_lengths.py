"""Batches of rows of like length: whole, within the budget, longest first."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.data.lengths import alike

rows = st.lists(st.tuples(st.integers(0, 30), st.integers(1, 4)), max_size=30)


@settings(max_examples=200, deadline=None)
@given(rows=rows, budget=st.integers(1, 200), most=st.none() | st.integers(1, 5), parted=st.booleans())
def test_every_row_once_within_the_budget(
    rows: list[tuple[int, int]], budget: int, most: int | None, parted: bool
) -> None:
    lengths, parts = [length for length, _ in rows], [count for _, count in rows]
    found = list(alike(range(len(rows)), lengths, budget, most=most, parts=parts if parted else None))
    flat = [row for batch in found for row in batch]
    assert sorted(flat) == list(range(len(rows)))
    assert [lengths[row] for row in flat] == sorted(lengths, reverse=True)
    for number, batch in enumerate(found):
        used = sum(parts[row] if parted else 1 for row in batch)
        assert len(batch) == 1 or used * lengths[batch[0]] <= budget
        assert most is None or len(batch) <= most
        if number + 1 < len(found):  # no batch ends before it must
            more = used + (parts[found[number + 1][0]] if parted else 1)
            assert len(batch) == most or more * lengths[batch[0]] > budget


@pytest.mark.parametrize(("asked", "batches"), [([3, 1, 0], [[0, 1], [3]]), ([], [])])
def test_equal_lengths_stay_in_their_order(asked: list[int], batches: list[list[int]]) -> None:
    assert list(alike(sorted(asked), [5, 5, 9, 2], 10)) == batches


@given(st.lists(st.integers(1, 30), max_size=60), st.integers(1, 200), st.integers(1, 8), st.booleans())
def test_rows_come_in_multiples_where_there_are_as_many(
    lengths: list[int], budget: int, multiple: int, several: bool
) -> None:
    parts = [1 + length % 3 for length in lengths] if several else None
    batches = list(alike(range(len(lengths)), lengths, budget, most=24, parts=parts, multiple=multiple))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        size = len(batch) if parts is None else sum(parts[row] for row in batch)
        assert len(batch) == 1 or size * max(lengths[row] for row in batch) <= budget
        assert len(batch) <= 24
        assert len(batch) < multiple or len(batch) % multiple == 0 or batch is batches[-1]
