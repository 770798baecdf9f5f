"""A small labelled corpus and small classifiers that train on it in seconds."""

from pathlib import Path
from typing import Any

from saccade import config
from saccade.data import reviews
from saccade.data.reviews import ReviewsData
from saccade.recipe import Recipe, parse_recipe

MODELS: dict[str, Any] = {
    "bag": {"kind": "sequence", "encoder": {"kind": "bag", "width": 8, "dropout": 0.1}, "pooling": "mean", "hidden": 6},
    "elman": {"kind": "sequence", "encoder": {"kind": "elman", "width": 8}, "pooling": "mean"},
    "gru": {"kind": "sequence", "encoder": {"kind": "gru", "width": 8, "dropout": 0.2}, "pooling": "last"},
    "lstm": {
        "kind": "sequence",
        "encoder": {"kind": "lstm", "width": 8, "dropout": 0.2},
        "pooling": "attention",
        "dropout": 0.2,
    },
    "lstmn": {"kind": "sequence", "encoder": {"kind": "lstmn", "width": 8}, "pooling": "max"},
    "transformer": {
        "kind": "sequence",
        "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.2},
        "pooling": "first",
        "hidden": 8,
    },
    "han": {
        "kind": "hierarchical",
        "words": {"encoder": {"kind": "gru", "width": 8, "dropout": 0.1}, "attention_width": 6},
        "sentences": {"encoder": {"kind": "gru", "width": 6}, "attention_width": 4},
        "dropout": 0.1,
    },
    "han-transformer": {
        "kind": "hierarchical",
        "words": {"encoder": {"kind": "bag", "width": 8}, "pooling": "mean"},
        "sentences": {"encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2}},
    },
}
PAIRED: dict[str, Any] = {
    "joined": {"kind": "sequence", "encoder": {"kind": "gru", "width": 8}, "pooling": "attention"},
    "apart": {
        "kind": "sequence",
        "pair": "apart",
        "encoder": {"kind": "gru", "width": 8, "dropout": 0.2},
        "pooling": "max",
        "hidden": 6,
    },
    "apart-transformer": {
        "kind": "sequence",
        "pair": "apart",
        "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.1},
        "pooling": "attention",
    },
}


def write_labelled_corpus(
    folder: Path, *, train: int = 120, valid: int = 20, test: int = 12, paired: bool = False
) -> Path:
    """Reviews in train.tsv, valid.tsv and test.tsv: a label and a text, or its two sentences."""
    folder.mkdir(parents=True, exist_ok=True)
    data = ReviewsData(train=train, valid=valid, test=test, sentences=2)
    for split in ("train", "valid", "test"):
        rows = []
        for each in reviews.examples(data, split):
            text = each.text.replace(". ", ".\t", 1) if paired else each.text
            rows.append(f"{each.label}\t{text}\n")
        (folder / f"{split}.tsv").write_text("".join(rows), encoding="utf-8")
    return folder


def recipe(corpus: Path, model: str | dict[str, Any] = "lstm", *settings: str, paired: bool = False) -> Recipe:
    """A recipe on the corpus that ends after 10 updates, with `dotted.name=value` settings applied."""
    split = {"label": 1, "text": 2} | ({"second": 3} if paired else {})
    chosen = model if isinstance(model, dict) else (PAIRED if paired else MODELS)[model]
    tree: dict[str, Any] = {
        "task": "classify",
        "data": {
            "kind": "files",
            **{each: {"tsv": str(corpus / f"{each}.tsv"), **split} for each in ("train", "valid", "test")},
        },
        "text": {"kind": "word", "size": 60},
        "model": chosen,
        "train": {
            "updates": 10,
            "batch_tokens": 256,
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
