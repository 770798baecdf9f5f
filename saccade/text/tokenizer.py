"""One tokenizer: text to ids and back, losing nothing but what its normal form drops."""

import re
from array import array
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import numpy as np
import tokenizers as library
from numpy.typing import NDArray

from saccade.errors import UsageError
from saccade.text.layout import RESERVED, BpeModel, Model, TokenizerFile, WordModel
from saccade.text.units import ITEM, SPACE, UnitEncoder
from saccade.types import END, PAD, SPECIALS, START, UNKNOWN

_SPACES = re.compile(f"[{SPACE}]+")
_WORD_WITH_SPACE = re.compile(r"\s*\S+")
_VISIBLE = {" ": "␣", "\n": "⏎"}
# Characters that make a text NFC however they stand together: Latin, Cyrillic, punctuation, kana and Han letters that
# have no canonical decomposition, are no combining marks and compose with none of the others (Unicode Annex 15).
IN_NFC = (
    "\0-\u02ff\u0400-\u0482\u048a-\u052f\u2010-\u2027\u2030-\u205e\u20a0-\u20bf"
    "\u3001-\u3029\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fa5"
)
Result = TypeVar("Result")


class Tokenizer:
    """Text to ids and back. Ids 0 to 3 are PAD, START, END and UNKNOWN."""

    def __init__(self, text: str, origin: str = "tokenizer.json") -> None:
        file = TokenizerFile.read(text, origin)
        self._json = file.write()  # not `text`: the library must read nothing that was not checked
        self._library = library.Tokenizer.from_str(self._json)
        self._changes = _what_changes(file.normalizer)
        self._pieces = file.model.pieces()
        self._is_word, self._at_spaces = isinstance(file.model, WordModel), file.cuts_at_spaces
        self._bytes = [piece.encode() for piece in self._pieces]
        if not self._is_word:
            self._bytes[len(SPECIALS) : len(RESERVED)] = [bytes([byte]) for byte in range(256)]
        whole = library.Tokenizer.from_str(file.model_copy(update={"normalizer": None}).write())
        merges = isinstance(file.model, BpeModel)
        self._units = UnitEncoder(whole, tuple(self._bytes), lossless=not self._is_word, merges=merges)
        for silent in (PAD, START, END):
            self._bytes[silent] = b""

    @staticmethod
    def from_json(text: str, origin: str = "tokenizer.json") -> "Tokenizer":
        """The tokenizer that `to_json` wrote; `origin` names the text in errors."""
        return Tokenizer(text, origin)

    def to_json(self) -> str:
        return self._json

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and other._json == self._json

    def __hash__(self) -> int:
        return hash(self._json)

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[str]]:
        return Tokenizer, (self._json,)

    @property
    def size(self) -> int:
        """How many ids there are, specials included."""
        return len(self._pieces)

    @property
    def cuts_at_spaces(self) -> bool:
        """Whether words are what white space separates, which is not kept."""
        return self._at_spaces

    @property
    def model(self) -> Model:
        """The vocabulary with its merges or scores, as plain values."""
        return TokenizerFile.read(self._json, "tokenizer.json").model

    def normalise(self, text: str) -> str:
        """What comes back from `decode(encode(text))`."""
        return _unicode([text], lambda: self._normal(text))

    def _normal(self, text: str) -> str:
        if self._changes is not None and self._changes.search(text):
            text = str(self._library.normalizer.normalize_str(text))
        return _SPACES.sub(" ", text).strip(" ") if self._at_spaces else text

    def words(self, text: str) -> list[str]:
        """The normalised text cut into the stretches that no piece crosses; joined they are that text.

        Where words are cut at white space, they come without it.
        """
        whole = self.normalise(text)
        cut = _unicode([whole], lambda: self._library.pre_tokenizer.pre_tokenize_str(whole))
        return [word for word, _ in cut]

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without START and END."""
        if self._at_spaces:
            return self.encode_batch([text])[0]
        encoding = _unicode([text], lambda: self._library.encode(text, add_special_tokens=False))
        return list(encoding.ids)

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """The ids of many texts: the same as of each alone, but faster."""
        return [array("I", row).tolist() for row in self._rows(list(texts))]

    def encode_flat(self, texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """The ids of many texts, end to end; and how many each has."""
        rows = self._rows(texts)
        counts = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows)) // ITEM
        return np.frombuffer(b"".join(rows), dtype=np.uint32), counts

    def _rows(self, texts: Sequence[str]) -> list[bytes]:
        rows = _unicode(texts, lambda: self._units.encode([self._normal(text) for text in texts]))
        return [_unreserved(row) for row in rows] if self._at_spaces else rows

    def word_places(self, text: str, ids: Sequence[int]) -> list[int]:
        """Of each id of a text, or of a beginning of them, the word that it is a part of: what white space separates.

        White space counts to the word behind it, at the end to the last. A text without words has word 0 alone.
        """
        if self._at_spaces:
            return list(range(len(ids)))
        stretches = _WORD_WITH_SPACE.findall(text) or [""]
        ends = np.cumsum([len(self.normalise(each).encode()) for each in stretches])
        pieces = [word.encode() for word in self.words(text)] if self._is_word else [self._bytes[each] for each in ids]
        sizes = np.array([len(piece) for piece in pieces[: len(ids)]], dtype=np.int64)
        begins = np.cumsum(sizes) - sizes
        words: list[int] = np.minimum(np.searchsorted(ends, begins, side="right"), len(ends) - 1).tolist()
        return words

    def written_places(self, ids: Sequence[int]) -> list[int]:
        """As `word_places`, of ids that a model wrote, in any cut: the word of `decode(ids)` that each is a part of."""
        self._check(ids)
        reader = getincrementaldecoder("utf-8")("replace")
        begins, parts, size = [], [], 0
        for each in ids:
            part = self._bytes[each]
            if part and size and self.is_set_off(each):
                part = b" " + part
            # The first byte alone: bytes held back before it may become a character of their own only now.
            seen = reader.decode(part[:1])
            begins.append(size + max(0, len(seen) - (reader.getstate()[0] == b"")))
            parts.append(seen + reader.decode(part[1:]))
            size += len(parts[-1])
        text = "".join((*parts, reader.decode(b"", final=True)))
        ends = [found.end() for found in _WORD_WITH_SPACE.finditer(text)] or [0]
        return np.minimum(np.searchsorted(ends, begins, side="right"), len(ends) - 1).tolist()  # type: ignore[no-any-return]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of the ids; PAD, START and END say nothing, and bytes that are no UTF-8 become U+FFFD.

        Where the tokens are words, UNKNOWN stands for one that most often had a space before it: it is written so.
        """
        self._check(ids)
        parts: list[bytes] = []
        for each in ids:
            part = self._bytes[each]
            if part:
                parts.append(b" " + part if parts and self.is_set_off(each) else part)
        # Not by the library's decoder: one wrong byte there spoils every byte around it.
        return b"".join(parts).decode("utf-8", errors="replace")

    def is_set_off(self, each: int) -> bool:
        """Whether a space that no token holds stands before this one, unless it is the first."""
        return self._at_spaces or (self._is_word and each == UNKNOWN)

    def spelling(self, each: int) -> bytes:
        """The bytes an id stands for: a character of several bytes may be spelt by several ids."""
        self._check([each])
        return self._bytes[each]

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """One readable string an id, for pictures: a lone space is ␣, a line's end ⏎, the byte E2 <E2>."""
        self._check(ids)
        return [self._readable(each) for each in ids]

    def _readable(self, each: int) -> str:
        piece = self._pieces[each]
        if not self._is_word and len(SPECIALS) <= each < len(RESERVED):
            return f"<{piece[3:5]}>"
        return _VISIBLE.get(piece, piece)

    def _check(self, ids: Sequence[int]) -> None:
        if len(ids) and not (min(ids) >= 0 and max(ids) < self.size):
            wrong = next(each for each in ids if not 0 <= each < self.size)
            raise UsageError(
                f"ids: {wrong} is not an id of this tokenizer, whose ids are 0 to {self.size - 1}. "
                "Decode with the tokenizer the ids were made with."
            )


def _unreserved(row: bytes) -> bytes:
    """Ids of a text in which words spelt as PAD, START or END are words like any other that is not known."""
    ids = np.frombuffer(row, dtype=np.uint32)
    return np.where(ids < UNKNOWN, np.uint32(UNKNOWN), ids).tobytes()


def _what_changes(normalizer: dict[str, Any] | None) -> re.Pattern[str] | None:
    """What a text must hold for the normalizer to change it; None: nothing will."""
    match [step["type"] for step in normalizer["normalizers"]] if normalizer else []:
        case []:
            return None
        case ["NFC"]:
            return re.compile(f"[^{IN_NFC}]")
        case ["NFKC"]:
            return re.compile(r"[^\0-\x7f]")
        case _:
            return re.compile(r"[^\0-@\[-\x7f]")


def _unicode(texts: Sequence[str], call: Callable[[], Result]) -> Result:
    """The call's result; where it fails for a lone surrogate, an error that says so."""
    try:
        return call()
    except (TypeError, UnicodeEncodeError):
        for number, text in enumerate(texts, start=1):
            refuse_surrogates(text, f"text {number}")
        raise


def refuse_surrogates(text: str, name: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UsageError(
            f"{name}: character {error.start + 1} is the lone surrogate {text[error.start]!r}, "
            "which is not Unicode text. Read the text as UTF-8, or replace such characters."
        ) from None
