"""Small runs that can decide together, or cannot: translators, language models, a channel."""

from pathlib import Path
from typing import Any

import torch

import saccade
from saccade.checkpoint import RunFolder, model_tensors
from saccade.recipe import parse_recipe
from saccade.types import END
from tests.support.language import DECODERS
from tests.support.tiny import MODELS, write_corpus

CHAR_TARGET = {"kind": "char", "target": {"kind": "char"}}
TREE = {
    "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "positions": "tree"},
    "decoder": MODELS["transformer"]["decoder"],
}
SHORT = {"kind": "windows", "length": 5}
"""Windows that outputs do not fit into."""


def make_corpus(folder: Path) -> Path:
    write_corpus(folder, train=60, valid=9)
    for split in ("train", "valid"):
        lines = (folder / f"{split}.src").read_text().splitlines()
        (folder / f"{split}.heads").write_text("0\n" * len(lines))
    return folder


PAIRS: dict[str, dict[str, Any]] = {
    "lstm": {"model": MODELS["lstm"], "text": CHAR_TARGET},
    "transformer": {
        "model": MODELS["transformer"],
        "text": {"kind": "bpe", "size": 275, "target": {"kind": "char"}},
    },
    "tree": {"model": TREE, "text": CHAR_TARGET, "heads": True},
    "bytes": {"model": MODELS["hard"], "text": {"kind": "byte"}},
    "back": {"model": MODELS["lstm"], "text": {"kind": "byte"}, "sides": ("tgt", "src")},
}
OF_RUN = {"kind": "run", "run": "lstm"}
TEXTS: dict[str, dict[str, Any]] = {
    "lm": {"decoder": "lstm", "text": OF_RUN},
    "lm-transformer": {"decoder": "transformer", "text": OF_RUN, "read": {"kind": "windows", "length": 24}},
    "lm-short": {"decoder": "transformer", "text": OF_RUN, "read": SHORT},
    "lm-bytes": {"decoder": "gru", "text": {"kind": "byte"}},
    "lm-files": {"decoder": "gru", "text": OF_RUN, "ends": "file"},
}


def make_run(folder: Path, name: str) -> Path:
    """Where it is not there yet. Translators `lstm` and `transformer` share the target's characters, and those alone;
    `tree` reads parses; `bytes` has another vocabulary; `back` goes the other way; `lm…` are language models.
    """
    if (folder / name).exists():
        return folder / name
    if name in PAIRS:
        train_pairs(folder, name, **PAIRS[name])
    else:
        if TEXTS[name]["text"] is OF_RUN:
            make_run(folder, "lstm")
        train_text(folder, name, **TEXTS[name])
    return folder / name


def train_pairs(
    folder: Path,
    name: str,
    model: dict[str, Any],
    text: dict[str, Any],
    *,
    sides: tuple[str, str] = ("src", "tgt"),
    heads: bool = False,
) -> None:
    files = {
        split: {"source": f"{split}.{sides[0]}", "target": f"{split}.{sides[1]}"}
        | ({"heads": f"{split}.heads"} if heads else {})
        for split in ("train", "valid")
    }
    tree = {
        "data": {"kind": "files", **files},
        "text": text,
        "model": model,
        "train": {"updates": 2, "batch_tokens": 128, "validate_every": 2},
        "decode": {"beam": 3, "max_length": 12},
        "metrics": ["chrf"],
    }
    _train(folder, name, tree)


def train_text(
    folder: Path, name: str, decoder: str, text: dict[str, Any], read: dict[str, Any] | None = None, ends: str = "line"
) -> None:
    tree = {
        "task": "language-model",
        "data": {"kind": "text", "train": "train.tgt", "valid": "valid.tgt", "ends": ends},
        "text": text,
        "read": read or {"kind": "streams", "streams": 2, "steps": 12},
        "model": {"decoder": DECODERS[decoder]},
        "train": {"updates": 2, "batch_tokens": 96, "validate_every": 2},
    }
    _train(folder, name, tree)


def _train(folder: Path, name: str, tree: dict[str, Any]) -> None:
    """Then shaken, so that outputs differ; ends and letters are likelier than bytes, so that lengths differ, too."""
    saccade.train(parse_recipe(tree, "test"), folder / name, base=folder, device="cpu")
    model = saccade.load(folder / name, "cpu").loaded.model
    torch.manual_seed(len(name))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.6 * torch.randn_like(parameter))
        bias = next(each for name, each in model.named_parameters() if name.endswith("output.bias"))
        bias[4:260] -= 0.0 if len(bias) == 260 else 3.0
        bias[END] += 1.5
    RunFolder(folder / name).publish(model_tensors(model))
