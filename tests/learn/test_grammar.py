"""A language model learns the generated grammar: nearly to its entropy, and its agreement with it."""

from pathlib import Path

import saccade
from saccade.data.grammar import log_probability, sentences
from saccade.recipe import parse_recipe

RECIPE = {
    "task": "language-model",
    "data": {"kind": "grammar", "train": 12_000, "valid": 100},
    "text": {"kind": "word", "size": 300},
    "read": {"kind": "streams", "streams": 16, "steps": 24},
    "model": {"decoder": {"kind": "lstm", "width": 96, "embedding": 48}},
    "train": {
        "updates": 350,
        "validate_every": 350,
        "optimizer": {"kind": "adamw", "rate": 1.5e-2},
        "schedule": {"kind": "cosine", "warmup": 20},
    },
}


def test_an_lstm_comes_near_the_entropy_and_agrees(tmp_path: Path) -> None:
    """No model can be below what the grammar itself says of the same sentences, but by chance; ends cost nothing."""
    model = saccade.train(parse_recipe(RECIPE), tmp_path / "run", device="cpu").load("cpu")
    lines = list(sentences(1, "test", 300))
    cost = -sum(map(log_probability, lines))
    assert 0.995 < model.perplexity(lines).nll / cost < 1.06
    ranked = model.contrast("all", count=20)
    assert ranked["agreement-simple"].value == 100.0
    assert ranked["all"].value > 85.0  # with others standing between, too; by chance it would be 50
