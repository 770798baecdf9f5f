"""Reviews in which order and negation decide: whatever knows of order learns them, a bag of words does not."""

from pathlib import Path
from typing import Any

import pytest

import saccade
from saccade.data import reviews
from saccade.data.reviews import ReviewsData
from saccade.recipe import Recipe, parse_recipe

BAG_AT_BEST = 62.5
"""Per cent: all of the plain clauses, one in four, and half of the others."""


def recipe(model: dict[str, Any], *, updates: int, rate: float, sentences: int = 1) -> Recipe:
    return parse_recipe(
        {
            "task": "classify",
            "data": {"kind": "reviews", "train": 8000, "valid": 300, "test": 300, "sentences": sentences},
            "text": {"kind": "word", "size": 100, "lowercase": True},
            "model": model,
            "train": {
                "updates": updates,
                "batch_tokens": 1024,
                "validate_every": updates,
                "workers": 0,
                "optimizer": {"kind": "adamw", "rate": rate},
                "schedule": {"kind": "cosine", "warmup": 50 if rate < 1e-2 else 20},
                "metric": "accuracy",
            },
        }
    )


def accuracy(model: dict[str, Any], folder: Path, *, updates: int, rate: float = 1e-2) -> float:
    """On reviews whose verdicts were never seen, in per cent."""
    chosen = recipe({"kind": "sequence"} | model, updates=updates, rate=rate)
    run = saccade.train(chosen, folder / "run", device="cpu").load("cpu")
    tested = list(reviews.examples(ReviewsData(test=300), "test"))
    measured = run.evaluate_labels([each.text for each in tested], [each.label for each in tested])
    return measured.accuracy.value


def recurrent(kind: str) -> dict[str, Any]:
    return {"kind": kind, "width": 48, "embedding": 32}


@pytest.mark.parametrize(("kind", "pooling"), [("gru", "last"), ("lstm", "attention")])
def test_recurrent_ones_learn_them(kind: str, pooling: str, tmp_path: Path) -> None:
    assert accuracy({"encoder": recurrent(kind), "pooling": pooling}, tmp_path, updates=170) >= 95


def test_a_transformer_learns_them(tmp_path: Path) -> None:
    encoder = {"kind": "transformer", "width": 32, "heads": 4, "layers": 2, "dropout": 0.0}
    assert accuracy({"encoder": encoder, "pooling": "max"}, tmp_path, updates=400, rate=5e-3) >= 90


@pytest.mark.parametrize("pooling", ["mean", "attention"])
def test_a_bag_of_words_does_not(pooling: str, tmp_path: Path) -> None:
    """With a hidden layer, and trained for longer."""
    bag = {"encoder": {"kind": "bag", "width": 32}, "pooling": pooling, "hidden": 32, "activation": "relu"}
    assert accuracy(bag, tmp_path, updates=500) <= BAG_AT_BEST + 7  # 300 of them: 2.5 standard deviations


def test_the_network_of_words_and_sentences_finds_the_sentence_that_decides(tmp_path: Path) -> None:
    """Of two sentences the one that begins with `overall`; its sentence attention says so."""
    model = {
        "kind": "hierarchical",
        "words": {"encoder": recurrent("gru")},
        "sentences": {"encoder": {"kind": "gru", "width": 16}},
    }
    chosen = recipe(model, updates=260, rate=1e-2, sentences=2)
    trained = saccade.train(chosen, tmp_path / "run", device="cpu")
    assert trained.best["accuracy"] >= 95
    run = trained.load("cpu")
    found = []
    for review in reviews.examples(ReviewsData(test=20, sentences=2), "test"):
        weights = run.explain(review.text).attention["pooling"][0, 0]
        words = weights[:2] > 0  # which words belong to which sentence
        shares = [float(weights[2][own].sum()) for own in words]
        first = review.text.startswith("Overall")
        found.append(shares[0 if first else 1] > 0.5)
    assert sum(found) >= 16
