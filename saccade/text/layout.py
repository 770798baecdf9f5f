"""The layout of a tokenizer's file and vocabulary: what training writes and what loading accepts, nothing else.

The file is the `tokenizer.json` of the `tokenizers` library, so other programs read it too. The library is given a file
only after it was checked here: it aborts the process on some that are damaged.

The vocabulary begins with the four specials and, but for words, the 256 bytes. A text is cut before the model sees it
so that a piece holds either letters, digits, other signs or white space, with at most one space in front. `<s>` or
`<0x41>` in a user's text mixes signs with letters: it is never one piece, never to be taken for a reserved token.
Words may be cut at white space instead; there `<unk>` in a text is what it says, and no other reserved token is read.
"""

from itertools import product
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, FiniteFloat, ValidationError

from saccade.errors import UsageError
from saccade.text.recipe import Normalization
from saccade.types import SPECIALS

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
RESERVED = (*SPECIALS, *BYTES)
WORDS = r" ?[\p{L}\p{M}]+| ?\p{N}+| ?[^\s\p{L}\p{M}\p{N}]+|\s+(?!\S)|\s+"

_CUT = {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Isolated", "invert": False}
_JOIN = {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}]}
AT_SPACES: dict[str, Any] = {"type": "WhitespaceSplit"}
_FORMS: tuple[Normalization, ...] = ("none", "nfc", "nfkc")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class BpeModel(_Part):
    """Characters and their merges; without merges it cuts into characters, without characters into bytes."""

    type: Literal["BPE"] = "BPE"
    dropout: None = None
    unk_token: Literal["<unk>"] = "<unk>"
    continuing_subword_prefix: None = None
    end_of_word_suffix: None = None
    fuse_unk: Literal[False] = False
    byte_fallback: Literal[True] = True
    ignore_merges: Literal[False] = False
    vocab: dict[str, int]
    merges: list[tuple[str, str]]

    def pieces(self) -> list[str]:
        return sorted(self.vocab, key=self.vocab.__getitem__)


class UnigramModel(_Part):
    """Pieces and their log-probabilities; a piece's place is its id."""

    type: Literal["Unigram"] = "Unigram"
    unk_id: Literal[3] = 3
    vocab: list[tuple[str, FiniteFloat]]
    byte_fallback: Literal[True] = True

    def pieces(self) -> list[str]:
        return [piece for piece, _ in self.vocab]


class WordModel(_Part):
    """Whole words."""

    type: Literal["WordLevel"] = "WordLevel"
    vocab: dict[str, int]
    unk_token: Literal["<unk>"] = "<unk>"

    def pieces(self) -> list[str]:
        return sorted(self.vocab, key=self.vocab.__getitem__)


Model = BpeModel | UnigramModel | WordModel


class TokenizerFile(_Part):
    """The whole file. What stands around the model is the same for every kind, but for the normal form."""

    version: Literal["1.0"] = "1.0"
    truncation: None = None
    padding: None = None
    added_tokens: list[None] = Field(default=[], max_length=0)
    normalizer: dict[str, Any] | None
    pre_tokenizer: dict[str, Any] = _CUT
    post_processor: None = None
    decoder: dict[str, Any] | None = _JOIN
    """None: a space between tokens, for words that were cut there."""
    model: Annotated[Model, Field(discriminator="type")]

    @staticmethod
    def at_spaces(normalizer: dict[str, Any] | None, model: WordModel) -> "TokenizerFile":
        """Of words that white space separates."""
        return TokenizerFile(normalizer=normalizer, pre_tokenizer=AT_SPACES, decoder=None, model=model)

    @property
    def cuts_at_spaces(self) -> bool:
        return self.pre_tokenizer == AT_SPACES

    def ids(self) -> dict[str, int]:
        return {piece: each for each, piece in enumerate(self.model.pieces())}

    def write(self) -> str:
        return self.model_dump_json(indent=1) + "\n"

    @staticmethod
    def read(text: str, origin: str) -> "TokenizerFile":
        """The file in the text, or an error that says why it is none of ours; `origin` names it there."""
        try:
            file = TokenizerFile.model_validate_json(text)
            fault = file._fault()
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            fault = f"{place}: {first['msg']}" if place else first["msg"]
        except ValueError as error:  # a lone surrogate in the text
            fault = str(error)
        if fault:
            raise UsageError(
                f"{origin}: not a tokenizer made by Saccade ({fault}). "
                "Use the file that training wrote, or train the tokenizer anew."
            )
        return file

    def _fault(self) -> str:
        pieces = self.model.pieces()
        reserved = SPECIALS if isinstance(self.model, WordModel) else RESERVED
        if tuple(pieces[: len(reserved)]) != reserved:
            return f"its vocabulary does not begin with {', '.join(reserved[:5])}, … at 0, 1, 2, …"
        if not isinstance(self.model, UnigramModel) and self.model.vocab != self.ids():
            return "its ids are not 0, 1, 2, … without a gap"
        if len(self.ids()) < len(pieces) or "" in pieces:
            return "a piece is empty or stands twice in its vocabulary"
        if isinstance(self.model, BpeModel) and not self._merges_known(self.model):
            return "it merges pieces that are not in its vocabulary"
        if self.normalizer not in [normalizer(form, lowercase) for form, lowercase in product(_FORMS, (False, True))]:
            return "its normalizer is another"
        known = self.pre_tokenizer == _CUT and self.decoder == _JOIN
        if isinstance(self.model, WordModel):
            known |= self.cuts_at_spaces and self.decoder is None
        if not known:
            return "its pre_tokenizer or decoder is another"
        return ""

    @staticmethod
    def _merges_known(model: BpeModel) -> bool:
        return all(piece in model.vocab for left, right in model.merges for piece in (left, right, left + right))


def normalizer(form: Normalization, lowercase: bool) -> dict[str, Any] | None:
    """The normal form, taken again after lowercasing: J̌ has no one-letter form, but its small letter ǰ has."""
    match form:
        case "none":
            steps = []
        case "nfc":
            steps = [{"type": "NFC"}]
        case "nfkc":
            steps = [{"type": "NFKC"}]
    if lowercase:
        steps = [*steps, {"type": "Lowercase"}, *steps]
    return {"type": "Sequence", "normalizers": steps} if steps else None
