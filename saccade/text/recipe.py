"""The `text` section of a recipe: which tokens the text is cut into."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from saccade.config import Section

Normalization = Literal["none", "nfc", "nfkc"]

_SPECIALS, _BYTES = 4, 256


def _room_for_bytes(size: int) -> int:
    if size <= _SPECIALS + _BYTES:
        raise ValueError(
            f"{size} is too small: {_SPECIALS} special tokens and {_BYTES} byte tokens come first, "
            f"so the size must be at least {_SPECIALS + _BYTES + 1}."
        )
    return size


SizeWithBytes = Annotated[int, AfterValidator(_room_for_bytes)]
Lines = Annotated[int, Field(ge=1)]


class _AnyText(Section):
    """What every kind of text section has."""

    kind: str
    """How text is cut into tokens: char, byte, word, bpe or unigram."""
    shared: bool = True
    """One tokenizer for both sides of the data, or one for each."""
    normalize: Normalization = "nfc"
    """The Unicode normal form of the text; nfkc also folds look-alikes such as ﬁ and full-width letters."""
    lowercase: bool = False
    """Whether capital letters become small ones, for good."""


class CharText(_AnyText):
    """One token a character; rare characters are spelt in bytes."""

    kind: Literal["char"] = "char"
    """One token a character."""
    size: SizeWithBytes = 1000
    """Ids in the vocabulary: 4 specials, 256 bytes and the most frequent characters."""
    sample: Lines = 500_000
    """How many lines of the training text the characters are counted in."""


class ByteText(_AnyText):
    """One token a byte of UTF-8: nothing is learnt, nothing is unknown."""

    kind: Literal["byte"] = "byte"
    """One token a byte of UTF-8."""


class WordText(_AnyText):
    """One token a word; a word outside the vocabulary becomes `<unk>`."""

    kind: Literal["word"] = "word"
    """One token a word."""
    cut: Literal["signs", "spaces"] = "signs"
    """signs: letters, digits and other signs apart, each with the space before it, so that no space is lost; spaces:
    a word is what white space separates, for text that is tokenised already, as the Penn Treebank's."""
    size: Annotated[int, Field(ge=_SPECIALS + 1)] = 30_000
    """Ids in the vocabulary: 4 specials and the most frequent words."""
    sample: Lines = 500_000
    """How many lines of the training text the words are counted in."""


class BpeText(_AnyText):
    """Pieces of words by byte-pair encoding (Sennrich et al. 2016); rare characters are spelt in bytes."""

    kind: Literal["bpe"] = "bpe"
    """Pieces of words, by merging the most frequent pair again and again."""
    size: SizeWithBytes = 8000
    """Ids in the vocabulary: 4 specials, 256 bytes, the characters and the merged pieces."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a merge is left out in training, on both sides (BPE-dropout, Provilkov et al. 2020)."""
    sample: Lines = 500_000
    """How many lines of the training text the merges are learnt from."""


class UnigramText(_AnyText):
    """Pieces of words by the unigram language model (Kudo 2018); rare characters are spelt in bytes."""

    kind: Literal["unigram"] = "unigram"
    """Pieces of words, the most probable cut under a unigram language model."""
    size: SizeWithBytes = 8000
    """Ids in the vocabulary: 4 specials, 256 bytes, the characters and the learnt pieces."""
    sample: Lines = 500_000
    """How many lines of the training text the pieces are learnt from."""


TextConfig = Annotated[CharText | ByteText | WordText | BpeText | UnigramText, Field(discriminator="kind")]
