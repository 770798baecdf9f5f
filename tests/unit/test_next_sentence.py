"""Pairs of sentences: which follow, which do not, and how they are laid out."""

import math

import numpy as np
import pytest

from saccade.data.columns import Ragged
from saccade.data.next_sentence import FOLLOWS, RANDOM, Joined, SentencePairs
from saccade.errors import UsageError
from saccade.types import END

DOCUMENTS = (4, 1, 3, 2)  # lines of each


def text(
    documents: tuple[int, ...] = DOCUMENTS, words: int = 3
) -> tuple[Ragged, np.ndarray[tuple[int], np.dtype[np.int64]]]:
    """Line i of the whole says 100·i, 100·i + 1, … and END; longer lines at odd places."""
    rows = [[100 * i + 100 + k for k in range(words + i % 2)] + [END] for i in range(sum(documents))]
    values = np.concatenate(rows).astype(np.uint16)
    offsets = np.cumsum([0, *(len(row) for row in rows)])
    return Ragged(values, offsets), np.repeat(np.arange(len(documents)), documents)


def pairs(max_length: int = 100, seed: int = 5, documents: tuple[int, ...] = DOCUMENTS) -> SentencePairs:
    sentences, numbers = text(documents)
    return SentencePairs(sentences, numbers, seed=seed, max_length=max_length)


def split(joined: Joined) -> list[tuple[list[int], list[int]]]:
    found = []
    begin = 0
    for length in joined.lengths_B.tolist():
        row = joined.ids_N[begin : begin + length].tolist()
        begin += length
        cut = row.index(END)
        assert row[-1] == END
        found.append((row[:cut], row[cut + 1 : -1]))
    assert begin == len(joined.ids_N)
    return found


def line_of(part: list[int]) -> int:
    return part[0] // 100 - 1


def test_half_follow_and_half_come_from_elsewhere() -> None:
    machine = pairs(documents=(7,) * 40)
    _, document_of = text((7,) * 40)
    assert len(machine) == 40 * 6
    follows = 0
    partners = set()
    for epoch in range(10):
        joined = machine.take(np.arange(len(machine)), epoch)
        for (a, b), label in zip(split(joined), joined.labels_B.tolist(), strict=True):
            first, second = line_of(a), line_of(b)
            if label == FOLLOWS:
                follows += 1
                assert second == first + 1
                assert document_of[first] == document_of[second]
            else:
                assert label == RANDOM
                assert document_of[first] != document_of[second]
                partners.add(second)
    assert abs(follows - 1200) < 5 * math.sqrt(600)
    assert len(partners) > 250  # of 280 lines: any line of another document


def test_all_that_has_a_next_is_a_first() -> None:
    machine = pairs()
    assert machine.first.tolist() == [0, 1, 2, 5, 6, 8]
    firsts = [line_of(a) for a, _ in split(machine.take(np.arange(len(machine)), 0))]
    assert firsts == machine.first.tolist()


def test_seed_epoch_and_row_decide() -> None:
    machine = pairs()
    every = np.arange(len(machine))
    whole = machine.take(every, 3)
    again = pairs().take(every, 3)
    assert np.array_equal(whole.ids_N, again.ids_N)
    alone = [machine.take(np.array([row]), 3) for row in every]
    assert np.array_equal(np.concatenate([each.ids_N for each in alone]), whole.ids_N)
    assert [int(each.labels_B[0]) for each in alone] == whole.labels_B.tolist()
    labels = {tuple(machine.take(every, epoch).labels_B.tolist()) for epoch in range(10)}
    assert len(labels) > 5
    assert not np.array_equal(pairs(seed=6).take(every, 3).ids_N, whole.ids_N)


@pytest.mark.parametrize("max_length", [2, 3, 5, 6, 7, 8, 20])
def test_a_pair_has_no_more_tokens_than_allowed(max_length: int) -> None:
    """The longer side is cut at its end, down to half of the room at most."""
    uncut = split(pairs().take(np.arange(6), 1))
    joined = pairs(max_length=max_length).take(np.arange(6), 1)
    for (a, b), (whole_a, whole_b) in zip(split(joined), uncut, strict=True):
        assert a == whole_a[: len(a)]
        assert b == whole_b[: len(b)]
        assert len(a) + len(b) == min(max_length, len(whole_a) + len(whole_b))
        assert len(a) >= min(len(whole_a), max_length // 2)
        assert len(b) >= min(len(whole_b), max_length // 2)
    assert (pairs(max_length=max_length).lengths <= max_length + 2).all()


def test_lengths_are_those_of_true_neighbours() -> None:
    """3 and 4 words and two END."""
    assert pairs().lengths.tolist() == [9] * 6


def test_without_other_documents_there_is_nothing_to_tell_apart() -> None:
    for documents in ((5,), (1, 1, 1)):
        with pytest.raises(UsageError, match=r"needs two documents.*empty lines"):
            pairs(documents=documents)
    with pytest.raises(UsageError, match="max_length is 1"):
        pairs(max_length=1)
