"""Tagged sentences as ids on disk, and batches of them.

Columns: `source`, a word's id each, and `inside`, what words are made of, where that is read; `target`, tags' ids,
PAD where training has not seen it. `text` and `gold`, words and tags as UTF-8, where sentences are validated on.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.columns import Column, Columns, Ragged
from saccade.data.conll import TagCounts, Tagged
from saccade.types import PAD, Batch, Layout, Tokens

AT_ONCE = 1000
"""Sentences that are written together."""


def chunks(rows: Iterator[Tagged]) -> Iterator[list[Tagged]]:
    while some := list(islice(rows, AT_ONCE)):
        yield some


def stretches(rows: Iterator[Tagged], most: int, continued: list[int]) -> Iterator[Tagged]:
    """Sentences of at most so many words each, out of longer ones; `continued`: which go on with the one before."""
    number = 0
    for row in rows:
        for begin in range(0, len(row.words), most):
            if begin:
                continued.append(number)
            end, number = begin + most, number + 1
            yield row._replace(words=row.words[begin:end], tags=row.tags[begin:end])


def append_lines(column: Column, lines: Sequence[str]) -> None:
    rows = [line.encode("utf-8", "replace") for line in lines]
    column.append(np.frombuffer(b"".join(rows), dtype=np.uint8), np.array([len(row) for row in rows], dtype=np.int64))


def numbered(rows: Sequence[Tagged], ids: Mapping[str, int], counts: TagCounts) -> NDArray[np.int64]:
    """A tag that the training data do not have is PAD: no loss counts it."""
    numbers = []
    for row in rows:
        for tag in row.tags:
            if tag not in ids:
                counts.note("unknown_tags", row.place)
            numbers.append(ids.get(tag, PAD))
    return np.array(numbers, dtype=np.int64)


def collate_tagged(store: Columns, rows: NDArray[np.integer[Any]]) -> Batch:
    """The rows as one packed batch."""
    source, target = store["source"], store["target"]
    words, lengths = source.take(rows)
    layout = Layout.padded(torch.from_numpy(lengths)).packed()
    inside = None
    if "inside" in store:
        made_of, sizes = store["inside"].take(_tokens_of(source, rows, lengths))
        inside = Tokens(_long(made_of), Layout.padded(torch.from_numpy(sizes)).packed())
    tags, _ = target.take(rows)
    return Batch(Tokens(_long(words), layout, inside=inside), Tokens(_long(tags), layout), tuple(rows.tolist()))


def _tokens_of(side: Ragged, rows: NDArray[np.integer[Any]], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Which tokens of a column the rows are, one behind the other."""
    starts = side.offsets[rows]
    before = np.cumsum(lengths) - lengths
    at: NDArray[np.int64] = np.arange(lengths.sum()) + np.repeat(starts - before, lengths)
    return at


def _long(values: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64))
