from pathlib import Path

import yaml

from saccade.train.card import card
from saccade.train.events import Finished, Prepared

RECIPE = {
    "task": "translate",
    "seed": 7,
    "data": {"kind": "files"},
    "text": {"kind": "bpe"},
    "model": {"encoder": {"kind": "lstm"}, "decoder": {"kind": "transformer"}},
}
SIZES = {"source tokens": 8_000, "target tokens": 7_000}
PREPARED = Prepared(29_000, "pairs", 1_234_567, SIZES, 100, 0, "cpu", ("train: 3 pairs were dropped.",))


def finished(best: dict[str, float], averaged: int = 0) -> Finished:
    return Finished("updates", 100, 50, best, 61.0, 12_345, Path("runs/mine"), averaged)


def test_the_card_says_what_the_model_is_and_what_it_was_made_of() -> None:
    text = card(RECIPE, PREPARED, finished({"loss": 1.25, "bleu": 31.5}))
    _, front, body = text.split("---\n", 2)
    assert yaml.safe_load(front)["library_name"] == "saccade"
    for said in ("lstm encoder → transformer decoder", "1,234,567", "29,000", "update 50", "bleu 31.5", "seed 7"):
        assert said in body
    assert "- train: 3 pairs were dropped." in body


def test_the_mean_of_checkpoints_is_named() -> None:
    assert "mean of 5 checkpoints" in card(RECIPE, PREPARED, finished({"loss": 1.25}, averaged=5))


def test_a_run_without_a_validation_claims_no_score() -> None:
    text = card(RECIPE, PREPARED, finished({}))
    assert "stopped before its first validation" in text
    assert "best validation" not in text
