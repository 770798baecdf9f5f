"""A small text of documents, and recipes that learn its blanks in seconds."""

import random
from pathlib import Path
from typing import Any

from saccade import config
from saccade.recipe import Recipe, parse_recipe

MODELS: dict[str, Any] = {
    "bert": {
        "encoder": {
            "kind": "transformer", "layers": 2, "width": 8, "heads": 2, "norm": "post", "activation": "gelu",
            "positions": "learned", "places": 40, "segments": 2, "norm_embedding": True, "scale_embedding": False,
        },
        "next_sentence": True,
    },
    "transformer": {"encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2}},
    "lstm": {"encoder": {"kind": "lstm", "width": 8, "embedding": 6, "dropout": 0.2}, "next_sentence": True},
    "gru": {"encoder": {"kind": "gru", "width": 8}, "head": {"kind": "plain"}, "tie": "none"},
}  # fmt: skip
COLOURS = {"sky": "blue", "sun": "yellow", "grass": "green", "rose": "red"}


def sentence(draw: random.Random, topic: str) -> str:
    """The colour is known from the thing."""
    return f"{draw.choice(['the', 'a', 'this'])} {topic} is {draw.choice(['very', 'quite', 'so'])} {COLOURS[topic]}"


def write_text(folder: Path, *, train: int = 30, valid: int = 8, seed: int = 0) -> Path:
    """Documents of two to four lines, each on one thing, in train.txt and valid.txt."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("valid", valid)):
        documents = []
        for _ in range(count):
            topic = draw.choice(list(COLOURS))
            documents.append("".join(sentence(draw, topic) + "\n" for _ in range(draw.randint(2, 4))))
        (folder / f"{split}.txt").write_text("\n".join(documents))
    return folder


def recipe(corpus: Path, model: str | dict[str, Any] = "transformer", *settings: str) -> Recipe:
    """A recipe on the text that ends after 10 updates, with `dotted.name=value` settings applied."""
    tree: dict[str, Any] = {
        "task": "masked-language-model",
        "data": {"kind": "text", **{split: str(corpus / f"{split}.txt") for split in ("train", "valid")}},
        "text": {"kind": "word", "size": 40},
        "model": MODELS[model] if isinstance(model, str) else model,
        "train": {
            "updates": 10,
            "batch_tokens": 128,
            "validate_every": 4,
            "log_every": 3,
            "workers": 0,
            "fingerprint": True,
            "optimizer": {"kind": "adamw", "rate": 1e-2},
            "schedule": {"kind": "constant"},
        },
    }
    for setting in settings:
        tree = config.override(tree, setting)
    return parse_recipe(tree)
