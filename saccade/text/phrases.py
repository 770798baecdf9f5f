"""A phrase inside a text → the tokens that write it there."""

import unicodedata
from dataclasses import dataclass

from saccade.errors import UsageError
from saccade.text.tokenizer import Tokenizer
from saccade.types import SPECIALS, UNKNOWN


@dataclass(frozen=True)
class Ways:
    """The tokens of a phrase behind a space, and those where none stands before it, as at a text's beginning.

    None: some word of it has no token in that place. Where tokens are set off from each other both are the same.
    """

    spaced: tuple[int, ...] | None
    plain: tuple[int, ...] | None


def ways_to_write(phrase: str, tokenizer: Tokenizer) -> Ways:
    """`phrase` is in the tokenizer's normal form."""
    spaced, plain = (_known(tokenizer.encode(text)) for text in (" " + phrase, phrase))
    if spaced is None and plain is None:
        ids = tokenizer.encode(phrase)
        word = tokenizer.words(phrase)[ids.index(UNKNOWN)].strip()
        raise UsageError(
            f"{phrase!r} cannot be written: {word!r} is not in the vocabulary of the target, which has "
            f"{tokenizer.size:,} words and no way to spell others. Use words that it has, or a model of pieces."
        )
    return Ways(spaced, plain)


def _known(ids: list[int]) -> tuple[int, ...] | None:
    return None if UNKNOWN in ids or not ids else tuple(ids)


def word_end(tokenizer: Tokenizer) -> int | None:
    """A token behind which a word can begin without a space: the first, which is the most frequent; None: no token."""
    for each in range(len(SPECIALS), tokenizer.size):
        text = tokenizer.spelling(each).decode("utf-8", errors="ignore")
        if text and unicodedata.category(text[-1])[0] not in "LMN" and text.isprintable():
            return each
    return None
