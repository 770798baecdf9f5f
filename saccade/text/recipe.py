"""The `text` section of a recipe: which tokens the text is cut into."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator

from saccade.config import Names, Section

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


class _Side(Section):
    """What every kind of text has, on either side of the data."""

    kind: str
    """How text is cut into tokens: char, byte, word, bpe or unigram."""
    normalize: Normalization = "nfc"
    """The Unicode normal form of the text; nfkc also folds look-alikes such as ﬁ and full-width letters."""
    lowercase: bool = False
    """Whether capital letters become small ones, for good."""


class CharSide(_Side):
    """One token a character; rare characters are spelt in bytes."""

    kind: Literal["char"] = "char"
    """One token a character."""
    size: SizeWithBytes = 1000
    """Ids in the vocabulary: 4 specials, 256 bytes and the most frequent characters."""
    sample: Lines = 500_000
    """How many lines of the training text the characters are counted in."""


class ByteSide(_Side):
    """One token a byte of UTF-8: nothing is learnt, nothing is unknown."""

    kind: Literal["byte"] = "byte"
    """One token a byte of UTF-8."""


class WordSide(_Side):
    """One token a word; a word outside the vocabulary becomes `<unk>`."""

    kind: Literal["word"] = "word"
    """One token a word."""
    cut: Literal["signs", "spaces"] = "signs"
    """signs: letters, digits and other signs apart, each with the space before it, so that no space is lost; spaces:
    a word is what white space separates, wherever it stands: for phonemes, labels, text that is tokenised already."""
    size: Annotated[int, Field(ge=_SPECIALS + 1)] = 30_000
    """Ids in the vocabulary: 4 specials and the most frequent words."""
    least: Annotated[int, Field(ge=1)] = 1
    """How often a word must stand in the text it is learnt from to have an id. With 1 and room for all, training meets
    no `<unk>`: what is new later is then a vector that nobody learnt."""
    sample: Lines = 500_000
    """How many lines of the training text the words are counted in."""


class BpeSide(_Side):
    """Pieces of words by byte-pair encoding (Sennrich et al. 2016); rare characters are spelt in bytes."""

    kind: Literal["bpe"] = "bpe"
    """Pieces of words, by merging the most frequent pair again and again."""
    size: SizeWithBytes = 8000
    """Ids in the vocabulary: 4 specials, 256 bytes, the characters and the merged pieces."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Probability that a merge is left out in training (BPE-dropout, Provilkov et al. 2020)."""
    sample: Lines = 500_000
    """How many lines of the training text the merges are learnt from."""


class UnigramSide(_Side):
    """Pieces of words by the unigram language model (Kudo 2018); rare characters are spelt in bytes."""

    kind: Literal["unigram"] = "unigram"
    """Pieces of words, the most probable cut under a unigram language model."""
    size: SizeWithBytes = 8000
    """Ids in the vocabulary: 4 specials, 256 bytes, the characters and the learnt pieces."""
    sample: Lines = 500_000
    """How many lines of the training text the pieces are learnt from."""


SideText = Annotated[CharSide | ByteSide | WordSide | BpeSide | UnigramSide, Field(discriminator="kind")]


class _BothSides(Section):
    shared: bool = True
    """One tokenizer for both sides of the data, or one for each."""
    target: SideText | None = None
    """How targets are cut, where that is otherwise than sources; nothing is shared then."""

    @model_validator(mode="before")
    @classmethod
    def _two_ways_share_nothing(cls, tree: Any) -> Any:
        if not isinstance(tree, dict) or tree.get("target") is None:
            return tree
        if tree.get("shared"):
            raise ValueError("target says how targets are cut, but shared is true: leave out one of the two")
        return tree | {"shared": False}


class CharText(_BothSides, CharSide):
    """One token a character; rare characters are spelt in bytes."""


class ByteText(_BothSides, ByteSide):
    """One token a byte of UTF-8: nothing is learnt, nothing is unknown."""


class WordText(_BothSides, WordSide):
    """One token a word; a word outside the vocabulary becomes `<unk>`."""


class BpeText(_BothSides, BpeSide):
    """Pieces of words by byte-pair encoding (Sennrich et al. 2016); rare characters are spelt in bytes."""


class UnigramText(_BothSides, UnigramSide):
    """Pieces of words by the unigram language model (Kudo 2018); rare characters are spelt in bytes."""


TextConfig = Annotated[CharText | ByteText | WordText | BpeText | UnigramText, Field(discriminator="kind")]


class RunText(Section):
    """The tokenizer of another run, as it is: for a language model that is to decide with a translator."""

    kind: Literal["run"] = "run"
    """As another run cuts its text: nothing is learnt."""
    run: Annotated[str, Names.RUN]
    """That run's folder; its tokenizer is copied."""
    side: Literal["target", "source"] = "target"
    """Which side's, where the two sides of its data are cut otherwise."""


StreamText = Annotated[CharText | ByteText | WordText | BpeText | UnigramText | RunText, Field(discriminator="kind")]
"""How a text that has one side is cut."""


def sides(text: TextConfig) -> tuple[SideText, SideText]:
    """How sources are cut, and how targets."""
    return text, text if text.target is None else text.target
