"""One long text as token ids on disk, memory-mapped; and how much of what there was in it."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from saccade.data.columns import Columns, Ids, Writer, ids_dtype, writing
from saccade.data.files import Counts
from saccade.data.plain_text import Stretch, measured
from saccade.errors import UsageError
from saccade.text import Tokenizer
from saccade.types import END

CHUNK, CHUNK_CHARACTERS = 10_000, 4_000_000
"""Stretches, or characters of them, that are held in memory at a time."""


@dataclass(frozen=True)
class TextStore:
    columns: Columns

    @staticmethod
    def open(folder: Path) -> "TextStore":
        columns = Columns.open(folder)
        if "ids" not in columns:
            raise UsageError(f"{folder}: is no store of a text. Prepare it again.")
        return TextStore(columns)

    @property
    def folder(self) -> Path:
        return self.columns.folder

    @property
    def fingerprint(self) -> str:
        return self.columns.fingerprint

    def verify(self) -> None:
        self.columns.verify()

    @property
    def text(self) -> Ids:
        """All tokens, one behind the other."""
        return self.columns["ids"].values

    def __len__(self) -> int:
        """How many lines, or what else was read as one."""
        return len(self.columns["ids"].offsets) - 1

    def stretch(self, i: int) -> Ids:
        return self.columns["ids"][i]

    @property
    def counts(self) -> Counts:
        return self.columns.counts

    @property
    def measured(self) -> dict[str, int]:
        """How many tokens, words, characters, bytes and ends there are; of music frames, too."""
        return {name: int(count) for name, count in self.columns.facts["text"].items()}


def write_text(
    folder: Path,
    parts: Iterable[Stretch],
    tokenizer: Tokenizer,
    *,
    counts: Counts,
    unit: str = "lines",
    frames: Callable[[str], int] | None = None,
) -> TextStore:
    """Encode the text and write it, holding one chunk in memory at a time; `unit` is what there are rows of."""
    total, rows = Counter[str](), 0
    with writing(folder, {"ids": ids_dtype(tokenizer.size)}) as writer:
        for some in _chunks(parts):
            total["tokens"] += _append(writer, some, tokenizer)
            total.update(measured(some))
            rows += len(some)
            if frames is not None:
                total["frames"] += sum(frames(part.text) for part in some)
        if not total["tokens"]:
            raise UsageError(f"the {folder.name} text is empty. Check the files that data.{folder.name} names.")
        writer.facts = {
            "rows": rows,
            "unit": unit,
            "tokens": {"text": total["tokens"]},
            "text": dict(total),
            "vocabulary": tokenizer.size,
            "counts": counts.to_dict(),
        }
    return TextStore.open(folder)


def _append(writer: Writer, some: list[Stretch], tokenizer: Tokenizer) -> int:
    values, lengths_N = tokenizer.encode_flat([part.text for part in some])
    ended_N = np.array([part.ended for part in some])
    ids: Ids = np.insert(values.astype(writer["ids"].dtype), np.cumsum(lengths_N)[ended_N], END)
    writer["ids"].append(ids, lengths_N + ended_N)
    return len(ids)


def _chunks(parts: Iterable[Stretch]) -> Iterator[list[Stretch]]:
    held: list[Stretch] = []
    characters = 0
    for part in parts:
        held.append(part)
        characters += len(part.text)
        if len(held) >= CHUNK or characters >= CHUNK_CHARACTERS:
            yield held
            held, characters = [], 0
    if held:
        yield held
