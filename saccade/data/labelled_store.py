"""Labelled texts as token ids on disk, and batches of them.

Columns: `source`, the ids of a text; or, where texts lie inside, one UNKNOWN for each, and `inside` their ids.
`target`, the label's id, 0 where training has not seen it. `label` and `text`, both as UTF-8, where they were kept.
Shapes: n rows of the data set.
"""

from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from saccade.data.batching import RELEASE_EVERY, Cursor, Job, Plan, Rows, jobs, prefetch
from saccade.data.columns import Columns, Writer, ids_dtype, writing
from saccade.data.counts import Counts
from saccade.data.files import OnLong
from saccade.data.labelled import Example
from saccade.data.labels import Labels
from saccade.data.readings import Reading, Row
from saccade.errors import UsageError
from saccade.text import Tokenizer
from saccade.types import UNKNOWN, Batch, Layout, Tokens

CHUNK, CHUNK_CHARACTERS = 2000, 4_000_000
TEXT_JOINT = "\t"
MOST_UNSEEN = 20
"""Labels that training has not seen which are named."""


def write_labelled(
    folder: Path,
    examples: Iterable[Example],
    *,
    reading: Reading,
    tokenizer: Tokenizer,
    labels: Labels,
    on_long: OnLong,
    counts: Counts,
    keep_text: bool,
) -> None:
    """`counts` goes on counting as the examples are read."""
    columns = {"source": ids_dtype(tokenizer.size), "target": ids_dtype(len(labels) + 1)}
    if reading.nests:
        columns["inside"] = ids_dtype(tokenizer.size)
    if keep_text:
        columns |= {"label": "uint8", "text": "uint8"}
    unseen: Counter[str] = Counter()
    rows = 0
    with writing(folder, columns) as writer:
        for some in _chunks(examples):
            read, cut = reading.rows([each.texts for each in some], tokenizer.encode_batch)
            kept = _short_enough(some, cut, on_long, counts, reading)
            _append(writer, [some[i] for i in kept], [read[i] for i in kept], labels, nests=reading.nests)
            unseen.update(some[i].label for i in kept if not labels.id(some[i].label))
            rows += len(kept)
        if not rows:
            told = " ".join(counts.sentences("text"))
            raise UsageError(f"no usable text is left: {told} Check the files that data.{folder.name} names.")
        inside = writer.columns.get("inside")
        writer.facts = {
            "rows": rows,
            "unit": "texts",
            "tokens": {"source": writer["source"].end if inside is None else inside.end, "target": rows},
            "vocabulary": {"text": tokenizer.size, "labels": len(labels)},
            "counts": counts.to_dict(),
            "unseen": {"texts": unseen.total(), "labels": dict(unseen.most_common(MOST_UNSEEN))},
        }


def _chunks(examples: Iterable[Example]) -> Iterator[list[Example]]:
    held: list[Example] = []
    characters = 0
    for each in examples:
        held.append(each)
        characters += sum(map(len, each.texts))
        if len(held) >= CHUNK or characters >= CHUNK_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held


def _short_enough(
    examples: list[Example], cut: list[bool], on_long: OnLong, counts: Counts, reading: Reading
) -> list[int]:
    kept = []
    for i, (example, long) in enumerate(zip(examples, cut, strict=True)):
        if long and on_long == "refuse":
            more = f", or more than {reading.max_sentences} sentences" if reading.layout == "document" else ""
            raise UsageError(
                f"{example.place}: the text has more than {reading.max_length} tokens{more}. Raise data.max_length, or "
                "set data.on_long to cut or drop."
            )
        if long and on_long == "drop":
            counts.note("too_long_dropped", example.place)
            counts.kept -= 1
            continue
        if long:
            counts.note("too_long_cut", example.place)
        kept.append(i)
    return kept


def _append(writer: Writer, examples: list[Example], rows: list[Row], labels: Labels, *, nests: bool) -> None:
    if nests:
        counts = np.array([len(row) for row in rows], dtype=np.int64)
        writer["source"].append(np.full(int(counts.sum()), UNKNOWN), counts)
    writer["inside" if nests else "source"].append(*_flat([sequence for row in rows for sequence in row]))
    ids = np.array([labels.id(each.label) for each in examples], dtype=np.int64)
    writer["target"].append(ids, np.ones(len(ids), dtype=np.int64))
    if "text" in writer.columns:
        writer["label"].append(*_utf8([each.label for each in examples]))
        writer["text"].append(*_utf8([TEXT_JOINT.join(each.texts) for each in examples]))


def _flat(sequences: list[list[int]]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    lengths = np.array([len(each) for each in sequences], dtype=np.int64)
    return np.fromiter((each for ids in sequences for each in ids), np.int64, int(lengths.sum())), lengths


def _utf8(texts: list[str]) -> tuple[NDArray[Any], NDArray[np.int64]]:
    rows = [text.encode("utf-8", "replace") for text in texts]
    return np.frombuffer(b"".join(rows), dtype=np.uint8), np.array([len(row) for row in rows], dtype=np.int64)


@dataclass(frozen=True)
class LabelledStore:
    """A split that was written."""

    columns: Columns

    @staticmethod
    def open(folder: Path) -> "LabelledStore":
        return LabelledStore(Columns.open(folder))

    @property
    def folder(self) -> Path:
        return self.columns.folder

    @property
    def fingerprint(self) -> str:
        return self.columns.fingerprint

    def verify(self) -> None:
        self.columns.verify()

    def __len__(self) -> int:
        return len(self.columns["target"].offsets) - 1

    @property
    def nests(self) -> bool:
        return "inside" in self.columns

    def label(self, i: int) -> str:
        """As it stood in the data."""
        return str(self.columns["label"][i].tobytes().decode("utf-8"))

    def text(self, i: int) -> str:
        """As it stood in the data; two texts have a tab between them."""
        return str(self.columns["text"][i].tobytes().decode("utf-8"))

    @property
    def remarks(self) -> list[str]:
        """What was done to the data, in words."""
        told = self.columns.counts.sentences("text")
        unseen = self.columns.facts["unseen"]
        if unseen["texts"]:
            names = ", ".join(f"{label!r} ({count:,})" for label, count in unseen["labels"].items())
            told.append(f"Texts whose label the training data do not have, which counts as wrong: {names}.")
        return told

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """(n, 2): the places that a row takes; of one made of several sequences, as many as if all were as long."""
        source = np.diff(self.columns["source"].offsets)
        places = np.ones((len(self), 2), dtype=np.int32)
        if not self.nests:
            places[:, 0] = np.maximum(source, 1)
            return places
        longest = np.zeros(len(self), dtype=np.int64)
        inside, row = np.diff(self.columns["inside"].offsets), np.repeat(np.arange(len(self)), source)
        np.maximum.at(longest, row, inside)
        places[:, 0], places[:, 1] = np.maximum(source * longest, 1), np.maximum(longest, 1)
        return places

    def collate(self, rows: Rows) -> Batch:
        """Some rows as one packed batch: nothing in it is padding."""
        source = _packed(*self.columns["source"].take(rows))
        if self.nests:
            offsets = self.columns["source"].offsets
            begins, ends = offsets[rows], offsets[np.asarray(rows) + 1]
            texts = np.concatenate([np.arange(*pair) for pair in zip(begins, ends, strict=True)])
            inside = _packed(*self.columns["inside"].take(texts.astype(np.int64)))
            source = Tokens(source.ids, source.layout, None, inside)
        return Batch(source, _packed(*self.columns["target"].take(rows)), tuple(rows.tolist()))

    def batches(self, plan: Plan, cursor: Cursor, *, workers: int) -> Generator[tuple[Cursor, Batch], None, None]:
        """Without end from the cursor on, each with the position behind it."""

        def make(job: Job) -> tuple[Cursor, Batch]:
            made = self.collate(job.rows)
            if job.following.batch % RELEASE_EVERY == 0:
                self.columns.release()
            return job.following, made

        return prefetch(jobs(plan, cursor), make, workers=workers)


def _packed(values: NDArray[Any], lengths: NDArray[np.int64]) -> Tokens:
    longest = int(lengths.max(initial=0))
    layout = Layout.padded(torch.from_numpy(lengths), longest).packed()
    return Tokens(torch.from_numpy(values.astype(np.int64)), layout)
