"""Where a language model's text comes from: the `data` section of its recipe, and its splits."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.data.chorales import ChoralesData, pieces
from saccade.data.files import Counts
from saccade.data.grammar import GrammarData, sentences
from saccade.data.plain_text import Ends, Part, Stretch, TextData, read_text
from saccade.errors import UsageError

LanguageData = Annotated[TextData | GrammarData | ChoralesData, Field(discriminator="kind")]
Split = Literal["train", "valid", "test"]


def ends_of(data: LanguageData) -> Ends:
    return data.ends if isinstance(data, TextData) else "line"


def has_split(data: LanguageData, split: Split) -> bool:
    return not isinstance(data, TextData) or data.of_split(split)[0] is not None


def split_text(data: LanguageData, split: Split, *, base: Path, counts: Counts) -> Iterator[Stretch]:
    """The split's text, read or generated as it is asked for. Relative paths are seen from `base`."""
    match data:
        case GrammarData():
            return _generated(data, split, counts)
        case ChoralesData():
            return map(Stretch, pieces(data, split, base=base, counts=counts))
        case TextData():
            names, part = data.of_split(split)
            if names is None:
                raise UsageError(f"data.{split} is not given. Name the files, or leave the {split} split out.")
            text = read_text(names, base=base, ends=data.ends, on_bad=data.on_bad, counts=counts, part=part)
            return text if part is None else _of_part(text, split, part, counts)


def _of_part(text: Iterator[Stretch], split: Split, part: Part, counts: Counts) -> Iterator[Stretch]:
    """The text; where it has lines, but none begins in the part, an error."""
    yield from text
    if counts.other_split and not counts.kept:
        raise UsageError(
            f"data.parts.{split} is {list(part)}: no line begins there, and a line belongs to the part it begins in. "
            "Choose other bounds, or a text of more lines."
        )


def _generated(data: GrammarData, split: Split, counts: Counts) -> Iterator[Stretch]:
    for made in sentences(data.seed, split, getattr(data, split)):
        counts.lines += 1
        counts.kept += 1
        yield Stretch(made)
