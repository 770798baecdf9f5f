"""Text → tokenizers and token stores in the run folder, once; a resumed run finds them there."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from saccade.data.files import Counts
from saccade.data.splits import DataConfig, Split, length_rule, split_pairs
from saccade.data.store import STORE, Store, write_store
from saccade.errors import SaccadeError
from saccade.text import BpeText, TextConfig, TextPair, train_tokenizers


@dataclass(frozen=True)
class Prepared:
    text: TextPair
    train: Store
    valid: Store
    remarks: tuple[str, ...]


def learn_text(data: DataConfig, text: TextConfig, *, base: Path, folder: Path, seed: int) -> TextPair:
    """The tokenizers, learnt from the training data and saved in `folder`."""

    def side(which: int) -> Iterator[str]:
        return (pair[:2][which] for pair in split_pairs(data, "train", base=base, counts=Counts()))

    pair = train_tokenizers(text, side(0), side(1), seed)
    try:
        pair.save(folder)
    except OSError as error:
        raise SaccadeError(f"{folder}: the tokenizer cannot be written: {error.strerror or error}.") from None
    return pair


def prepare(
    data: DataConfig, text: TextConfig, pair: TextPair, *, base: Path, folder: Path, parsed: bool = False
) -> Prepared:
    """The training and validation data as tokens, made afresh in `folder`; `parsed`: with the sources' parses."""
    shutil.rmtree(folder / "data", ignore_errors=True)  # a killed run may have left half a store
    drops = isinstance(text, BpeText) and text.dropout > 0
    stores = {
        split: _store(data, split, pair, base=base, folder=folder, keep_text=drops or split == "valid", parsed=parsed)
        for split in _SPLITS
    }
    return Prepared(pair, stores["train"], stores["valid"], _remarks(stores))


_SPLITS: tuple[Split, ...] = ("train", "valid")


def _store(
    data: DataConfig, split: Split, text: TextPair, *, base: Path, folder: Path, keep_text: bool, parsed: bool
) -> Store:
    counts = Counts()
    max_length, on_long = length_rule(data, split)
    return write_store(
        folder / "data" / split,
        split_pairs(data, split, base=base, counts=counts),
        text.source,
        text.target,
        max_length=max_length,
        on_long=on_long,
        counts=counts,
        keep_text=keep_text,
        words_of=text.source.word_places if parsed else None,
    )


def reopen(folder: Path) -> Prepared | None:
    """What `prepare` left in the folder, or None where it did not come to its end."""
    if not all((folder / "data" / split / STORE).exists() for split in _SPLITS):
        return None
    stores = {split: Store.open(folder / "data" / split) for split in _SPLITS}
    for store in stores.values():
        store.verify()
    return Prepared(TextPair.load(folder), stores["train"], stores["valid"], _remarks(stores))


def _remarks(stores: dict[Split, Store]) -> tuple[str, ...]:
    return tuple(f"{split}: {told}" for split, store in stores.items() for told in store.counts.sentences())
