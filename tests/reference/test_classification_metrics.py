"""Accuracy, precision, recall, F1 and their mean, by hand and against the formulas written out."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from saccade.errors import UsageError
from saccade.metrics.classification import classification, macro_f1
from saccade.metrics.interval import wilson

TRUE = ["cat", "cat", "cat", "dog", "dog", "bird"]
GIVEN = ["cat", "dog", "cat", "dog", "dog", "cat"]


def test_by_hand() -> None:
    """cat: 2 of 3 given are right, 2 of 3 found; dog: 2 of 3, 2 of 2; bird: never given, never found."""
    measured = classification(TRUE, GIVEN, order=["dog", "cat", "bird"])
    assert measured.labels == ("dog", "cat", "bird")
    assert measured.confusion == ((2, 0, 0), (1, 2, 0), (0, 1, 0))
    dog, cat, bird = measured.classes
    assert (cat.precision, cat.recall, cat.f1, cat.support, cat.given) == (2 / 3, 2 / 3, 4 / 6, 3, 3)
    assert (dog.precision, dog.recall, dog.f1, dog.support) == (2 / 3, 1.0, 4 / 5, 2)
    assert (bird.precision, bird.recall, bird.f1, bird.support, bird.given) == (0.0, 0.0, 0.0, 1, 0)
    assert measured.accuracy.value == pytest.approx(100 * 4 / 6)
    assert (measured.accuracy.low / 100, measured.accuracy.high / 100) == pytest.approx(tuple(wilson(4, 6)))
    assert measured.macro_f1.value == pytest.approx(100 * (2 / 3 + 4 / 5 + 0) / 3)
    assert measured.macro_f1.count == 6


def test_labels_that_do_not_occur_are_not_scored() -> None:
    """As scikit-learn's: neither true nor given, a label is no part of the mean; only given, it counts with F1 0."""
    assert classification(["a"], ["a"], order=["a", "b"]).macro_f1.value == 100
    never_true = classification(["a", "a"], ["a", "b"])
    assert never_true.classes[1].support == 0
    assert never_true.macro_f1.value == pytest.approx(100 * (2 / 3) / 2)


def test_a_label_that_was_never_seen_is_wrong() -> None:
    measured = classification(["a", "new", "b"], ["a", "a", "b"], order=["a", "b"])
    assert measured.labels == ("a", "b", "new")
    assert measured.accuracy.value == pytest.approx(200 / 3)


labels = st.sampled_from("abcd")


@settings(max_examples=100, deadline=None)
@given(pairs=st.lists(st.tuples(labels, labels), min_size=1, max_size=30))
def test_against_the_formulas_one_example_at_a_time(pairs: list[tuple[str, str]]) -> None:
    true, given = zip(*pairs, strict=True)
    measured = classification(true, given, confidence=False)
    scores = []
    for each in measured.classes:
        right = sum(t == g == each.label for t, g in pairs)
        precision = right / given.count(each.label) if each.label in given else 0.0
        recall = right / true.count(each.label) if each.label in true else 0.0
        f1 = 2 * precision * recall / (precision + recall) if right else 0.0
        assert (each.precision, each.recall, each.f1) == pytest.approx((precision, recall, f1))
        scores.append(f1)
    assert measured.macro_f1.value == pytest.approx(100 * sum(scores) / len({*true, *given}))
    assert np.isnan(measured.macro_f1.low)


def test_the_interval_is_that_of_resampled_examples() -> None:
    """Drawn one by one, here; by who is taken for whom, there."""
    random = np.random.default_rng(0)
    true = random.choice(list("abc"), size=200, p=[0.6, 0.3, 0.1])
    given = np.where(random.random(200) < 0.7, true, random.choice(list("abc"), size=200))
    measured = classification(true.tolist(), given.tolist()).macro_f1
    codes = {label: number for number, label in enumerate("abc")}
    pairs = np.array([[codes[t], codes[g]] for t, g in zip(true, given, strict=True)])
    found = []
    for _ in range(2000):
        drawn = pairs[random.integers(200, size=200)]
        matrix = np.zeros((1, 3, 3), dtype=np.int64)
        np.add.at(matrix[0], (drawn[:, 0], drawn[:, 1]), 1)
        found.append(float(macro_f1(matrix)[0]))
    low, high = np.quantile(found, [0.025, 0.975])
    assert (measured.low, measured.high) == pytest.approx((100 * low, 100 * high), abs=1.5)
    assert measured.low < measured.value < measured.high
    assert classification(true.tolist(), given.tolist()).macro_f1 == measured


@pytest.mark.parametrize(
    ("true", "given", "told"),
    [([], [], "nothing to score"), (["a"], [], "1 true ones and 0 given"), ("ab", ["a", "b"], "not one string")],
)
def test_what_cannot_be_scored(true: list[str], given: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        classification(true, given)
