"""Where pairs come from: the `data` section of a recipe, and its three splits."""

from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.data.babi import BabiData, questions
from saccade.data.cmudict import CmudictData, pronunciations
from saccade.data.dates import DatesData, examples
from saccade.data.files import Counts, Pair, pairs
from saccade.data.parallel import FilesData, OnLong, Parallel
from saccade.data.trees import TreesData, parsed_sentences
from saccade.errors import UsageError

DataConfig = Annotated[DatesData | FilesData | CmudictData | BabiData | TreesData, Field(discriminator="kind")]
Split = Literal["train", "valid", "test"]
GENERATED_MAX_LENGTH = 512


def has_split(data: DataConfig, split: Split) -> bool:
    match data:
        case FilesData():
            return _files_of(data, split) is not None
        case TreesData():
            return getattr(data, split) is not None
        case DatesData() | CmudictData() | BabiData():
            return True


def split_pairs(
    data: DataConfig,
    split: Split,
    *,
    base: Path,
    counts: Counts,
    keep_empty: bool = False,
    problems: list[str] | None = None,
) -> Iterator[Pair]:
    """The split's pairs, read or generated as they are asked for. Relative paths are seen from `base`.

    `keep_empty` hands on pairs with an empty side, too. With `problems`, what would be refused is told there.
    """
    if not has_split(data, split):
        raise UsageError(f"data.{split} is not given. Name the files, or leave the {split} split out.")
    match data:
        case DatesData():
            return _generated(data, split, counts)
        case CmudictData():
            return pronunciations(data, split, counts=counts)
        case BabiData():
            return questions(data, split, base=base, counts=counts)
        case TreesData():
            return parsed_sentences(data, getattr(data, split), base=base, counts=counts, problems=problems)
        case FilesData():
            files = _files_of(data, split)
            assert files is not None
            return pairs(
                files,
                base=base,
                on_bad=data.on_bad,
                trim=data.trim,
                counts=counts,
                keep_empty=keep_empty,
                problems=problems,
                belongs=_belongs(data, split),
            )


def files_of(data: DataConfig, split: Split) -> tuple[str, ...]:
    """The files and folders that the section names for a split, if it names any."""
    match data:
        case FilesData():
            files = _files_of(data, split)
            return () if files is None else files.files
        case TreesData():
            return tuple(getattr(data, split).files)
        case BabiData():
            return (data.folder,)
        case DatesData() | CmudictData():
            return ()


def _files_of(data: FilesData, split: Split) -> Parallel | None:
    if split == "valid" and data.valid is None:
        return data.train
    files: Parallel | None = getattr(data, split)
    return files


def _belongs(data: FilesData, split: Split) -> Callable[[Pair], bool]:
    share = data.hold_out
    if share is None or split == "test":
        return lambda _: True
    return lambda pair: held_out(pair.source, share) == (split == "valid")


def held_out(source: str, share: float) -> bool:
    """Whether a text is among the share that is held out: a pure function of the text, even over all texts."""
    return int.from_bytes(blake2b(source.encode(), digest_size=8).digest(), "big") < share * 2**64


def groups(data: DataConfig) -> bool:
    """Whether, when scored, pairs with the same source are one example with several right outputs."""
    match data:
        case FilesData():
            return data.group
        case CmudictData():
            return True
        case DatesData() | BabiData() | TreesData():
            return False


def grouped(sources: Sequence[str], targets: Sequence[str]) -> tuple[list[str], list[tuple[str, ...]]]:
    """Each source once, where it first stood, and all its targets, each once."""
    right: dict[str, dict[str, None]] = {}
    for source, target in zip(sources, targets, strict=True):
        right.setdefault(source, {})[target] = None
    return list(right), [tuple(targets) for targets in right.values()]


def _generated(data: DatesData, split: Split, counts: Counts) -> Iterator[Pair]:
    for number, made in enumerate(examples(data.seed, split, getattr(data, split))):
        counts.lines += 1
        counts.kept += 1
        yield Pair(made.source, made.target, f"{split} {number}")


def length_rule(data: DataConfig, split: Split) -> tuple[int, OnLong]:
    """The most tokens a side may have, and what is done to longer ones; only training pairs may be left out."""
    match data:
        case DatesData() | CmudictData():
            return GENERATED_MAX_LENGTH, "refuse"
        case FilesData() | BabiData() | TreesData():
            return data.max_length, data.on_long if split == "train" else "cut"
