"""Labels against labels: accuracy, precision, recall and F1 of each, their mean, and who is taken for whom.

The formulas and their corners are scikit-learn's: the labels scored are those that occur, among the true ones or among
the answers; a share of nothing is 0; macro-F1 is the plain mean over these labels.
Shapes: C labels that occur, n examples.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from saccade.errors import UsageError
from saccade.metrics.interval import Confidence, Interval, Resampling, percentiles, resampling, wilson
from saccade.metrics.score import Score

_AT_ONCE = 1 << 22  # counts held in memory together


@dataclass(frozen=True)
class ClassScore:
    """How well one label is found, as shares in 0 to 1."""

    label: str
    precision: float
    """Of the examples that were given this label, those that have it."""
    recall: float
    """Of the examples that have this label, those that were given it."""
    f1: float
    """Their harmonic mean: 2 · right / (given + having)."""
    support: int
    """How many examples have it."""
    given: int
    """How many examples were given it."""


@dataclass(frozen=True)
class Classification:
    """All that two lists of labels say about each other."""

    accuracy: Score
    macro_f1: Score
    classes: tuple[ClassScore, ...]
    confusion: tuple[tuple[int, ...], ...]
    """How often the label of the row was given the label of the column; in the order of `classes`."""

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(each.label for each in self.classes)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "accuracy": self.accuracy.to_dict(),
            "macro_f1": self.macro_f1.to_dict(),
            "classes": [
                {
                    "label": each.label,
                    "precision": each.precision,
                    "recall": each.recall,
                    "f1": each.f1,
                    "support": each.support,
                }
                for each in self.classes
            ],
            "confusion": [list(row) for row in self.confusion],
        }


def classification(
    true: Sequence[str], given: Sequence[str], *, order: Sequence[str] = (), confidence: Confidence = True
) -> Classification:
    """`given` against `true`; labels come in `order`, those that are not in it behind.

    Accuracy has Wilson's interval. That of macro-F1 is the bootstrap's (Efron 1979): percentiles of 1,000 resamples of
    the examples, seed 12345.
    """
    _check(true, given)
    known = {label: place for place, label in enumerate(order)}
    labels = sorted({*true, *given}, key=lambda label: (known.get(label, len(known)), label))
    place = {label: number for number, label in enumerate(labels)}
    confusion_CC = np.zeros((len(labels), len(labels)), dtype=np.int64)
    np.add.at(confusion_CC, ([place[each] for each in true], [place[each] for each in given]), 1)
    count, right = len(true), int(confusion_CC.trace())
    low, high = wilson(right, count)
    how = resampling(confidence, count)
    codes_2N = np.array([(place[one], place[other]) for one, other in zip(true, given, strict=True)]).T
    f1_low, f1_high = Interval(math.nan, math.nan) if how is None else _bootstrap(codes_2N[0], codes_2N[1], how)
    return Classification(
        Score("accuracy", 100 * right / count, 100 * low, 100 * high, None, count),
        Score("macro-F1", 100 * float(macro_f1(confusion_CC[None])[0]), 100 * f1_low, 100 * f1_high, None, count),
        tuple(_of_class(label, confusion_CC, number) for number, label in enumerate(labels)),
        tuple(tuple(row) for row in confusion_CC.tolist()),
    )


def _of_class(label: str, confusion_CC: np.ndarray[Any, Any], number: int) -> ClassScore:
    right = int(confusion_CC[number, number])
    support, given = int(confusion_CC[number].sum()), int(confusion_CC[:, number].sum())
    return ClassScore(
        label,
        right / given if given else 0.0,
        right / support if support else 0.0,
        2 * right / (given + support),
        support,
        given,
    )


def macro_f1(confusion_RCC: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Of R confusion matrices, the mean F1 over the labels that occur in each."""
    right_RC = np.diagonal(confusion_RCC, axis1=1, axis2=2)
    return _mean_f1(right_RC, confusion_RCC.sum(1) + confusion_RCC.sum(2))


def _mean_f1(right_RC: np.ndarray[Any, Any], both_RC: np.ndarray[Any, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Over the labels that occur; `both`: how often a label is given, and how often it is true."""
    occurs_RC = both_RC > 0
    f1_RC = 2 * right_RC / np.where(occurs_RC, both_RC, 1)
    mean_R: np.ndarray[Any, np.dtype[np.float64]] = f1_RC.sum(1) / occurs_RC.sum(1)
    return mean_R


def _bootstrap(true_N: np.ndarray[Any, Any], given_N: np.ndarray[Any, Any], how: Resampling) -> Interval:
    """Examples are drawn with replacement, the same ones that `saccade compare` draws with this seed."""
    count, classes = len(true_N), int(max(true_N.max(), given_N.max())) + 1
    right_N = np.where(true_N == given_N, true_N, classes)  # the column behind all labels: who is wrong
    generator, found = np.random.default_rng(how.seed), []
    at_once = max(1, _AT_ONCE // max(count, classes))
    for begin in range(0, how.samples, at_once):
        rows = min(at_once, how.samples - begin)
        drawn_RN = generator.integers(count, size=(rows, count))
        right_RC, true_RC, given_RC = (_tallied(each_N[drawn_RN], classes + 1) for each_N in (right_N, true_N, given_N))
        found.append(_mean_f1(right_RC[:, :-1], true_RC[:, :-1] + given_RC[:, :-1]))
    return percentiles(np.concatenate(found))


def _tallied(codes_RN: np.ndarray[Any, Any], columns: int) -> np.ndarray[Any, Any]:
    """(R, columns): how often each code stands in each row."""
    places = codes_RN + columns * np.arange(len(codes_RN))[:, None]
    return np.bincount(places.ravel(), minlength=len(codes_RN) * columns).reshape(-1, columns)


def _check(true: Sequence[str], given: Sequence[str]) -> None:
    if isinstance(true, str) or isinstance(given, str):
        raise UsageError("classification: labels must be two lists, not one string.")
    if len(true) != len(given):
        raise UsageError(
            f"classification: labels must pair up; there are {len(true):,} true ones and {len(given):,} given ones."
        )
    if not true:
        raise UsageError("classification: there is nothing to score: there are no labels.")
