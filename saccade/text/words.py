"""Sentences whose words are given → ids: of words with their characters, or of the pieces of words.

What a word is made of, its characters or pieces, stands in `Tokens.inside`. Every word is made of something, so that
whatever is read of it has a place.
"""

import json
import re
import unicodedata
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field

from saccade.config import Section
from saccade.errors import UsageError
from saccade.text.recipe import BpeText, ByteText, CharText, UnigramText, WordText
from saccade.text.tokenizer import Tokenizer, refuse_surrogates
from saccade.types import SPECIALS, UNKNOWN, Layout, Tokens

FORMAT = "saccade-words-1"
MOST_INSIDE = 64
"""Characters or pieces of a word that are read: of a longer one as many from its beginning and from its end."""
_CACHED = 1 << 18
_ID = "i"
_DIGIT = re.compile(r"\d")

Sentences = Sequence[Sequence[str]]
Lowercase = bool | Literal["unseen"]


class GivenWords(Section):
    """Words as the data cut them; a word outside the vocabulary becomes `<unk>`."""

    kind: Literal["words"] = "words"
    """One token a word, as the data cut them."""
    size: Annotated[int, Field(ge=5)] = 100_000
    """Ids of words: 4 specials and the most frequent words."""
    least: Annotated[int, Field(ge=1)] = 1
    """How often a word must stand in the training text to have an id."""
    lowercase: Lowercase = False
    """Whether words are looked up in small letters (unseen: those with no id as they stand); characters keep case."""
    digits: bool = False
    """Whether words are looked up with every digit as 0; characters stay as they are."""
    letters: Annotated[int, Field(ge=5)] = 500
    """Ids of characters, where the model reads them: 4 specials and the most frequent characters."""
    unknown: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """In training, a word that stands once in the text becomes `<unk>` with this probability (Lample et al. 2016)."""


WordTextConfig = Annotated[
    GivenWords | CharText | ByteText | WordText | BpeText | UnigramText, Field(discriminator="kind")
]


class Read(NamedTuple):
    """A word as ids."""

    id: int
    inside: bytes
    """Ids of what it is made of, as an array of type `_ID` lays them out; empty where that is not asked for."""


def _middle_left_out(ids: list[int]) -> list[int]:
    half = MOST_INSIDE // 2
    return ids if len(ids) <= MOST_INSIDE else [*ids[:half], *ids[-half:]]


def _inside(ids: list[int]) -> bytes:
    return array(_ID, _middle_left_out(ids) or [UNKNOWN]).tobytes()


def _tokens(rows: Sequence[Sequence[Read]]) -> Tokens:
    """Packed, with what words are made of where they were read so."""
    every = [word for row in rows for word in row]
    ids_N = torch.tensor([word.id for word in every], dtype=torch.long)
    layout = Layout.padded(torch.tensor([len(row) for row in rows], dtype=torch.long)).packed()
    if not every or not every[0].inside:
        return Tokens(ids_N, layout)
    lengths_N = np.fromiter((len(word.inside) for word in every), dtype=np.int64, count=len(every))
    flat = np.frombuffer(b"".join(word.inside for word in every), dtype=_ID)
    inside = Layout.padded(torch.from_numpy(lengths_N // array(_ID).itemsize)).packed()
    return Tokens(ids_N, layout, inside=Tokens(torch.from_numpy(flat.astype(np.int64)), inside))


@dataclass(frozen=True)
class WordForm:
    """What words are before they are looked up; their characters stay as they are."""

    lowercase: Lowercase = False
    """unseen: `LONDON` is read as `london`, which the vectors know, only where `LONDON` has no id."""
    digits: bool = False
    """Every digit becomes 0, so that numbers of one form are one word (Lample et al. 2016)."""

    def of(self, word: str) -> str:
        word = _composed(word)
        if self.lowercase is True:
            word = word.lower()
        return _DIGIT.sub("0", word) if self.digits else word


def _composed(word: str) -> str:
    return word if word.isascii() else unicodedata.normalize("NFC", word)


@dataclass(frozen=True)
class WordList:
    """The words and the characters that have an id: behind the four specials, the most frequent first."""

    words: tuple[str, ...]
    characters: tuple[str, ...] = ()
    """None where characters are not read."""
    form: WordForm = WordForm()
    seen_once: int = 0
    """So many words, the last but for those that were given, stood once in the training text."""
    given: int = 0
    """So many words, the last, stood in no training text: pretrained vectors have them."""
    _known: dict[str, Read] = field(default_factory=dict, repr=False, compare=False)
    _ids: dict[str, int] = field(default_factory=dict, repr=False, compare=False)
    _letters: dict[str, int] = field(default_factory=dict, repr=False, compare=False)

    in_pieces = False

    def __post_init__(self) -> None:
        self._ids.update((word, number) for number, word in enumerate(self.words, start=len(SPECIALS)))
        self._letters.update((each, number) for number, each in enumerate(self.characters, start=len(SPECIALS)))

    @staticmethod
    def of(
        sentences: Iterable[Sequence[str]],
        *,
        size: int = 100_000,
        least: int = 1,
        form: WordForm = WordForm(),  # noqa: B008
        characters: int = 0,
        given: Iterable[str] = (),
    ) -> "WordList":
        """From a training text: at most `size` ids, of words that stand there at least so often; so many characters.

        `given`: words that get an id though they do not stand there, because something is known of them.
        """
        words: Counter[str] = Counter()
        letters: Counter[str] = Counter()
        for sentence in sentences:
            for word in sentence:
                refuse_surrogates(word, f"the word {word[:40]!r}")
                words[form.of(word)] += 1
                if characters:
                    letters.update(_composed(word))
        room = max(0, size - len(SPECIALS))
        kept = [word for word in _by_frequency(words)[:room] if words[word] >= least]
        known = set(kept)
        more = [word for word in dict.fromkeys(map(form.of, given)) if word not in known][: room - len(kept)]
        return WordList(
            (*kept, *more),
            tuple(_by_frequency(letters)[: max(0, characters - len(SPECIALS))]),
            form,
            seen_once=sum(words[word] == 1 for word in kept),
            given=len(more),
        )

    @property
    def size(self) -> int:
        return len(SPECIALS) + len(self.words)

    @property
    def letters(self) -> int:
        """How many ids characters have; 0 where they are not read."""
        return len(SPECIALS) + len(self.characters) if self.characters else 0

    @property
    def rare(self) -> range:
        """The ids of words that stood once in the training text."""
        end = self.size - self.given
        return range(end - self.seen_once, end)

    def knows(self, word: str) -> bool:
        """Whether it is read as more than `<unk>`."""
        return self._number(word) != UNKNOWN

    def saw(self, word: str) -> bool:
        """Whether it stood in the training text."""
        return self._ids.get(self.form.of(word), self.size) < self.size - self.given

    def read(self, sentences: Sentences) -> Tokens:
        """Packed."""
        if len(self._known) > _CACHED:
            self._known.clear()
        known = self._known
        rows = []
        for sentence in sentences:
            for word in sentence:
                if word not in known:
                    known[word] = self._look_up(word)
            rows.append([known[word] for word in sentence])
        return _tokens(rows)

    def _look_up(self, word: str) -> Read:
        number = self._number(word)
        if not self.characters:
            return Read(number, b"")
        return Read(number, _inside([self._letters.get(each, UNKNOWN) for each in _composed(word)]))

    def _number(self, word: str) -> int:
        formed = self.form.of(word)
        if formed not in self._ids and self.form.lowercase == "unseen":
            formed = formed.lower()
        return self._ids.get(formed, UNKNOWN)

    def names(self) -> list[str]:
        """One a word id, specials first: what pretrained vectors are looked for by."""
        return [*SPECIALS, *self.words]

    def to_json(self) -> str:
        tree = {
            "format": FORMAT,
            "lowercase": self.form.lowercase,
            "digits": self.form.digits,
            "seen_once": self.seen_once,
            "given": self.given,
            "characters": list(self.characters),
            "words": list(self.words),
        }
        return json.dumps(tree, ensure_ascii=False, indent=0) + "\n"

    @staticmethod
    def from_json(text: str, origin: str) -> "WordList":
        try:
            tree: Any = json.loads(text)
            made = WordList(
                tuple(tree["words"]),
                tuple(tree["characters"]),
                WordForm(tree["lowercase"], tree["digits"]),
                tree["seen_once"],
                tree["given"],
            )
            sound = tree["format"] == FORMAT and made._is_sound()
        except (ValueError, KeyError, TypeError, RecursionError):
            sound = False
        if not sound:
            raise UsageError(
                f"{origin}: is no list of words as training writes it. Use the file of the run, or train anew."
            )
        return made

    def _is_sound(self) -> bool:
        lowercase = self.form.lowercase
        counts = (self.seen_once, self.given)
        return (
            all(isinstance(each, str) for each in (*self.words, *self.characters))
            and (isinstance(lowercase, bool) or lowercase == "unseen")
            and isinstance(self.form.digits, bool)
            and all(isinstance(count, int) and count >= 0 for count in counts)
            and sum(counts) <= len(self.words)
            and len(self._ids) == len(self.words)
            and len(self._letters) == len(self.characters)
        )


def _by_frequency(count: Counter[str]) -> list[str]:
    return sorted(count, key=lambda each: (-count[each], each))


@dataclass(frozen=True)
class PiecesOfWords:
    """A tokenizer that cuts each word by itself, as it stands in running text: behind a space, but for the first."""

    tokenizer: Tokenizer
    _known: dict[str, Read] = field(default_factory=dict, repr=False, compare=False)

    in_pieces = True
    letters = 0

    @property
    def size(self) -> int:
        return self.tokenizer.size

    def names(self) -> list[str]:
        """One a piece."""
        return self.tokenizer.model.pieces()

    def read(self, sentences: Sentences) -> Tokens:
        """Packed; all words have the id UNKNOWN."""
        if len(self._known) > _CACHED:
            self._known.clear()
        known = self._known
        rows = [[f" {word}" if place else word for place, word in enumerate(sentence)] for sentence in sentences]
        new = list(dict.fromkeys(word for row in rows for word in row if word not in known))
        for word, ids in zip(new, self.tokenizer.encode_batch(new), strict=True):
            known[word] = Read(UNKNOWN, _inside(ids))
        return _tokens([[known[word] for word in row] for row in rows])
