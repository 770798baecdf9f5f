"""Where pairs come from: the `data` section of a recipe, and its three splits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.data.dates import DatesData, examples
from saccade.data.files import Counts, FilesData, OnLong, Pair, pairs
from saccade.errors import UsageError

DataConfig = Annotated[DatesData | FilesData, Field(discriminator="kind")]
Split = Literal["train", "valid", "test"]
GENERATED_MAX_LENGTH = 512


def has_split(data: DataConfig, split: Split) -> bool:
    return not isinstance(data, FilesData) or getattr(data, split) is not None


def split_pairs(data: DataConfig, split: Split, *, base: Path, counts: Counts) -> Iterator[Pair]:
    """The split's pairs, read or generated as they are asked for. Relative paths are seen from `base`."""
    match data:
        case DatesData():
            return _generated(data, split, counts)
        case FilesData():
            files = getattr(data, split)
            if files is None:
                raise UsageError(f"data.{split} is not given. Name the files, or leave the {split} split out.")
            return pairs(files, base=base, on_bad=data.on_bad, trim=data.trim, counts=counts)


def _generated(data: DatesData, split: Split, counts: Counts) -> Iterator[Pair]:
    for number, made in enumerate(examples(data.seed, split, getattr(data, split))):
        counts.lines += 1
        counts.kept += 1
        yield Pair(made.source, made.target, f"{split} {number}")


def length_rule(data: DataConfig, split: Split) -> tuple[int, OnLong]:
    """The most tokens a side may have, and what is done to longer ones; only training pairs may be left out."""
    if not isinstance(data, FilesData):
        return GENERATED_MAX_LENGTH, "refuse"
    return data.max_length, data.on_long if split == "train" else "cut"
