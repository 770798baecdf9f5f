"""Groups of lines and words, worked out by hand."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.metrics.buckets import (
    Bucket,
    WordScore,
    by_difficulty,
    by_frequency,
    by_value,
    count_words,
    frequency_labels,
    ngram_differences,
)


def test_lines_by_length() -> None:
    assert by_value([3, 1, 2, 2, 9, 4], most=3) == [Bucket("1–2", (1, 2, 3)), Bucket("3–4", (0, 5)), Bucket("9", (4,))]
    assert by_value([5, 5, 5]) == [Bucket("5", (0, 1, 2))]
    assert by_value([]) == []
    with pytest.raises(UsageError, match="at least 1; got 0"):
        by_value([1], most=0)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=60), st.integers(1, 8))
def test_every_line_is_in_one_group_and_equal_ones_together(values: list[int], most: int) -> None:
    found = by_value(values, most)
    assert sorted(row for each in found for row in each.rows) == list(range(len(values)))
    assert len(found) <= most
    ends = [({values[row] for row in each.rows}) for each in found]
    assert all(max(one) < min(other) for one, other in pairwise(ends))


def test_lines_by_difficulty() -> None:
    scores = np.array([[90, 10, 50, 70], [70, 30, 50, 90]])  # means 80, 20, 50, 80
    assert by_difficulty(scores, most=2) == [Bucket("hardest", (1, 2)), Bucket("easiest", (0, 3))]
    assert by_difficulty(scores, most=3) == [Bucket("hardest", (1, 2)), Bucket("2 of 3", (0,)), Bucket("easiest", (3,))]
    assert by_difficulty(scores, less_is_better=True, most=2)[0] == Bucket("hardest", (0, 3))
    assert by_difficulty(scores[:, :1]) == [Bucket("all", (0,))]


def test_words_by_frequency() -> None:
    seen = Counter({"the": 50, "cat": 3, "sat": 3})
    #   output: the(50) the(50) cat(3) dog(0) — reference: the(50) cat(3) sat(3) mat(0)
    found = by_frequency(["the the cat dog"], ["the cat sat mat"], seen, edges=(1, 10))
    assert found == [WordScore("0", 0, 1, 1), WordScore("1–9", 1, 1, 2), WordScore("≥ 10", 1, 2, 1)]
    assert [round(each.f1, 2) for each in found] == [0.0, 66.67, 66.67]


def test_of_several_references_the_nearest_counts() -> None:
    found = by_frequency(["a b"], [("x y", "a c")], Counter(), edges=(1,))
    assert found == [WordScore("0", 1, 2, 2)]


def test_frequencies_are_named() -> None:
    assert frequency_labels((1, 2, 5, 10, 1000)) == ["0", "1", "2–4", "5–9", "10–999", "≥ 1,000"]
    for wrong in ((), (0, 1), (5, 2)):
        with pytest.raises(UsageError, match="must rise"):
            frequency_labels(wrong)
    assert count_words(["Ein Haus, ein Haus."]) == {"Ein": 1, "Haus": 2, ",": 1, "ein": 1, ".": 1}


def test_ngrams_that_only_one_system_gets_right() -> None:
    right = ["the red house", "a red car"]
    more, less = ngram_differences(["the house", "a car"], ["red house", "a red car"], right, longest=2)
    assert [(each.ngram, each.system, each.baseline) for each in more] == [
        ("red", 2, 0), ("a red", 1, 0), ("red car", 1, 0), ("red house", 1, 0),
    ]  # fmt: skip
    assert more[0].share == 3 / 4
    assert [(each.ngram, each.system, each.baseline, each.share) for each in less] == [("the", 0, 1, 1 / 3)]
    assert ngram_differences(right, right, right) == ([], [])
