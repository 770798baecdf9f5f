"""Small tagged corpora and recipes that train on them in a second."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saccade import config
from saccade.data.conll import Tagged
from saccade.data.notices import notice
from saccade.recipe import parse_recipe
from saccade.tasks.tag import TagRecipe

MODELS: dict[str, dict[str, Any]] = {
    "lstm": {"encoder": {"kind": "lstm", "width": 8, "dropout": 0.2}},
    "lstm, cnn, crf": {
        "encoder": {"kind": "lstm", "width": 8, "embedding": 6, "dropout": 0.2},
        "characters": {"kind": "cnn", "embedding": 4, "filters": 5, "dropout": 0.2},
        "output": {"kind": "crf", "constrain": "all"},
    },
    "gru, lstm, crf": {
        "encoder": {"kind": "gru", "layers": 2, "width": 8, "dropout": 0.2},
        "characters": {"kind": "lstm", "embedding": 4, "width": 6},
        "output": {"kind": "crf"},
        "scheme": "iob2",
    },
    "elman": {"encoder": {"kind": "elman", "width": 8, "bidirectional": False}},
    "lstmn": {"encoder": {"kind": "lstmn", "width": 8, "bidirectional": False}, "output": {"kind": "crf"}},
    "transformer": {
        "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.2},
        "characters": {"kind": "cnn", "filters": 5},
    },
    "transformer of pieces": {
        "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.2},
        "output": {"kind": "crf"},
    },
    "lstm of characters": {"encoder": {"kind": "lstm", "width": 8}, "pieces": "mean"},
}
TEXTS: dict[str, dict[str, Any]] = {
    "transformer of pieces": {"kind": "bpe", "size": 300},
    "lstm of characters": {"kind": "char"},
}


def conll(sentences: Sequence[Tagged]) -> str:
    rows = ("".join(f"{w} {t}\n" for w, t in zip(s.words, s.tags, strict=True)) for s in sentences)
    return "\n".join(rows)


def conllu(sentences: Sequence[Tagged]) -> str:
    def row(number: int, word: str, tag: str) -> str:
        return "\t".join([str(number), word, "_", tag, *"_" * 6]) + "\n"

    def rows(sentence: Tagged) -> str:
        pairs = zip(sentence.words, sentence.tags, strict=True)
        return "".join(row(number, *pair) for number, pair in enumerate(pairs, start=1))

    return "\n".join(f"# text = {' '.join(each.words)}\n{rows(each)}" for each in sentences)


def write_tagged(folder: Path, *, train: int = 60, valid: int = 12, test: int = 12) -> Path:
    """Notices in CoNLL columns: train.conll, valid.conll and test.conll."""
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("valid", valid), ("test", test)):
        made = [notice(3, "train" if split == "train" else "valid", i + 100 * (split == "test")) for i in range(count)]
        (folder / f"{split}.conll").write_text(conll(made), encoding="utf-8")
    return folder


def tag_recipe(corpus: Path, model: str | dict[str, Any] = "lstm", *settings: str) -> TagRecipe:
    """A recipe on the corpus that ends after 10 updates, with `dotted.name=value` settings applied."""
    named = isinstance(model, str)
    tree: dict[str, Any] = {
        "task": "tag",
        "data": {"kind": "conll", **{split: str(corpus / f"{split}.conll") for split in ("train", "valid", "test")}},
        "text": TEXTS.get(str(model), {"kind": "words"}) if named else {"kind": "words"},
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
    recipe = parse_recipe(tree)
    assert isinstance(recipe, TagRecipe)
    return recipe
