"""Small recipes of language models that train in a second, one for each kind of decoder and of text."""

from pathlib import Path
from typing import Any

from saccade import config
from saccade.data.grammar import sentences
from saccade.recipe import Recipe, parse_recipe

DECODERS: dict[str, dict[str, Any]] = {
    "window": {"kind": "window", "order": 4, "width": 12, "embedding": 8},
    "elman": {"kind": "elman", "width": 12},
    "gru": {"kind": "gru", "width": 12, "dropout": 0.2},
    "lstm": {"kind": "lstm", "layers": 2, "width": 12, "last_width": 8, "embedding": 8, "locked": True, "dropout": 0.2},
    "lstmn": {"kind": "lstmn", "width": 12},
    "transformer": {"kind": "transformer", "layers": 1, "width": 12, "heads": 2, "dropout": 0.2},
}


def tree(decoder: str, text: str = "char", **more: Any) -> dict[str, Any]:
    """On the grammar; `more` are whole sections instead of those here."""
    read: dict[str, Any] = {"kind": "streams", "streams": 4, "steps": 12, "validation": 3}
    if decoder == "transformer":
        read = {"kind": "windows", "length": 24, "context": 4}
    kinds = {"word": {"kind": "word", "cut": "spaces", "size": 60}, "bpe": {"kind": "bpe", "size": 300}}
    return {
        "task": "language-model",
        "data": {"kind": "grammar", "train": 60, "valid": 12, "test": 10},
        "text": kinds.get(text, {"kind": text}),
        "read": read,
        "model": {"decoder": DECODERS[decoder]},
        "train": {
            "updates": 6,
            "batch_tokens": 96,
            "validate_every": 3,
            "log_every": 2,
            "optimizer": {"kind": "adamw", "rate": 1e-2},
            "schedule": {"kind": "constant"},
        },
        "decode": {"max_tokens": 20},
        **more,
    }


def recipe(decoder: str = "lstm", text: str = "char", *settings: str, **more: Any) -> Recipe:
    made = tree(decoder, text, **more)
    for setting in settings:
        made = config.override(made, setting)
    return parse_recipe(made, "test")


def write_texts(folder: Path) -> Path:
    """A few sentences in files, and a recipe beside them."""
    for split, count in (("train", 80), ("valid", 12), ("test", 10)):
        lines = sentences(1, split, count)  # type: ignore[arg-type]
        (folder / f"{split}.txt").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = {"kind": "text", "train": "train.txt", "valid": "valid.txt", "test": "test.txt"}
    path = folder / "text.yaml"
    path.write_text(config.to_yaml(tree("lstm", data=files)), encoding="utf-8")
    return path
