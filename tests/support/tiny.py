"""A small parallel corpus and small recipes that train on it in seconds."""

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from saccade import config
from saccade.recipe import Recipe, parse_recipe
from saccade.train.events import Event

Rewrite = Callable[[str], str]
EventT = TypeVar("EventT", bound=Event)


def copied(text: str) -> str:
    return text


def reversed_text(text: str) -> str:
    return text[::-1]


MODELS: dict[str, Any] = {
    "lstm": {
        "encoder": {"kind": "lstm", "width": 8, "dropout": 0.2},
        "decoder": {
            "kind": "lstm",
            "width": 8,
            "dropout": 0.2,
            "attention": {"score": "additive"},
            "feed_input": True,
        },
    },
    "hard": {
        "encoder": {"kind": "gru", "width": 8, "dropout": 0.2},
        "decoder": {
            "kind": "gru",
            "width": 8,
            "dropout": 0.2,
            "attention": {"hard": {}},
            "sampling": {"kind": "exponential", "base": 0.8},
        },
    },
    "transformer": {
        "encoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.2},
        "decoder": {"kind": "transformer", "layers": 1, "width": 8, "heads": 2, "dropout": 0.2},
        "tie": "output",
    },
}


def write_corpus(
    folder: Path,
    *,
    train: int = 240,
    valid: int = 24,
    shortest: int = 1,
    longest: int = 6,
    letters: str = "abcdefgh",
    rewrite: Rewrite = reversed_text,
    seed: int = 0,
) -> Path:
    """Strings of random letters and what becomes of them, in train.src, train.tgt, valid.src and valid.tgt."""
    draw = random.Random(seed)
    folder.mkdir(parents=True, exist_ok=True)
    for split, count in (("train", train), ("valid", valid)):
        lines = ["".join(draw.choices(letters, k=draw.randint(shortest, longest))) for _ in range(count)]
        (folder / f"{split}.src").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.tgt").write_text("".join(f"{rewrite(line)}\n" for line in lines))
    return folder


def recipe(corpus: Path, model: str | dict[str, Any] = "lstm", *settings: str) -> Recipe:
    """A recipe on the corpus that ends after 10 updates, with `dotted.name=value` settings applied."""
    tree: dict[str, Any] = {
        "data": {
            "kind": "files",
            **{
                split: {"source": str(corpus / f"{split}.src"), "target": str(corpus / f"{split}.tgt")}
                for split in ("train", "valid")
            },
        },
        "text": {"kind": "char"},
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


def notes(run: Path, *kinds: str) -> list[dict[str, Any]]:
    """The lines of the log, of some kinds alone where any are named."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if not kinds or line["kind"] in kinds]


def of_kind(events: list[Event], kind: type[EventT]) -> list[EventT]:
    return [event for event in events if isinstance(event, kind)]
