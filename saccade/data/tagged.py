"""Where tagged sentences come from: the `data` section of a tagging recipe, and its three splits."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import Field

from saccade.data.conll import ConllData, ConlluData, TagCounts, Tagged, tagged_sentences
from saccade.data.notices import NoticesData, notice
from saccade.data.splits import Split
from saccade.errors import UsageError
from saccade.text.tags import Scheme, converted, guess_scheme, is_written_so

TagData = Annotated[NoticesData | ConllData | ConlluData, Field(discriminator="kind")]


def has_tagged(data: TagData, split: Split) -> bool:
    return getattr(data, split) is not None


def split_tagged(
    data: TagData, split: Split, *, base: Path, counts: TagCounts, problems: list[str] | None = None
) -> Iterator[Tagged]:
    """The split's sentences, read or generated as they are asked for. Relative paths are seen from `base`."""
    if isinstance(data, NoticesData):
        yield from _generated(data, split, counts)
        return
    names = getattr(data, split)
    if names is None:
        raise UsageError(f"data.{split} is not given. Name the files, or leave the {split} split out.")
    yield from tagged_sentences(data, names, base=base, counts=counts, problems=problems)


def _generated(data: NoticesData, split: Split, counts: TagCounts) -> Iterator[Tagged]:
    for number in range(getattr(data, split)):
        made = notice(data.seed, split, number)
        counts.lines += len(made.words)
        counts.words += len(made.words)
        counts.sentences += 1
        yield made


def written_scheme(data: TagData, *, base: Path) -> Scheme:
    """How the training data write spans, as the recipe says or as their tags look."""
    if isinstance(data, NoticesData):
        return "iob2"
    if data.scheme != "auto":
        return data.scheme
    train = split_tagged(data, "train", base=base, counts=TagCounts())
    return guess_scheme(sentence.tags for sentence in train)


def checking(data: TagData, scheme: Scheme) -> TagData:
    """The data, read so that a tag which writes no span is refused by file and line, where the model's tags do.

    Where the recipe leaves the scheme open, any way to write spans will do.
    """
    if isinstance(data, NoticesData) or data.scheme != "auto" or scheme == "none":
        return data
    return data.model_copy(update={"scheme": "bioes"})


def tagged_like(data: TagData, files: Sequence[Path], scheme: Scheme) -> TagData:
    """Further files as the test data, read as the data's own are; those of a run on generated notices as columns."""
    names = tuple(str(file.resolve()) for file in files)
    if not isinstance(data, NoticesData):
        return checking(data.model_copy(update={"test": names}), scheme)
    if any(".conllu" in file.suffixes for file in files):
        raise UsageError(
            f"{files[0]}: the run was trained on generated notices, so which column of CoNLL-U has the tags is not "
            "known. Give files with a word and its tag a line."
        )
    return checking(ConllData(train=names, valid=names, test=names), scheme)


def rewritten(sentence: Tagged, *, written: Scheme, learnt: Scheme, counts: TagCounts) -> Tagged:
    """The sentence with its spans in the scheme that is learnt."""
    if written == "none":
        return sentence
    if not is_written_so(sentence.tags, written):
        counts.note("mended", sentence.place)
    return sentence._replace(tags=tuple(converted(sentence.tags, learnt)))


def of_length(data: TagData, sentence: Tagged, counts: TagCounts) -> Tagged | None:
    """A training sentence as long as the recipe allows; None where it is left out."""
    if isinstance(data, NoticesData) or len(sentence.words) <= data.max_length:
        return sentence
    length, most = len(sentence.words), data.max_length
    match data.on_long:
        case "refuse":
            raise UsageError(
                f"{sentence.place}: the sentence has {length:,} words; data.max_length allows {most:,}. Raise it, or "
                "set data.on_long to cut or drop."
            )
        case "drop":
            counts.note("too_long_dropped", sentence.place)
            counts.sentences -= 1
            kept = 0
        case "cut":
            counts.note("too_long_cut", sentence.place)
            kept = most
    counts.words -= length - kept
    counts.too_long_words += length - kept
    return sentence._replace(words=sentence.words[:kept], tags=sentence.tags[:kept]) if kept else None
