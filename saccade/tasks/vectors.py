"""Pretrained word vectors in a run, for every task whose tokens are words: kept beside its tokens, put into its model.

A run begins with the file that `model.vectors.path` names, and goes on without it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from saccade import disk
from saccade.data.columns import STORE, Columns
from saccade.data.vectors import opened_vectors, write_vectors
from saccade.models.vectors import VectorsConfig

FOLDER = "vectors"
"""Beside train and valid."""


def check_vectors(vectors: VectorsConfig | None, text_kind: str, *, takes_more: bool = False) -> None:
    """A ValueError where they make no sense: for a recipe's validator."""
    if vectors is None:
        return
    if text_kind not in ("word", "words"):
        raise ValueError(
            f"model.vectors has vectors of words, but text.kind is {text_kind}, which cuts words into pieces: set "
            "text.kind to word, or leave the vectors out"
        )
    if vectors.more_words and not takes_more:
        raise ValueError(
            f"model.vectors.more_words is {vectors.more_words}: only tagging and classification give ids to words that "
            "the training text does not have, and not where the words are those of another run. Leave it out"
        )


def vectors_of(vectors: VectorsConfig | None) -> dict[str, Any]:
    """What tokens depend on of them, by the setting's name."""
    return {"model.vectors": None if vectors is None else {"path": vectors.path, "more_words": vectors.more_words}}


def write_run_vectors(vectors: VectorsConfig | None, names: Sequence[str], folder: Path, base: Path) -> None:
    """Those of the words that the model has ids for, by their names, specials first; with the run's other tokens."""
    if vectors is not None:
        store = folder / "data" / FOLDER
        write_vectors(store, vectors.path, names, base=base)
        manifest = {STORE: [disk.checksum(store / STORE)]}
        disk.write_file(store / disk.MANIFEST, disk.to_json(manifest))


def open_run_vectors(vectors: VectorsConfig | None, folder: Path) -> Columns | None:
    if vectors is None:
        return None
    store = Columns.open(folder / "data" / FOLDER)
    store.verify()
    return store


def begin_with(kept: Columns | None, table: nn.Embedding, scale: float) -> None:
    """Put them into a table of token vectors; `scale`: what its rows are multiplied with when they are read."""
    if kept is not None:
        opened_vectors(kept).fill(table, scale=scale)


def told(kept: Columns | None) -> tuple[str, ...]:
    return () if kept is None else (str(kept.facts["told"]),)
