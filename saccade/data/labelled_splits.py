"""Where labelled texts come from: the `data` section of a classifier's recipe, and its three splits."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from saccade.data import listops, reviews
from saccade.data.counts import Counts
from saccade.data.files import OnLong, locate
from saccade.data.labelled import Chosen, Example, Labelled, LabelledData, labelled
from saccade.data.listops import ListOpsData
from saccade.data.reviews import ReviewsData
from saccade.data.splits import Split
from saccade.errors import UsageError

ClassifyDataConfig = Annotated[ReviewsData | ListOpsData | LabelledData, Field(discriminator="kind")]
GENERATED_SENTENCES = 100
BYTES_A_WORD, BYTES_A_REVIEW = 4, 256
"""No token is less than a byte: what is generated is never too long, however it is cut."""
JSON_NAMES = (".jsonl", ".jsonl.gz", ".jsonl.xz", ".ndjson", ".ndjson.gz", ".ndjson.xz")
TSV_NAMES = (".tsv", ".tsv.gz", ".tsv.xz")


def texts_of(data: ClassifyDataConfig) -> int:
    """How many texts a label is given to: one, or two."""
    return data.texts if isinstance(data, LabelledData) else 1


def has_split(data: ClassifyDataConfig, split: Split) -> bool:
    return split == "valid" or not isinstance(data, LabelledData) or getattr(data, split) is not None


def split_examples(
    data: ClassifyDataConfig,
    split: Split,
    *,
    base: Path,
    counts: Counts,
    keep_empty: bool = False,
    problems: list[str] | None = None,
) -> Iterator[Example]:
    """The split's examples, read or generated as they are asked for. Relative paths are seen from `base`."""
    match data:
        case ReviewsData():
            return _generated(reviews.examples(data, split), split, counts)
        case ListOpsData():
            return _generated(listops.examples(data, split, base), split, counts)
        case LabelledData():
            files, chosen = _files(data, split)
            return labelled(
                files,
                base=base,
                on_bad=data.on_bad,
                counts=counts,
                keep_empty=keep_empty,
                problems=problems,
                chosen=chosen,
            )


def _files(data: LabelledData, split: Split) -> tuple[Labelled, Chosen | None]:
    """The files, and which of their rows: where no validation data are named, they are a share of the training's."""
    held_out = None if data.valid is not None else Chosen(data.hold_out, held_out=split == "valid")
    match split:
        case "train":
            return data.train, held_out
        case "valid":
            return data.valid or data.train, held_out
        case "test":
            if data.test is None:
                raise UsageError("data.test is not given. Name the files, or score the validation data.")
            return data.test, None


def _generated(made: Iterator[reviews.Review | listops.ListOp], split: Split, counts: Counts) -> Iterator[Example]:
    for number, each in enumerate(made):
        counts.lines += 1
        counts.kept += 1
        yield Example(each.label, (each.text,), f"{split} {number}")


def files_like(data: ClassifyDataConfig, files: Sequence[Path]) -> Labelled:
    """Further files, read as the data's own are: by the same columns or fields, where they are of the same layout.

    Where the data have trees, so have files that are neither JSON lines nor columns by their names. What is scored is
    sentences, though phrases are learnt: phrases are scored only where the data's own test or validation are.
    """
    names = tuple(str(file.resolve()) for file in files)
    splits = (data.test, data.valid, data.train) if isinstance(data, LabelledData) else ()
    own = [split for split in splits if split is not None]
    trees = any(split.trees is not None for split in own)
    layouts = {_layout(file.name.lower(), trees=trees) for file in files}
    if len(layouts) != 1:
        raise UsageError(f"{', '.join(map(str, files))}: give files of one layout: JSON lines, columns, or trees.")
    (layout,) = layouts
    alike = next((split for split in own if getattr(split, layout) is not None), None)
    if alike is not None:
        phrases = alike.phrases and alike is not own[-1]  # the training data come last
        return alike.model_copy(update={layout: names, "phrases": phrases})
    if texts_of(data) == 1:
        return Labelled.model_validate({layout: names})
    raise UsageError(
        f"{', '.join(map(str, files))}: the recipe's own data are not {layout}, so where two texts stand in it is not "
        "known. Give files as the recipe's."
    )


def _layout(name: str, *, trees: bool) -> Literal["tsv", "jsonl", "trees"]:
    if name.endswith(JSON_NAMES):
        return "jsonl"
    return "trees" if trees and not name.endswith(TSV_NAMES) else "tsv"


def check_there(data: ClassifyDataConfig, split: Split, base: Path) -> None:
    """An error that says what to do where the recipe's own files are not where it names them."""
    if not isinstance(data, LabelledData):
        return
    for name in _files(data, split)[0].files:
        if not locate(name, base).path.exists():
            relative = not Path(name).is_absolute() and not name.startswith("$")
            raise UsageError(
                f"{name}: is not in {base}. The recipe names it relative to the folder it was trained from: go there, "
                "give that folder by --base, or name the files to score."
                if relative
                else f"{name}: is not there any more. Name the files to score."
            )


def length_rule(data: ClassifyDataConfig, split: Split) -> tuple[int, int, OnLong]:
    """The most tokens and sentences, and what is done to longer texts; only training texts may be left out."""
    match data:
        case LabelledData():
            return data.max_length, data.max_sentences, data.on_long if split == "train" else "cut"
        case ListOpsData():
            return BYTES_A_WORD * data.longest, GENERATED_SENTENCES, "refuse"
        case ReviewsData():
            return BYTES_A_REVIEW * data.sentences, max(GENERATED_SENTENCES, data.sentences), "refuse"
